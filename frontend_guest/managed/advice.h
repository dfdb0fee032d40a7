/* What the program said about its managed memory. */
#ifndef FRONTEND_GUEST_ADVICE_H
#define FRONTEND_GUEST_ADVICE_H

struct fgv_range;

/* The memory is gone. */
void fgv_advice_gone(const struct fgv_range *range);

#endif
