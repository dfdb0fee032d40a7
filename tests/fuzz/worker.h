/* Of the fuzzer of the worker: what a request looks like, for the mutator. */
#ifndef TESTS_FUZZ_WORKER_H
#define TESTS_FUZZ_WORKER_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_api/wire.h"

#define FUZZ_NUMBER  0xffu /* no handle */
#define FUZZ_PAYLOAD 0xfdu /* bytes of the payload */
#define FUZZ_ANY     0xfeu /* of some kind */

struct fuzz_field {
    uint16_t offset;
    uint8_t bytes;
    uint16_t count;
    uint8_t kind;
};

struct fuzz_call {
    uint16_t number, request_bytes;
    uint16_t first_field, end_field;
    uint8_t has_payload;
    const char *name;
};

/* An input: this, and then records, each behind a fuzz_head. */
struct fuzz_start {
    uint32_t seed;
    uint8_t fails_of_256, busy_of_256;
    uint8_t flags;
    uint8_t reserved;
    int32_t fail_at; /* this driver call fails, negative: none does for that */
};

#define FUZZ_PREEMPTIVE 1u
#define FUZZ_FAULTS     2u
#define FUZZ_BOXES      4u /* large launches go in parts */
#define FUZZ_PERSISTENT 8u
#define FUZZ_SPAN       16u /* linear memory is mapped in a span */
#define FUZZ_OWN_PAGE   32u /* the worker maps its page itself, and may leave it for another */
#define FUZZ_BELLS      64u /* the guest has bells */

#define FUZZ_MOVE    200u /* in place of a response: all objects are saved, and made again beside themselves */
#define FUZZ_RESTORE 201u /* the bytes are what was saved */
#define FUZZ_TAKE    202u /* of the first record: what is otherwise as the worker takes its client */
#define FUZZ_TOLD    203u /* the daemon says something */

/* What a hostile guest wrote: so many bytes of the region's header, by their offset, or of the client's entry, from
 * there on. Or what the daemon hands over, by its number. */
struct fuzz_patch {
    uint32_t offset, nr_bytes;
    uint64_t value;
};

#define FUZZ_OF_ENTRY      (1u << 23)
#define FUZZ_OF_ASSIGNMENT (1u << 24)

enum fuzz_assigned {
    FUZZ_CLIENT,
    FUZZ_VGPU,
    FUZZ_SLOT,
    FUZZ_DEVICE,
    FUZZ_REGION_BYTES,
    FUZZ_TABLE,
    FUZZ_NR_BELLS,
    FUZZ_REGION_FD
};

enum fuzz_word {
    FUZZ_ROOM,    /* capacity, allocatable bytes, target */
    FUZZ_SUSPEND, /* whether */
    FUZZ_QUOTA,   /* bytes */
    FUZZ_PAGE,    /* another page: vGPU, slot */
    FUZZ_TIME,    /* so many ns pass */
    FUZZ_MESSAGE, /* the bytes behind it, with so many files of so many bytes */
    FUZZ_NR_WORDS
};

struct fuzz_told {
    uint64_t word;
    uint64_t values[3];
};

/* Where the region is, so that an input can name memory of it. */
#define FUZZ_REGION UINT64_C(0x200000000000)
/* Two pages of its heap that are no chunk's: held to where they are as the fuzzer begins. */
#define FUZZ_PINNED (FUZZ_REGION + 0xe3000)

/* What the worker's clock goes on by at each look. */
#define FUZZ_TICK_NS 20000

struct fgw_worker;

/* So much time passes. */
void fuzz_pass(uint64_t ns);
/* The worker's loop goes round once. */
void fuzz_round(struct fgw_worker *worker);

struct fuzz_head {
    uint16_t bytes;
    uint8_t response; /* an odd one: nobody waits */
    uint8_t rounds;   /* of the worker's loop, before the next record */
};

#endif
