/* Changes of a worker's phase. */
#ifndef BACKEND_HOST_CHANGE_H
#define BACKEND_HOST_CHANGE_H

#include "turn/phase.h"
#include "turn/state.h"

/* The worker is in another phase from now on, or in the same. A transition that is not in the table is a mistake of
 * ours: built with FGW_DEBUG the worker stops there, otherwise it is counted. */
void fgw_phase_change(struct fgw_worker *worker, enum fgw_phase to);

#endif
