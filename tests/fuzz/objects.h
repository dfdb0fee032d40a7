/* The objects of the stand-in: each is one allocation, so that a sanitizer tells who uses a dead one, who made it and
 * who ended it. */
#ifndef TESTS_FUZZ_OBJECTS_H
#define TESTS_FUZZ_OBJECTS_H

#include "stand_in.h"

#define STAND_MEMORY  100u /* kinds beside the table's */
#define STAND_RESERVE 101u
#define STAND_TEXTURE 102u
#define STAND_HOST    103u
#define STAND_PINNED  104u

struct stand_object {
    uint32_t magic;
    uint32_t kind;
    struct stand_object *parent, *first, *next, **link;
    struct stand_object *captured; /* of a stream the graph that it makes, and back */
    uint64_t value;                /* of memory: its address; of a node: its type */
    uint64_t bytes;
    void *data;     /* of a node: its CUgraphNodeParams; of a host function: what it is. It goes with the object */
    CUresult fault; /* of a context */
    uint32_t nr_retained;
    bool is_excused;
    const char *maker;
};

#define STAND_FIRST_ADDRESS UINT64_C(0x700000000000)
/* Honoured as a wish, so that the first memory has its address with a span and without. */
#define STAND_SPAN_ADDRESS STAND_FIRST_ADDRESS
#define STAND_SPAN_BYTES   (UINT64_C(1) << 34)

extern struct stand_object stand_root;
extern struct stand_object *stand_current; /* context */
extern uint64_t stand_last_address, stand_last_texture;

struct stand_object *stand_new(uint32_t kind, struct stand_object *parent);
struct stand_object *stand_find(uint32_t kind, uint64_t value);

#endif
