/*
 * Events that programs of one region share: numbers that records count up, and that devices write and wait for.
 *
 * A record gets the next number of its event, and a stream writes that into a word when it gets there. Who waits for
 * the record waits for the word to reach the number. A word never goes back: it is one stream's as long as something is
 * outstanding there, and streams write in order. Who records in another stream meanwhile gets another word.
 *
 * All of it can be rewritten by every program of the guest at any time. Who does so makes programs of its own guest
 * wait too long or not at all. Host code takes nothing from here but what it bounds, and loops over no more than there
 * is.
 *
 * Wrong when: one event is outstanding in more than FGV_NR_EVENT_WORDS streams at a time. A record then waits for an
 * older one of its program's, which a device would not do, and fails where all are other programs'.
 */
#ifndef IVSHMEM_EVENT_H
#define IVSHMEM_EVENT_H

#include "ivshmem/region.h"

#define FGV_EVENT_NONE  UINT32_MAX
#define FGV_EVENT_LATER (UINT32_MAX - 1)

/* Which record: its number in the event, and the word that reaches it. Number 0: none was made. */
struct fgv_event_place {
    uint64_t number;
    uint32_t word;
};

/* Guest: an event for this client. FGV_EVENT_NONE: there is none; FGV_EVENT_LATER: there is one when devices have
 * written what is outstanding. `key`: a random number, which becomes its key.
 *
 * Where none is free it is one that its maker left and a single other client holds, who shares it with nobody any more:
 * programs open events and forget them. That client finds another key there. */
uint32_t fgv_event_take(const struct fgv_region *region, uint32_t client_index, uint64_t *key);
/* Guest: another client that holds it. False: it is not, or no longer, the event of this key. */
bool fgv_event_join(const struct fgv_region *region, uint32_t client_index, uint32_t index, uint64_t key);
void fgv_event_leave(const struct fgv_region *region, uint32_t client_index, uint32_t index);

/* Guest: a place for another record. `own`: for each word the number that the recording stream wrote there last; 0:
 * none. `after`: the number that the word must have reached before the stream writes there; 0: the stream may write.
 * False: there is no place. */
bool fgv_event_claim(struct fgv_event *event, uint32_t client_index, const uint64_t own[FGV_NR_EVENT_WORDS],
                     struct fgv_event_place *place, uint64_t *after);
/* The record counts from here on, unless a later one does. */
void fgv_event_publish(struct fgv_event *event, const struct fgv_event_place *place);
/* The record that counts. */
struct fgv_event_place fgv_event_last(const struct fgv_event *event);
bool fgv_event_is_done(const struct fgv_event *event, const struct fgv_event_place *place);
/* Nobody will write there any more. */
void fgv_event_finish(struct fgv_event *event, const struct fgv_event_place *place);

/* Either side: nobody writes any more what this client has outstanding. Its device must have come to an end. */
void fgv_events_finish(const struct fgv_region *region, uint32_t client_index);
/* Host: the same, and the client holds nothing any more. */
void fgv_events_reclaim(const struct fgv_region *region, uint32_t client_index);

#endif
