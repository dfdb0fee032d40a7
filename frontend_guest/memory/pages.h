/* Replacing pages of the program's, in their place, by others with the same bytes. Some of them may be the calling
 * thread's stack. */
#ifndef FRONTEND_GUEST_PAGES_H
#define FRONTEND_GUEST_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/* Puts pages of a file, which are mapped at `copy`, in their place. All are whole pages. `aside`: where those are that
 * were there, if others share them, as those of a mapped file; 0: they were the process's own. */
bool fgv_pages_replace(uint64_t address, uint64_t bytes, uint64_t copy, int file, uint64_t offset, uint64_t *aside);
/* Puts those that were there, or others of the process's own, in the place of such. */
bool fgv_pages_restore(uint64_t address, uint64_t bytes, uint64_t aside);

#endif
