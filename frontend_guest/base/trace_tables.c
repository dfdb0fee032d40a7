/*
 * Export tables whose slots note that they are called: see trace.h. A traced table is a copy with the address of one of
 * our trampolines in each slot that has a function. What a slot takes is not always known, so a trampoline passes on
 * the six registers that the x86-64 calling convention uses for whole numbers and addresses; no slot takes more.
 *
 * Wrong when: a slot takes a floating-point number, a seventh argument, or returns a struct. None that we serve does.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/trace.h"

#define MAX_TABLES    16u
#define MAX_SLOTS     320u /* of all tables together: a trampoline has code of its own, by which it is known */
#define STORAGE_SLOTS 4u   /* of the one table that does not begin with its size */

typedef uint64_t (*slot_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

union slot {
    size_t bytes;
    slot_function function;
};

static const unsigned char storage_uuid[16] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                               0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *table;
    const union slot *copy;
} made[MAX_TABLES];
static uint32_t nr_made;

static struct {
    slot_function function;
    char name[16]; /* the first digits of the table's UUID, and the slot */
} traced_slots[MAX_SLOTS];
static uint32_t nr_traced_slots;

static uint64_t slot_call(uint32_t number, const uint64_t arguments[6])
{
    const uint64_t *a = arguments;
    struct fgv_traced traced;
    fgv_trace_begin(&traced);
    uint64_t result = traced_slots[number].function(a[0], a[1], a[2], a[3], a[4], a[5]);
    fgv_trace_end_named(&traced, traced_slots[number].name, (CUresult)(uint32_t)result);
    return result;
}

/* clang-format off */
#define EACH_OF_8(X, base) X(base##0) X(base##1) X(base##2) X(base##3) X(base##4) X(base##5) X(base##6) X(base##7)
#define EACH_OF_40(X, base) EACH_OF_8(X, base##0) EACH_OF_8(X, base##1) EACH_OF_8(X, base##2) EACH_OF_8(X, base##3) \
    EACH_OF_8(X, base##4)
/* Octal, so that the digits can be put together: 40 each at 0, 0100, 0200 to 0700. */
#define EACH_SLOT(X) EACH_OF_40(X, 00) EACH_OF_40(X, 01) EACH_OF_40(X, 02) EACH_OF_40(X, 03) EACH_OF_40(X, 04) \
    EACH_OF_40(X, 05) EACH_OF_40(X, 06) EACH_OF_40(X, 07)
/* clang-format on */
#define NUMBER(octal) ((octal) / 64 * 40 + (octal) % 64)

#define TRAMPOLINE(octal)                                                                                              \
    static uint64_t trampoline_##octal(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)         \
    {                                                                                                                  \
        return slot_call(NUMBER(octal), (const uint64_t[6]){a, b, c, d, e, f});                                        \
    }
EACH_SLOT(TRAMPOLINE)

#define TRAMPOLINE_ROW(octal) [NUMBER(octal)] = trampoline_##octal,
static const slot_function trampolines[MAX_SLOTS] = {EACH_SLOT(TRAMPOLINE_ROW)};

static void slot_trace(union slot *slot, const unsigned char uuid[16], size_t number)
{
    if (!slot->function || nr_traced_slots == MAX_SLOTS) {
        return;
    }
    snprintf(traced_slots[nr_traced_slots].name, sizeof(traced_slots[0].name), "%02x%02x%02x%02x[%u]", uuid[0], uuid[1],
             uuid[2], uuid[3], (unsigned)number % 1000u);
    traced_slots[nr_traced_slots].function = slot->function;
    slot->function = trampolines[nr_traced_slots++];
}

static const union slot *copy_make(const union slot *table, const unsigned char uuid[16])
{
    bool has_size = memcmp(uuid, storage_uuid, sizeof(storage_uuid)) != 0;
    size_t nr_slots = has_size ? table[0].bytes / sizeof(*table) : STORAGE_SLOTS;
    union slot *copy = malloc(nr_slots * sizeof(*copy));
    if (!copy) {
        return table;
    }
    memcpy(copy, table, nr_slots * sizeof(*copy));
    for (size_t i = has_size ? 1 : 0; i < nr_slots; i++) {
        slot_trace(&copy[i], uuid, i);
    }
    return copy;
}

const void *fgv_trace_table(const void *table, const unsigned char uuid[16])
{
    if (!fgv_tracing) {
        return table;
    }
    pthread_mutex_lock(&making);
    const void *found = NULL;
    for (uint32_t i = 0; i < nr_made && !found; i++) {
        found = made[i].table == table ? made[i].copy : NULL;
    }
    if (!found && nr_made < MAX_TABLES) {
        made[nr_made].table = table;
        made[nr_made].copy = copy_make(table, uuid);
        found = made[nr_made++].copy;
    }
    pthread_mutex_unlock(&making);
    return found ? found : table;
}
