/* How large the parts of a launch in boxes are: see pace.c. */
#ifndef BACKEND_HOST_PACE_H
#define BACKEND_HOST_PACE_H

#include "parts/state.h"

uint64_t fgv_pace_blocks(const struct fgv_worker *worker);
/* Whether one more part may be out. */
bool fgv_pace_has_room(const struct fgv_worker *worker);
/* When the device came to the first of those that are out; 0: there is none. */
uint64_t fgv_pace_begun_ns(const struct fgv_parts *parts);
/* So many blocks took so long, one part after the other. */
void fgv_pace_learn(struct fgv_variant *variant, uint64_t nr_blocks, uint64_t took_ns);

#endif
