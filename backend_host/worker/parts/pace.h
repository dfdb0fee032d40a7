/* How large the parts of a launch in boxes are: see pace.c. */
#ifndef BACKEND_HOST_PACE_H
#define BACKEND_HOST_PACE_H

#include "parts/state.h"

uint64_t fgw_pace_blocks(const struct fgw_worker *worker);
/* Whether one more part may be out. */
bool fgw_pace_has_room(const struct fgw_worker *worker);
/* When the device came to the first of those that are out; 0: there is none. */
uint64_t fgw_pace_begun_ns(const struct fgw_parts *parts);
/* So many blocks took so long, one part after the other. */
void fgw_pace_learn(struct fgw_variant *variant, uint64_t nr_blocks, uint64_t took_ns);

#endif
