/*
 * Requests that wait for room on the device, for what stays there: arrays, physical memory that does not move, memory
 * of graphs, modules. Linear memory needs none of this: it comes when there is room (swap.h).
 *
 * A handler that the driver had no room for leaves all as it was, and says so (calls/lack.h). Where others have
 * memory there that may move, and each has room for all of its own beside what is asked for, the request is kept, and
 * what it lacks is counted as if it were there already: so the pager has others leave. It is served once more when the
 * driver has so much. One waits at a time, those behind it for their turn; other requests go on meanwhile.
 *
 * Wrong when: others cannot leave, as they share what they have, say, or the driver has room and does not give it.
 * After 10 s the answer is CUDA_ERROR_OUT_OF_MEMORY, and others have their memory back.
 */
#ifndef BACKEND_HOST_LACKING_H
#define BACKEND_HOST_LACKING_H

#include "client/service.h"
#include "loop/state.h"

/* Before a handler. */
void fgw_lacking_begin(struct fgw_worker *worker);
/* Behind it: true when the request waits, unanswered. */
bool fgw_lacking_keeps(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                       uint16_t response, CUresult result);
/* Whether the first one is to be served once more, now, and what of it: its record, and whether it is answered in any
 * case. Then what came of that: answered, to wait on, or memory of the client's was missing that is off the device. */
struct fgw_lacking_record {
    const uint8_t *bytes;
    uint32_t nr_bytes;
    uint16_t response;
    bool is_last;
};
enum fgw_again { FGW_AGAIN_ANSWERED, FGW_AGAIN_LACKS, FGW_AGAIN_MISSES };
bool fgw_lacking_is_due(struct fgw_worker *worker, uint64_t now_ns, struct fgw_lacking_record *record);
void fgw_lacking_tried(struct fgw_worker *worker, uint64_t now_ns, enum fgw_again again);
/* Drops all. */
void fgw_lacking_drop(struct fgw_worker *worker);

#endif
