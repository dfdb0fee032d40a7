/* All kinds of handles, one row for each. */
#ifndef BACKEND_HOST_KINDS_H
#define BACKEND_HOST_KINDS_H

#include "client/kind.h"

extern const struct fgw_kind fgw_kinds[FGW_NR_KINDS];

#endif
