/* Events: the guest knows only in which context each was made. */
#ifndef FRONTEND_GUEST_EVENT_H
#define FRONTEND_GUEST_EVENT_H

struct fgv_context;
/* The context of an event, by what hangs on its handle. */
struct fgv_context *fgv_event_context(const void *object);
void fgv_event_forget_context(struct fgv_context *context);

#endif
