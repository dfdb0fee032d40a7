/* While it is urgent a critical vGPU's work needs no turn beside a holder of its own space, nor is such a holder kept
 * waiting by it. */
#ifndef BACKEND_HOST_CRITICAL_H
#define BACKEND_HOST_CRITICAL_H

#include "page/outlook.h"
#include "turn/state.h"

/* Tells whether the worker may submit without a turn of its own; what it waited for, it waits for no more then. */
bool fgw_critical_goes(struct fgw_worker *worker);
/* Tells whether its turn is over because another vGPU of its space wants one: both may have the device. */
bool fgw_critical_lets_in(const struct fgw_worker *worker, struct fgw_outlook *outlook);
/* Tells whether its work is in nobody's way, whoever has the turn. */
bool fgw_critical_is_welcome(const struct fgw_worker *worker);

#endif
