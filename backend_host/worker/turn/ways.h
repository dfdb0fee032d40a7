/* The ways off the device, tried in turn: see way.h for what one is. */
#ifndef BACKEND_HOST_WAYS_H
#define BACKEND_HOST_WAYS_H

#include "page/outlook.h"
#include "turn/phase.h"
#include "turn/state.h"

/* Finds out which are there. */
void fgw_ways_init(struct fgw_worker *worker);
/* The worker stands, and the driver may put it on another device; or that is over. */
void fgw_ways_renew(struct fgw_worker *worker, bool is_over);
/* Tells whether work of this worker can give way in the midst. */
bool fgw_ways_interrupt(const struct fgw_worker *worker);
/* Tells whether others may have the device now that the turn of this worker is over; `work` then says what becomes of
 * its own. */
bool fgw_ways_try(struct fgw_worker *worker, struct fgw_outlook *outlook, enum fgw_work *work);
/* A worker without its turn takes off the device what is in the way of the holder. False: nothing is. */
bool fgw_ways_clear(struct fgw_worker *worker, struct fgw_outlook *outlook);
/* Brings back what is off the device. */
void fgw_ways_back(struct fgw_worker *worker);

#endif
