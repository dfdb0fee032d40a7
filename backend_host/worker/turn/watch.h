/* The work of this worker on the device, at each look: who waits for it, and what it costs. */
#ifndef BACKEND_HOST_WATCH_H
#define BACKEND_HOST_WATCH_H

#include "page/outlook.h"
#include "turn/state.h"

/* Shows on the page since when the work that is on the device has kept it without any of it ending. */
void fgw_watch_stall(const struct fgw_worker *worker, bool is_running);
/* Wakes who waits for it, charges it as it goes, and sees to it that its end is heard of. */
void fgw_watch_work(struct fgw_worker *worker, const struct fgw_outlook *outlook, bool is_running);

#endif
