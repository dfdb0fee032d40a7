/* The thread that shows the daemon that this program lives: see beat.c. */
#ifndef FRONTEND_GUEST_BEAT_H
#define FRONTEND_GUEST_BEAT_H

#include <stdbool.h>

#include "ivshmem/region.h"

bool fgv_beat_start(struct fgv_client *client);
void fgv_beat_stop(void);

#endif
