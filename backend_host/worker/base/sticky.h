/* Errors after which a context gives no other. */
#ifndef BACKEND_HOST_STICKY_H
#define BACKEND_HOST_STICKY_H

#include <stdbool.h>

#include "cuda_api/types.h"

bool fgw_is_sticky(CUresult result);

#endif
