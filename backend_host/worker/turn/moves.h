/* A worker's moves towards the grant and away from it: each does on the page what it says, and changes the phase with
 * it. */
#ifndef BACKEND_HOST_MOVES_H
#define BACKEND_HOST_MOVES_H

#include "turn/state.h"

/* A worker without its turn asks for it. False: it waits from now on, or its limit holds it back. What it still had on
 * the device is charged as it goes again. */
bool fgw_move_enter(struct fgw_worker *worker, uint64_t now_ns);
/* It does the same for one whose work has just been taken off the device in another's turn; see fgw_grant_reenter. */
void fgw_move_off(struct fgw_worker *worker, uint64_t since_ns, uint64_t now_ns);
/* What it waited for is wanted no more. */
void fgw_move_out(struct fgw_worker *worker);
/* A worker with its turn leaves, and this becomes of its work. It pays for what it held idly. `wants_more` as in
 * fgw_grant_leave: one that its limit holds back does not wait. */
void fgw_move_leave(struct fgw_worker *worker, enum fgw_work work, bool wants_more, uint64_t now_ns);
/* A worker with its turn and nothing on the device gives it back, of its own accord: it pays for nothing. */
void fgw_move_give_back(struct fgw_worker *worker, uint64_t now_ns);

#endif
