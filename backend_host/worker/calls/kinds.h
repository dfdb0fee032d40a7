/* What is done for each kind of handle when its number goes. */
#ifndef BACKEND_HOST_KINDS_H
#define BACKEND_HOST_KINDS_H

#include "client/handles.h"

extern const fgw_release fgw_releases[FGV_HANDLE_KINDS];

#endif
