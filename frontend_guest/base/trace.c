/* Calls of the program as they happen: see trace.h. A line is one write to a file opened for appending, so that lines
 * of threads and of processes do not mix. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/trace_counts.h"
#include "cuda_api/prototypes.h"

#define NAME_MAX_BYTES 256 /* of a name that a program asks for, or of a kernel's */

bool fgv_tracing;
static int trace_file = -1;

__attribute__((constructor(101))) static void start(void)
{
    const char *path = getenv("FAIRGV_TRACE");
    if (path && path[0] != '\0') {
        trace_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (trace_file < 0) {
            fgv_log_cause(FGV_CAUSE_UNTRACED, "cannot write FAIRGV_TRACE %s: %s", path, strerror(errno));
        }
    }
    const char *prefix = getenv("FAIRGV_COUNT");
    bool is_counting = prefix && prefix[0] != '\0' && fgv_trace_counts_open(prefix);
    fgv_tracing = trace_file >= 0 || is_counting;
    fgv_counting |= fgv_tracing;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* One line: when and who, then what. */
static void line_write(const char *what)
{
    char line[640];
    int length = snprintf(line, sizeof(line), "{\"at_ns\": %llu, \"pid\": %d, \"thread\": %ld, %s}\n",
                          (unsigned long long)now_ns(), (int)getpid(), (long)syscall(SYS_gettid), what);
    if (length <= 0 || (size_t)length >= sizeof(line)) {
        return;
    }
    const ssize_t written = write(trace_file, line, (size_t)length);
    if (written != length) { /* a full disk stops no program */
        fgv_log_cause(FGV_CAUSE_UNTRACED, "the trace is not whole: %s", strerror(written < 0 ? errno : ENOSPC));
    }
}

/* A name as the program gave it, fit to stand between quotes. */
static void name_clean(char clean[NAME_MAX_BYTES], const char *name)
{
    size_t i = 0;
    for (; name[i] != '\0' && i < NAME_MAX_BYTES - 1; i++) {
        clean[i] = name[i] < ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\' ? '?' : name[i];
    }
    clean[i] = '\0';
}

void fgv_trace_begin(struct fgv_traced *traced)
{
    *traced = (struct fgv_traced){.outer = fgv_counting_call, .begun_ns = now_ns()};
    fgv_counting_call = traced->sums;
}

static struct fgv_trace_sums sums_of(const struct fgv_traced *traced, CUresult result)
{
    const uint64_t *sums = traced->sums;
    return (struct fgv_trace_sums){
        .class = sums[FGV_COUNT_ROUND_TRIPS] != 0 ? FGV_TRACE_WAITED
                 : sums[FGV_COUNT_CALLS] != 0     ? FGV_TRACE_SENT
                                                  : FGV_TRACE_LOCAL,
        .nr_round_trips = sums[FGV_COUNT_ROUND_TRIPS],
        .sent_bytes = sums[FGV_COUNT_REQUEST_BYTES] + sums[FGV_COUNT_TO_DEVICE_BYTES],
        .received_bytes = sums[FGV_COUNT_REPLY_BYTES] + sums[FGV_COUNT_FROM_DEVICE_BYTES],
        .time_ns = now_ns() - traced->begun_ns,
        .is_error = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY,
    };
}

static void call_write(const struct fgv_trace_sums *sums, uint64_t nr_records, const char *name, CUresult result)
{
    static const char *const classes[FGV_TRACE_CLASS_NR] = {"local", "sent", "waited"};
    const char *error = NULL;
    char what[400];
    cuGetErrorName(result, &error);
    snprintf(what, sizeof(what),
             "\"call\": \"%s\", \"class\": \"%s\", \"records\": %llu, \"round_trips\": %llu, \"sent_bytes\": %llu, "
             "\"received_bytes\": %llu, \"time_ns\": %llu, \"result\": \"%s\"",
             name, classes[sums->class], (unsigned long long)nr_records, (unsigned long long)sums->nr_round_trips,
             (unsigned long long)sums->sent_bytes, (unsigned long long)sums->received_bytes,
             (unsigned long long)sums->time_ns, error);
    line_write(what);
}

static void end(struct fgv_traced *traced, uint32_t symbol, const char *name, CUresult result)
{
    fgv_counting_call = traced->outer;
    const struct fgv_trace_sums sums = sums_of(traced, result);
    fgv_trace_count(symbol, FGV_TRACE_SLOT, name, &sums);
    if (trace_file >= 0) {
        call_write(&sums, traced->sums[FGV_COUNT_CALLS], name, result);
    }
}

CUresult fgv_trace_end(struct fgv_traced *traced, uint32_t symbol, CUresult result)
{
    end(traced, symbol, fgv_trace_symbols[symbol].name, result);
    return result;
}

void fgv_trace_end_named(struct fgv_traced *traced, const char *name, CUresult result)
{
    const char *error;
    /* Some slots return nothing, and leave something else where a result would be. */
    if (cuGetErrorName(result, &error) != CUDA_SUCCESS) {
        result = CUDA_SUCCESS;
    }
    end(traced, FGV_TRACE_NO_SYMBOL, name, result);
}

fgv_proc fgv_trace_proc(fgv_proc plain)
{
    if (!fgv_tracing) {
        return plain;
    }
    for (uint32_t i = 0; i < fgv_trace_nr_symbols; i++) {
        if (fgv_trace_symbols[i].plain == plain) {
            return fgv_trace_symbols[i].traced;
        }
    }
    return plain;
}

void fgv_trace_kernel(const char *name, uint64_t stream, uint64_t begun_ns, uint64_t took_ns)
{
    char clean[NAME_MAX_BYTES], what[NAME_MAX_BYTES + 160];
    if (trace_file < 0) {
        return;
    }
    name_clean(clean, name);
    snprintf(what, sizeof(what), "\"kernel\": \"%s\", \"stream\": %llu, \"begun_ns\": %llu, \"time_ns\": %llu", clean,
             (unsigned long long)stream, (unsigned long long)begun_ns, (unsigned long long)took_ns);
    line_write(what);
}

void fgv_trace_missing(const char *name, int version, uint64_t flags)
{
    if (!fgv_tracing) {
        return;
    }
    char clean[NAME_MAX_BYTES];
    char what[NAME_MAX_BYTES + 80];
    name_clean(clean, name);
    fgv_trace_count(FGV_TRACE_NO_SYMBOL, FGV_TRACE_MISSING_NAME, clean, &(struct fgv_trace_sums){.is_error = true});
    if (trace_file < 0) {
        return;
    }
    snprintf(what, sizeof(what), "\"missing\": \"%s\", \"version\": %d, \"flags\": %llu", clean, version,
             (unsigned long long)flags);
    line_write(what);
}

void fgv_trace_table_asked(const CUuuid *id, CUresult result)
{
    if (!fgv_tracing) {
        return;
    }
    char digits[2 * sizeof(id->bytes) + 1];
    char what[120];
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        snprintf(digits + 2 * i, 3, "%02x", (unsigned char)id->bytes[i]);
    }
    if (result != CUDA_SUCCESS) {
        fgv_trace_count(FGV_TRACE_NO_SYMBOL, FGV_TRACE_MISSING_TABLE, digits,
                        &(struct fgv_trace_sums){.is_error = true});
    }
    if (trace_file < 0) {
        return;
    }
    snprintf(what, sizeof(what), "\"table\": \"%s\", \"found\": %s", digits, result == CUDA_SUCCESS ? "true" : "false");
    line_write(what);
}
