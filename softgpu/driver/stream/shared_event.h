/* Events that processes share count in words of a shared file. With the lock. */
#ifndef SOFTGPU_SHARED_EVENT_H
#define SOFTGPU_SHARED_EVENT_H

#include "base/shared_file.h"
#include "stream/records.h"

/* Of an event that is made with CU_EVENT_INTERPROCESS; NULL: the host has no file. */
struct sgp_shared_event *sgp_shared_event_new(struct sgp_device *device);
/* One that another process made; NULL: there is none, or it cannot be mapped. */
struct sgp_shared_event *sgp_shared_event_open(const struct CUctx_st *context, const struct sgp_shared_place *place);
/* Where others find it; false: it is another process's own, or it cannot be told. */
bool sgp_shared_event_place(const struct sgp_shared_event *shared, struct sgp_shared_place *place);
void sgp_shared_event_end(struct sgp_shared_event *shared);

/* Another record; its number. */
uint32_t sgp_shared_event_record(struct sgp_shared_event *shared);
void sgp_shared_event_complete(struct sgp_shared_event *shared, uint32_t number);
/* The last record is complete, whoever made it; so is one whose process died. */
bool sgp_shared_event_is_complete(const struct sgp_shared_event *shared);
/* Gives the lock up until the record that is now the last one is complete. */
void sgp_shared_event_synchronize(struct CUevent_st *event);
/* What the stream does from here on waits for it. */
CUresult sgp_shared_event_wait(struct CUstream_st *stream, struct CUevent_st *event);

#endif
