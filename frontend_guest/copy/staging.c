/* Copies of graphs from and to ordinary memory: see staging.h. */
#include "copy/staging.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/bulk.h"
#include "context/host_function.h"
#include "memory/memory.h"

/* One way to fill a buffer, or to drain it. */
struct way {
    struct way *next;
    struct buffer *buffer;
    bool fills;
    struct fgv_box_side side; /* of the program's memory */
    struct fgv_copy_size size;
    struct fgv_copy_side said;
    uint64_t number;     /* of the host function */
    uint32_t nr_numbers; /* it has had that are not forgotten: 1, but for a moment when it is wanted again at its end */
};

struct buffer {
    struct buffer *next;
    struct fgv_range range;
    struct way *ways; /* goes with the last */
    bool is_shared;   /* by copies that do not know of each other, so that it stays as it is */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers;
static _Atomic bool is_used;

bool fgv_staging_is_used(void)
{
    return atomic_load_explicit(&is_used, memory_order_relaxed);
}

void fgv_staging_rows(const struct fgv_box_side *side, const struct fgv_copy_size *size, uint8_t *in_buffer, bool fills)
{
    uint64_t bytes = size->width_bytes, height = size->height, depth = size->depth;
    if (height == 1 || side->pitch_bytes == bytes) { /* rows without gaps are one row */
        const bool is_whole = depth == 1 || side->plane_rows == height;
        bytes *= is_whole ? height * depth : height;
        depth = is_whole ? 1 : depth;
        height = 1;
    }
    for (uint64_t z = 0; z < depth; z++) {
        for (uint64_t y = 0; y < height; y++, in_buffer += bytes) {
            uint8_t *row =
                (uint8_t *)(uintptr_t)(side->memory.address + (z * side->plane_rows + y) * side->pitch_bytes);
            fgv_bulk_copy(fills ? in_buffer : row, fills ? row : in_buffer, bytes);
        }
    }
}

static void run(void *data)
{
    const struct way *way = data;
    fgv_staging_rows(&way->side, &way->size, (uint8_t *)(uintptr_t)way->buffer->range.address, way->fills);
}

/* Takes the way out of its buffer; the buffer comes back when that was its last, out of the list. Under the lock. */
static struct buffer *way_remove(struct way *way)
{
    struct buffer *buffer = way->buffer;
    struct way **link = &buffer->ways;
    while (*link != way) {
        link = &(*link)->next;
    }
    *link = way->next;
    free(way);
    if (buffer->ways) {
        return NULL;
    }
    struct buffer **at = &buffers;
    while (*at != buffer) {
        at = &(*at)->next;
    }
    *at = buffer->next;
    return buffer;
}

static void buffer_end(struct buffer *buffer)
{
    if (buffer) {
        fgv_memory_give_own(&buffer->range);
        free(buffer);
    }
}

/* No graph keeps a number of the way any more. */
static void forgotten(void *data)
{
    struct way *way = data;
    pthread_mutex_lock(&lock);
    struct buffer *buffer = --way->nr_numbers == 0 ? way_remove(way) : NULL;
    pthread_mutex_unlock(&lock);
    buffer_end(buffer);
}

bool fgv_staging_is_needed(const struct fgv_box_side *side)
{
    return !side->is_array && !fgv_memory_is_device(side->memory.kind) && !fgv_memory_is_shared(side->memory.kind);
}

/* Under the lock. NULL: no buffer at this address has so much room, or what it has must stay. */
static struct buffer *buffer_find(uint64_t address, uint64_t bytes)
{
    struct buffer *buffer = buffers;
    while (buffer && (buffer->is_shared || buffer->range.address != address || buffer->range.bytes < bytes)) {
        buffer = buffer->next;
    }
    return buffer;
}

/* The buffer that is to be used again, or a new one. */
static CUresult buffer_get(uint64_t was, uint64_t bytes, struct buffer **found)
{
    pthread_mutex_lock(&lock);
    *found = was != 0 ? buffer_find(was, bytes) : NULL;
    pthread_mutex_unlock(&lock);
    if (*found) {
        return CUDA_SUCCESS;
    }
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    CUresult result = buffer ? fgv_memory_take_own(bytes, &buffer->range) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(buffer);
        return result;
    }
    pthread_mutex_lock(&lock);
    buffer->next = buffers;
    buffers = buffer;
    atomic_store_explicit(&is_used, true, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    *found = buffer;
    return CUDA_SUCCESS;
}

static bool is_said_alike(const struct fgv_copy_side *one, const struct fgv_copy_side *other)
{
    return one->type == other->type && one->host == other->host && one->device == other->device &&
           one->x_bytes == other->x_bytes && one->y == other->y && one->z == other->z &&
           one->pitch_bytes == other->pitch_bytes && one->height == other->height;
}

static bool is_same(const struct way *one, const struct way *other)
{
    return one->fills == other->fills && one->side.memory.address == other->side.memory.address &&
           one->side.pitch_bytes == other->side.pitch_bytes && one->side.plane_rows == other->side.plane_rows &&
           one->size.width_bytes == other->size.width_bytes && one->size.height == other->size.height &&
           one->size.depth == other->size.depth && is_said_alike(&one->said, &other->said);
}

/* Under the lock. A way that is the same, of a buffer that has no other: an executable graph can be updated by another
 * graph that copies the same, since addresses are the same. */
static struct way *way_find(const struct way *like)
{
    for (struct buffer *buffer = buffers; buffer; buffer = buffer->next) {
        if (buffer->ways && !buffer->ways->next && is_same(buffer->ways, like)) {
            buffer->is_shared = true;
            return buffer->ways;
        }
    }
    return NULL;
}

/* Under the lock. */
static CUresult way_keep(struct way *way, uint64_t *number)
{
    CUresult result = fgv_host_function_keep(run, way, forgotten, number);
    if (result == CUDA_SUCCESS && *number != way->number) {
        way->number = *number;
        way->nr_numbers++;
    }
    return result;
}

/* Puts a way into the buffer, unless that has the same one already. */
static CUresult way_enter(struct buffer *buffer, struct way *way, uint64_t *number)
{
    pthread_mutex_lock(&lock);
    struct way *known = buffer->ways;
    while (known && !is_same(known, way)) {
        known = known->next;
    }
    if (!known) {
        way->buffer = buffer;
        way->next = buffer->ways;
        buffer->ways = way;
    }
    CUresult result = way_keep(known ? known : way, number);
    struct buffer *unused = !known && result != CUDA_SUCCESS ? way_remove(way) : NULL;
    pthread_mutex_unlock(&lock);
    if (known) {
        free(way);
    }
    buffer_end(unused);
    return result;
}

/* Keeps a way that some graph has already; false: none has it. */
static bool keep_known(const struct way *like, struct buffer **buffer, uint64_t *number, CUresult *result)
{
    pthread_mutex_lock(&lock);
    struct way *known = way_find(like);
    if (known) {
        *buffer = known->buffer;
        *result = way_keep(known, number);
    }
    pthread_mutex_unlock(&lock);
    return known != NULL;
}

CUresult fgv_staging_put(struct fgv_box_side *side, const struct fgv_copy_size *size, bool fills,
                         const struct fgv_copy_side *said, uint64_t was, uint64_t *number)
{
    uint64_t bytes;
    struct buffer *buffer;
    if (__builtin_mul_overflow(size->width_bytes, size->height, &bytes) ||
        __builtin_mul_overflow(bytes, size->depth, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct way *way = malloc(sizeof(*way));
    if (!way) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *way = (struct way){.fills = fills, .side = *side, .size = *size, .said = *said};
    CUresult result;
    if (keep_known(way, &buffer, number, &result) || (result = buffer_get(was, bytes, &buffer)) != CUDA_SUCCESS) {
        free(way);
    } else {
        result = way_enter(buffer, way, number);
    }
    if (result != CUDA_SUCCESS) {
        *number = 0;
        return result;
    }
    *side = (struct fgv_box_side){.memory = {.address = buffer->range.address, .kind = FGV_MEMORY_PINNED},
                                  .pitch_bytes = size->width_bytes,
                                  .plane_rows = size->height};
    return CUDA_SUCCESS;
}

bool fgv_staging_runs(uint64_t number)
{
    CUDA_HOST_NODE_PARAMS host;
    return fgv_host_function_find(number, &host) && host.fn == run;
}

bool fgv_staging_said(uint64_t number, struct fgv_copy_side *said)
{
    CUDA_HOST_NODE_PARAMS host;
    if (!fgv_host_function_find(number, &host) || host.fn != run) {
        return false;
    }
    *said = ((const struct way *)host.userData)->said;
    return true;
}

void fgv_staging_own(const struct fgv_staging *staging, uint64_t owner)
{
    if (staging->fill != 0) {
        fgv_host_function_own(owner, staging->fill);
    }
    if (staging->drain != 0) {
        fgv_host_function_own(owner, staging->drain);
    }
}

void fgv_staging_drop(const struct fgv_staging *staging)
{
    if (staging->fill != 0) {
        fgv_host_function_drop(staging->fill);
    }
    if (staging->drain != 0) {
        fgv_host_function_drop(staging->drain);
    }
}
