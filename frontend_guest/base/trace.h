/*
 * What a program asks of the driver, call by call: how missing calls, slow ones and needless round trips are found.
 *
 * FAIRGV_TRACE=FILE appends a line of JSON for each call when it returns, for each name that cuGetProcAddress did not
 * find, for each export table asked for, and for each kernel that is timed (code/timeline.h). FAIRGV_COUNT=PREFIX keeps
 * sums by call in the file PREFIX.PID, which is mapped, so that they are there however the process ends; a child that
 * only forked adds to its parent's. Both are read by `python -m backend_host.trace`; fairgv-run --trace and --count set
 * them.
 *
 * The table of traced twins is generated (generated/exports.c). A call's class is what it did: answered here, sent, or
 * waited for. Slots of export tables are called through copies of the tables (trace_tables.c).
 *
 * Wrong when: a program asks dlsym for a name that is not there; nobody tells this library (LD_DEBUG=symbols shows it).
 */
#ifndef FRONTEND_GUEST_TRACE_H
#define FRONTEND_GUEST_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "cuda_api/procs.h"
#include "cuda_api/types.h"

extern bool fgv_tracing; /* set before main, and before any constructor that may call */

/* A call of the program while it runs, in the thread that made it. */
struct fgv_traced {
    uint64_t *outer; /* sums of the call whose function of the program made this one */
    uint64_t begun_ns;
    uint64_t sums[FGV_COUNT_NR];
};

void fgv_trace_begin(struct fgv_traced *traced);
/* Returns result. */
CUresult fgv_trace_end(struct fgv_traced *traced, uint32_t symbol, CUresult result);
/* For what is no symbol of fgv_trace_symbols: a slot of an export table, a call that is not carried. */
void fgv_trace_end_named(struct fgv_traced *traced, const char *name, CUresult result);

/* What cuGetProcAddress gives for a call: its traced twin while calls are traced. */
fgv_proc fgv_trace_proc(fgv_proc plain);
void fgv_trace_missing(const char *name, int version, uint64_t flags);
/* A kernel that was on the device from then on, on the clock of the other lines. */
void fgv_trace_kernel(const char *name, uint64_t stream, uint64_t begun_ns, uint64_t took_ns);
void fgv_trace_table_asked(const CUuuid *id, CUresult result);
/* The copy of an export table whose slots are traced; the table itself while nothing is traced. */
const void *fgv_trace_table(const void *table, const unsigned char uuid[16]);

#endif
