/* Events: the guest knows only in which context each was made. */
#ifndef FRONTEND_GUEST_EVENT_H
#define FRONTEND_GUEST_EVENT_H

struct fgv_context;
void fgv_event_forget_context(struct fgv_context *context);

#endif
