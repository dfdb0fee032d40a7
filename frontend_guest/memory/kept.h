/* Memory that the program freed, and that is kept here to be had again: empty slabs, and what pools had. */
#ifndef FRONTEND_GUEST_KEPT_H
#define FRONTEND_GUEST_KEPT_H

#include <stdbool.h>

/* Gives it back to the host, which has run out; what pools had once all work is over. False: there was none. */
bool fgv_kept_give_back(void);

#endif
