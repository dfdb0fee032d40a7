/* The word by which kernels of a context are asked to give way: frontend_guest/include/fairgv.h says what it is. */
#ifndef FRONTEND_GUEST_YIELD_H
#define FRONTEND_GUEST_YIELD_H

struct fgv_range;

/* Memory that the program freed is about to be used again, and the worker knows nothing of that: a word that lies there
 * is detached. */
void fgv_yield_forget(const struct fgv_range *range);

#endif
