/* A turn is given up early for a newcomer: a vGPU that slept, comes back and stands before the holder. Only work that
 * can stop in the midst gives way so. */
#ifndef BACKEND_HOST_NEWCOMER_H
#define BACKEND_HOST_NEWCOMER_H

#include "page/outlook.h"
#include "turn/state.h"

/* A holder looks now and then, and gives up its turn if there is one. One whose work cannot stop in the midst does so
 * for one that is urgent alone. */
void fgw_newcomer_look(struct fgw_worker *worker, struct fgw_outlook *outlook, bool can_stop);
/* Tells whether this turn is given up for one. */
bool fgw_newcomer_hurries(const struct fgw_worker *worker, const struct fgw_outlook *outlook);

#endif
