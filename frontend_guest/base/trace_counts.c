/* Sums by call in a mapped file: see trace_counts.h. Everything in it is atomic and nothing is locked. */
#include "base/trace_counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

#define MAGIC      "FairGV counts 1\n"
#define NR_ENTRIES 4096u
#define NAME_BYTES 56u

enum entry_state { ENTRY_FREE = 0, ENTRY_NAMED = 1, ENTRY_READY = 2 };

struct entry {
    _Atomic uint32_t state;
    uint32_t kind;
    char name[NAME_BYTES];
    _Atomic uint64_t nr_by_class[FGV_TRACE_CLASS_NR];
    _Atomic uint64_t nr_round_trips;
    _Atomic uint64_t sent_bytes;
    _Atomic uint64_t received_bytes;
    _Atomic uint64_t time_ns;
    _Atomic uint64_t nr_errors;
};
_Static_assert(sizeof(struct entry) == 128, "backend_host/trace.py reads this");

struct counts {
    char magic[16];
    uint32_t pid;
    uint32_t nr_entries;
    char program[104];
    struct entry entries[NR_ENTRIES];
};
_Static_assert(offsetof(struct counts, entries) == 128, "backend_host/trace.py reads this");

static struct counts *counts;

static void program_name(char *name, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", name, bytes - 1);
    name[length > 0 ? length : 0] = '\0';
}

static void entry_name(struct entry *entry, enum fgv_trace_kind kind, const char *name)
{
    entry->kind = (uint32_t)kind;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    atomic_store_explicit(&entry->state, ENTRY_READY, memory_order_release);
}

bool fgv_trace_counts_open(const char *prefix)
{
    char path[512];
    snprintf(path, sizeof(path), "%s.%d", prefix, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(struct counts)) == 0) {
        mapped = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (mapped == MAP_FAILED) {
        fgv_log_cause(FGV_CAUSE_UNTRACED, "cannot write %s: %s", path, strerror(errno));
    }
    if (file >= 0) {
        close(file);
    }
    if (mapped == MAP_FAILED) {
        return false;
    }
    counts = mapped;
    memcpy(counts->magic, MAGIC, sizeof(counts->magic));
    counts->pid = (uint32_t)getpid();
    counts->nr_entries = NR_ENTRIES;
    program_name(counts->program, sizeof(counts->program));
    for (uint32_t i = 0; i < fgv_trace_nr_symbols && i < NR_ENTRIES; i++) {
        entry_name(&counts->entries[i], FGV_TRACE_CALL, fgv_trace_symbols[i].name);
    }
    return true;
}

/* The entry of this name, made if it is new. NULL when the file is full. Two threads may make one each: sums add up. */
static struct entry *entry_find(enum fgv_trace_kind kind, const char *name)
{
    for (uint32_t i = fgv_trace_nr_symbols; i < NR_ENTRIES; i++) {
        struct entry *entry = &counts->entries[i];
        uint32_t state = ENTRY_FREE;
        if (atomic_compare_exchange_strong_explicit(&entry->state, &state, ENTRY_NAMED, memory_order_acquire,
                                                    memory_order_acquire)) {
            entry_name(entry, kind, name);
            return entry;
        }
        if (state == ENTRY_READY && entry->kind == (uint32_t)kind && strncmp(entry->name, name, NAME_BYTES - 1) == 0) {
            return entry;
        }
    }
    return NULL;
}

static void add(_Atomic uint64_t *sum, uint64_t amount)
{
    if (amount != 0) {
        atomic_fetch_add_explicit(sum, amount, memory_order_relaxed);
    }
}

void fgv_trace_count(uint32_t symbol, enum fgv_trace_kind kind, const char *name, const struct fgv_trace_sums *sums)
{
    if (!counts) {
        return;
    }
    struct entry *entry = symbol < NR_ENTRIES ? &counts->entries[symbol] : entry_find(kind, name);
    if (!entry) {
        return;
    }
    add(&entry->nr_by_class[sums->class], 1);
    add(&entry->nr_round_trips, sums->nr_round_trips);
    add(&entry->sent_bytes, sums->sent_bytes);
    add(&entry->received_bytes, sums->received_bytes);
    add(&entry->time_ns, sums->time_ns);
    add(&entry->nr_errors, sums->is_error);
}
