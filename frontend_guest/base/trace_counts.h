/*
 * Sums by call, in a file that is mapped: see trace.h. Fixed places for the symbols of the library, then one for each
 * name that turns up. backend_host/trace.py reads the same layout.
 */
#ifndef FRONTEND_GUEST_TRACE_COUNTS_H
#define FRONTEND_GUEST_TRACE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/procs.h"

struct fgv_trace_symbol {
    const char *name;
    fgv_proc plain;
    fgv_proc traced;
};
extern const struct fgv_trace_symbol fgv_trace_symbols[]; /* generated/exports.c */
extern const uint32_t fgv_trace_nr_symbols;

enum fgv_trace_kind {
    FGV_TRACE_CALL = 1,
    FGV_TRACE_SLOT = 2,          /* of an export table */
    FGV_TRACE_MISSING_NAME = 3,  /* cuGetProcAddress did not find it */
    FGV_TRACE_MISSING_TABLE = 4, /* cuGetExportTable refused it */
};

enum fgv_trace_class { FGV_TRACE_LOCAL, FGV_TRACE_SENT, FGV_TRACE_WAITED, FGV_TRACE_CLASS_NR };

/* What one call adds. */
struct fgv_trace_sums {
    enum fgv_trace_class class;
    uint64_t nr_round_trips;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t time_ns;
    bool is_error;
};

#define FGV_TRACE_NO_SYMBOL UINT32_MAX

/* Opens PREFIX.PID. False with a line on stderr when that cannot be. */
bool fgv_trace_counts_open(const char *prefix);
/* symbol: a place in fgv_trace_symbols, or FGV_TRACE_NO_SYMBOL and kind and name count. Without a file: nothing. */
void fgv_trace_count(uint32_t symbol, enum fgv_trace_kind kind, const char *name, const struct fgv_trace_sums *sums);

#endif
