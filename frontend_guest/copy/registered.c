/*
 * Copies from and to memory of the program's own that it registered. The call of such a copy returns at once, and what
 * the memory holds when the stream comes to the copy counts. Here it goes through the arena, as copies of ordinary
 * memory do (copy.c), with two exceptions:
 *
 *   the device has it     since a device pointer was asked for (memory/registered.c): it is the heap's, and copied so.
 *   a host function       stands before the copy in its stream. It may write what is copied, or wait for what the
 *                         program does next. A buffer in the heap takes the place of the memory, and a host function
 *                         fills it before the copy or drains it behind.
 *
 * Buffers are powers of two, and stay for the next such copy: to free one could take until the program goes on.
 *
 * Wrong when: something else keeps the stream waiting for the program: a wait for a value, a kernel, a stream of
 * another order. The call of a copy from the device waits then, and so does one to it of more than the arena holds.
 */
#include "copy/registered.h"

#include <pthread.h>
#include <stdlib.h>

#include "context/host_function.h"
#include "copy/box.h"
#include "copy/staging.h"
#include "cuda_api/prototypes.h"
#include "memory/memory.h"
#include "region/client.h"

struct buffer {
    struct buffer *next;
    struct fgv_range range;
    struct fgv_box_side side; /* of the program's memory */
    struct fgv_copy_size size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *idle;

/* The smallest idle one with so much room, taken out; NULL: there is none. Those that went with their context are
 * forgotten. */
static struct buffer *idle_take(uint64_t bytes)
{
    struct buffer **best = NULL;
    struct fgv_range now;
    pthread_mutex_lock(&lock);
    for (struct buffer **link = &idle; *link;) {
        struct buffer *buffer = *link;
        if (!fgv_memory_find(buffer->range.address, &now) || now.id != buffer->range.id) {
            *link = buffer->next;
            free(buffer);
            continue;
        }
        if (buffer->range.bytes >= bytes && (!best || buffer->range.bytes < (*best)->range.bytes)) {
            best = link;
        }
        link = &buffer->next;
    }
    struct buffer *taken = best ? *best : NULL;
    if (taken) {
        *best = taken->next;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static CUresult buffer_take(uint64_t bytes, struct buffer **buffer)
{
    *buffer = idle_take(bytes);
    if (*buffer) {
        return CUDA_SUCCESS;
    }
    uint64_t room_bytes = FGV_PAGE_BYTES;
    while (room_bytes < bytes && room_bytes * 2 > room_bytes) {
        room_bytes *= 2;
    }
    *buffer = calloc(1, sizeof(**buffer));
    const CUresult result = *buffer ? fgv_memory_take_own(room_bytes, &(*buffer)->range) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(*buffer);
    }
    return result;
}

static void buffer_give(void *data)
{
    struct buffer *buffer = data;
    pthread_mutex_lock(&lock);
    buffer->next = idle;
    idle = buffer;
    pthread_mutex_unlock(&lock);
}

static void fill(void *data)
{
    const struct buffer *buffer = data;
    fgv_staging_rows(&buffer->side, &buffer->size, (uint8_t *)(uintptr_t)buffer->range.address, true);
}

static void drain(void *data)
{
    const struct buffer *buffer = data;
    fgv_staging_rows(&buffer->side, &buffer->size, (uint8_t *)(uintptr_t)buffer->range.address, false);
    buffer_give(data);
}

void fgv_registered_reach(struct fgv_side *side, uint64_t bytes)
{
    struct fgv_range range;
    if (side->kind == FGV_MEMORY_REGISTERED && fgv_memory_find(side->address, &range) && range.owner != 0 &&
        bytes <= range.bytes - (side->address - range.address)) {
        *side = (struct fgv_side){.address = range.owner + (side->address - range.address), .kind = FGV_MEMORY_PINNED};
    }
}

void fgv_registered_reach_box(struct fgv_box_side *side, const struct fgv_box *box)
{
    const uint64_t last_row = (box->depth - 1) * side->plane_rows + box->height - 1;
    if (!side->is_array) {
        fgv_registered_reach(&side->memory, last_row * side->pitch_bytes + box->width_bytes);
    }
}

static bool is_registered(const struct fgv_box_side *side)
{
    return !side->is_array && side->memory.kind == FGV_MEMORY_REGISTERED;
}

static bool is_on_device(const struct fgv_box_side *side)
{
    return side->is_array || fgv_memory_is_device(side->memory.kind);
}

static CUresult copy_behind(struct fgv_box *box, struct buffer *buffer, CUstream stream, uint64_t wire)
{
    const bool fills = is_registered(&box->from);
    struct fgv_box_side *side = fills ? &box->from : &box->to;
    buffer->side = *side;
    buffer->size = (struct fgv_copy_size){.width_bytes = box->width_bytes, .height = box->height, .depth = box->depth};
    *side = (struct fgv_box_side){.memory = {.address = buffer->range.address, .kind = FGV_MEMORY_PINNED},
                                  .pitch_bytes = box->width_bytes,
                                  .plane_rows = box->height};
    CUresult result = fills ? cuLaunchHostFunc(stream, fill, buffer) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        buffer_give(buffer);
        return result;
    }
    result = fgv_box_post(box, wire);
    const bool drains = !fills && result == CUDA_SUCCESS;
    const CUresult behind = cuLaunchHostFunc(stream, drains ? drain : buffer_give, buffer);
    return result == CUDA_SUCCESS ? behind : result;
}

bool fgv_registered_copy_behind(struct fgv_box *box, CUstream stream, uint64_t wire, CUresult *result)
{
    const struct fgv_box_side *other = is_registered(&box->from) ? &box->to : &box->from;
    struct buffer *buffer;
    if (!(is_registered(&box->to) || is_registered(&box->from)) || !is_on_device(other) ||
        !fgv_host_function_is_ahead(wire)) {
        return false;
    }
    if (buffer_take(box->width_bytes * box->height * box->depth, &buffer) != CUDA_SUCCESS) {
        cuStreamSynchronize(stream); /* an error comes again with the copy */
        return false;
    }
    *result = copy_behind(box, buffer, stream, wire);
    return true;
}
