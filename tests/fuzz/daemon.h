/* The daemon of the worker that is fuzzed: its page, the region of its guest, and what it says. */
#ifndef TESTS_FUZZ_DAEMON_H
#define TESTS_FUZZ_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "worker.h"

struct fgw_worker;

#define DAEMON_CHUNK_BYTES  36864u /* one holds what a graph's node is told by */
#define DAEMON_NR_CHUNKS    8u
#define DAEMON_RECORD_BYTES 4096u

/* What the guest shares: responses, words of chunks, the arena, and the record at hand. */
struct shared {
    struct fgv_response responses[16];
    _Alignas(4096) uint8_t words[4096];
    uint8_t arena[DAEMON_NR_CHUNKS * DAEMON_CHUNK_BYTES];
    uint8_t pinned[2 * FGV_PAGE_BYTES];
    uint8_t record[DAEMON_RECORD_BYTES];
};

/* Once. Gives the guest's view of its region. */
struct shared *daemon_begin(void);
/* Gives the worker its client, whose entry says what an honest guest's does, but for what the patches change: a list of
 * struct fuzz_patch. False: the client was refused, and the worker is gone. */
bool daemon_give_client(struct fgw_worker *worker, const struct fuzz_start *start, const uint8_t *patches,
                        size_t nr_bytes);
/* Says or does what a struct fuzz_told asks for; more bytes than that are a message's. */
void daemon_tell(struct fgw_worker *worker, const uint8_t *data, size_t nr_bytes);
/* Answers what the worker asked. */
void daemon_answer(void);
/* Gives it all the room that it wants. */
void daemon_calm(struct fgw_worker *worker);
/* Takes the worker down; what it mapped goes. */
void daemon_run(struct fgw_worker *worker);

#endif
