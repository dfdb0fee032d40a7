#include "objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x57a4d14u

struct stand_object stand_root = {.magic = MAGIC};
struct stand_object *stand_current;
uint64_t stand_last_address = STAND_FIRST_ADDRESS;
uint64_t stand_last_texture;

static struct stand_dice dice;
static uint64_t first_seed;
static uint8_t *shared;
static size_t shared_bytes;
static uint64_t nr_calls;
static bool is_calm;
static const char *last_name;

static uint64_t roll(void)
{
    dice.seed ^= dice.seed << 13;
    dice.seed ^= dice.seed >> 7;
    dice.seed ^= dice.seed << 17;
    return dice.seed;
}

void stand_begin(const struct stand_dice *given, uint8_t *bytes, size_t nr_bytes)
{
    dice = *given;
    dice.seed |= 1;
    shared = bytes;
    shared_bytes = nr_bytes;
    nr_calls = 0;
    is_calm = false;
    stand_current = NULL;
    stand_last_address = STAND_FIRST_ADDRESS;
    stand_last_texture = 0;
}

void stand_dice_cast(const struct stand_dice *given, uint8_t *bytes, size_t nr_bytes)
{
    dice = *given;
    first_seed = given->seed;
    dice.seed |= 1;
    shared = bytes;
    shared_bytes = nr_bytes;
    nr_calls = 0;
}

void stand_calm(void)
{
    is_calm = true;
}

uint64_t stand_nr_calls(void)
{
    return nr_calls;
}

void stand_stop(const char *why, const char *what)
{
    fprintf(stderr, "stand-in: %s: %s (in %s)\n", why, what, last_name ? last_name : "no call");
    abort();
}

uint64_t stand_number(unsigned int index)
{
    return ((first_seed + index) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 9;
}

bool stand_is_busy(void)
{
    return !is_calm && roll() % 256 < dice.busy_of_256;
}

static CUresult some_error(void)
{
    if (dice.tells) {
        fprintf(stderr, "failed %s\n", last_name);
        return STAND_ERROR;
    }
    static const CUresult errors[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED,
                                      CUDA_ERROR_INVALID_HANDLE};
    if (dice.can_fault && stand_current && roll() % 32 == 0) {
        stand_current->fault = CUDA_ERROR_LAUNCH_FAILED;
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    return errors[roll() % (sizeof(errors) / sizeof(errors[0]))];
}

/* The guest writes while the driver works. */
static void scribble(void)
{
    if (shared_bytes != 0 && roll() % 8 == 0) {
        shared[roll() % shared_bytes] = (uint8_t)roll();
    }
}

CUresult stand_call(unsigned int index, const char *name)
{
    (void)index;
    last_name = name;
    const uint64_t number = nr_calls++;
    if (is_calm) {
        return CUDA_SUCCESS;
    }
    scribble();
    if ((int64_t)number == dice.fail_at || roll() % 256 < dice.fails_of_256) {
        return some_error();
    }
    return stand_current ? stand_current->fault : CUDA_SUCCESS;
}

void stand_need(enum fgv_handle_kind kind, const void *handle)
{
    if (kind == FGV_HANDLE_STREAM && (uintptr_t)handle <= 2) {
        return;
    }
    if (!handle) {
        return; /* the driver says that it is none */
    }
    const struct stand_object *object = handle;
    if (object->magic != MAGIC || object->kind != (uint32_t)kind) {
        stand_stop("a handle of another kind", object->maker);
    }
}

struct stand_object *stand_new(uint32_t kind, struct stand_object *parent)
{
    struct stand_object *object = calloc(1, sizeof(*object));
    parent = parent ? parent : &stand_root;
    *object = (struct stand_object){
        .magic = MAGIC, .kind = kind, .parent = parent, .next = parent->first, .maker = last_name};
    object->link = &parent->first;
    if (parent->first) {
        parent->first->link = &object->next;
    }
    parent->first = object;
    return object;
}

static bool is_of_context(enum fgv_handle_kind kind)
{
    return kind == FGV_HANDLE_STREAM || kind == FGV_HANDLE_EVENT || kind == FGV_HANDLE_MODULE ||
           kind == FGV_HANDLE_ARRAY || kind == FGV_HANDLE_MIPMAPPED_ARRAY;
}

void *stand_make(enum fgv_handle_kind kind, void *parent)
{
    return stand_new((uint32_t)kind, parent ? parent : is_of_context(kind) ? stand_current : NULL);
}

void stand_end(void *handle)
{
    struct stand_object *object = handle;
    if (!object) {
        return;
    }
    if (object->captured) { /* a stream and the graph that it makes */
        struct stand_object *other = object->captured;
        other->captured = object->captured = NULL;
        if (object->kind == FGV_HANDLE_STREAM) {
            stand_end(other);
        }
    }
    while (object->first) {
        stand_end(object->first);
    }
    *object->link = object->next;
    if (object->next) {
        object->next->link = object->link;
    }
    if (object == stand_current) {
        stand_current = NULL;
    }
    free(object->data);
    free(object);
}

void stand_excuse(void *handle)
{
    if (handle && (uintptr_t)handle > 2) {
        ((struct stand_object *)handle)->is_excused = true;
    }
}

static struct stand_object *find_below(struct stand_object *parent, uint32_t kind, uint64_t value)
{
    for (struct stand_object *object = parent->first; object; object = object->next) {
        struct stand_object *found =
            object->kind == kind && object->value == value ? object : find_below(object, kind, value);
        if (found) {
            return found;
        }
    }
    return NULL;
}

struct stand_object *stand_find(uint32_t kind, uint64_t value)
{
    return find_below(&stand_root, kind, value);
}

static void is_lost_below(const struct stand_object *parent, stand_is_known is_known, void *data)
{
    for (const struct stand_object *object = parent->first; object; object = object->next) {
        if (object->is_excused) {
            continue;
        }
        if (!is_known(data, object->kind, object)) {
            static char text[128];
            snprintf(text, sizeof(text), "kind %u, made by %s", object->kind, object->maker);
            stand_stop("nobody knows it any more", text);
        }
        is_lost_below(object, is_known, data);
    }
}

void stand_look(stand_is_known is_known, void *data)
{
    last_name = NULL;
    is_lost_below(&stand_root, is_known, data);
}

void stand_finish(void)
{
    for (struct stand_object *object = stand_root.first; object; object = object->next) {
        if (!object->is_excused && object->kind == FGV_HANDLE_CONTEXT) {
            last_name = NULL;
            stand_stop("left behind", object->maker);
        }
    }
    while (stand_root.first) {
        stand_end(stand_root.first);
    }
}
