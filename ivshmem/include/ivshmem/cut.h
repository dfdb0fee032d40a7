/*
 * A process that outlives shared memory which was cut short under it.
 *
 * Whoever may write to a file may truncate it, and who then touches what lay behind its new end gets SIGBUS. Files that
 * QEMU made cannot be sealed against that. So the daemon, which serves all, keeps a list of what it has mapped: where
 * one of these is touched in vain it becomes empty memory of the daemon's own, as a whole, and is known to be cut. A
 * worker needs none of that: it serves one program of whoever cut the memory, and ends.
 *
 * Wrong when: a process has its own handler of SIGBUS, and sets it after fgv_cut_survive.
 */
#ifndef IVSHMEM_CUT_H
#define IVSHMEM_CUT_H

#include <stdbool.h>
#include <stdint.h>

#define FGV_NR_CUTTABLE 1024

/* From now on this process outlives a cut of memory that is watched. What it did on SIGBUS before it does elsewhere. */
bool fgv_cut_survive(void);

/* Watches a whole mapping; returns its number, or -1 where there are FGV_NR_CUTTABLE. */
int32_t fgv_cut_watch(void *base, uint64_t bytes);

bool fgv_cut_happened(int32_t number);

/* Before the mapping goes. */
void fgv_cut_forget(int32_t number);

#endif
