/* What a handler does where the driver has no room for what would stay on the device: it leaves all as it was, and says
 * so. The request waits until others have made room, where they may have to (loop/lacking.h). */
#ifndef BACKEND_HOST_LACK_H
#define BACKEND_HOST_LACK_H

#include "calls/state.h"

/* Before a handler and behind it: whether the request may wait, and for how many bytes it does; 0: it does not. */
void fgw_lack_begin(struct fgw_worker *worker, bool may_wait);
uint64_t fgw_lack_end(struct fgw_worker *worker);
/* A handler's: so much it lacks. Gives what it returns. */
CUresult fgw_lack_of(struct fgw_worker *worker, uint64_t bytes);
/* Tells whether the request at hand waits. */
bool fgw_lack_is_told(const struct fgw_worker *worker);

#endif
