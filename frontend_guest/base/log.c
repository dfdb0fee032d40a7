/* Lines on stderr: see log.h. Each line is one write, so that lines of several processes do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_UNREAD = 0, WORDS_READ = 1, WORDS_OFF = 2, WORDS_CALLS = 4, WORDS_NAMES = 8 };

bool fgv_counting;
_Thread_local uint64_t *fgv_counting_call __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t counts[FGV_COUNT_NR];
static _Atomic unsigned log_words;
static _Atomic unsigned causes_said;

static unsigned words_read(void)
{
    unsigned words = atomic_load_explicit(&log_words, memory_order_relaxed);
    if (words != WORDS_UNREAD) {
        return words;
    }
    words = WORDS_READ;
    const char *text = getenv("FAIRGV_LOG");
    if (text) {
        if (strstr(text, "off")) {
            words |= WORDS_OFF;
        } else if (strcmp(text, "all") == 0 || strstr(text, ",all") || strstr(text, "all,")) {
            words |= WORDS_CALLS | WORDS_NAMES;
        } else if (strstr(text, "calls")) {
            words |= WORDS_CALLS;
        }
    }
    atomic_store_explicit(&log_words, words, memory_order_relaxed);
    return words;
}

static void line_write(const char *format, va_list arguments)
{
    char line[512] = "fairgv: ";
    size_t length = strlen(line);
    int more = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    if (more < 0) {
        return;
    }
    length = strlen(line);
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* there is nobody else to tell */
}

static void line_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void line_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line_write(format, arguments);
    va_end(arguments);
}

/* Tracing may want it, too, and has said so by then or says so later. */
__attribute__((constructor)) static void counting_decide(void)
{
    fgv_counting |= (words_read() & WORDS_CALLS) != 0;
}

void fgv_log_cause(enum fgv_cause cause, const char *format, ...)
{
    if ((words_read() & WORDS_OFF) != 0) {
        return;
    }
    if ((atomic_fetch_or_explicit(&causes_said, 1u << cause, memory_order_relaxed) & (1u << cause)) != 0) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    line_write(format, arguments);
    va_end(arguments);
}

void fgv_log_name(const char *what, const char *name)
{
    if ((words_read() & WORDS_NAMES) != 0) {
        line_print("%s: %.200s", what, name);
    }
}

/* Relaxed: they are read once, at the end. */
void fgv_count_add(enum fgv_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&counts[counter], amount, memory_order_relaxed);
    if (fgv_counting_call) {
        fgv_counting_call[counter] += amount;
    }
}

static unsigned long long count_read(enum fgv_counter counter)
{
    return (unsigned long long)atomic_load_explicit(&counts[counter], memory_order_relaxed);
}

void fgv_log_counts(void)
{
    if ((words_read() & WORDS_CALLS) == 0) {
        return;
    }
    line_print("%llu calls, %llu round trips, %llu bytes of requests, %llu bytes to the device, %llu bytes from it, "
               "%llu unknown names",
               count_read(FGV_COUNT_CALLS), count_read(FGV_COUNT_ROUND_TRIPS), count_read(FGV_COUNT_REQUEST_BYTES),
               count_read(FGV_COUNT_TO_DEVICE_BYTES), count_read(FGV_COUNT_FROM_DEVICE_BYTES),
               count_read(FGV_COUNT_REFUSED_LOOKUPS));
}
