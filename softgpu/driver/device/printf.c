/*
 * What kernels print. Text is made when the kernel calls, and kept in the context's buffer until a call that
 * synchronises: there CUDA prints it. A full buffer drops its oldest lines, as CUDA's does.
 */
#include "device/printf.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/current.h"

#define MAX_BUFFER_BYTES (1ull << 30)

/* A ring of bytes; a record is a 32-bit length and that many bytes. */
struct sgp_printf_buffer {
    pthread_mutex_t lock;
    uint8_t *bytes;
    uint64_t capacity;
    uint64_t begin; /* counts of bytes ever taken and put */
    uint64_t end;
};

static void ring_get(const struct sgp_printf_buffer *buffer, uint64_t at, void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)to)[i] = buffer->bytes[(at + i) % buffer->capacity];
    }
}

static void ring_put(struct sgp_printf_buffer *buffer, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        buffer->bytes[(buffer->end + i) % buffer->capacity] = ((const uint8_t *)from)[i];
    }
    buffer->end += bytes;
}

struct sgp_printf_buffer *sgp_printf_new(uint64_t bytes)
{
    struct sgp_printf_buffer *buffer = calloc(1, sizeof(*buffer));

    if (!buffer) {
        return NULL;
    }
    pthread_mutex_init(&buffer->lock, NULL);
    if (sgp_printf_resize(buffer, bytes)) {
        return buffer;
    }
    free(buffer);
    return NULL;
}

bool sgp_printf_resize(struct sgp_printf_buffer *buffer, uint64_t bytes)
{
    uint8_t *fresh;

    if (bytes < SGP_PAGE_BYTES) {
        bytes = SGP_PAGE_BYTES;
    }
    fresh = bytes <= MAX_BUFFER_BYTES ? malloc(bytes) : NULL;
    if (!fresh) {
        return false;
    }
    pthread_mutex_lock(&buffer->lock);
    free(buffer->bytes);
    buffer->bytes = fresh;
    buffer->capacity = bytes;
    buffer->begin = buffer->end = 0;
    pthread_mutex_unlock(&buffer->lock);
    return true;
}

void sgp_printf_delete(struct sgp_printf_buffer *buffer)
{
    if (!buffer) {
        return;
    }
    pthread_mutex_destroy(&buffer->lock);
    free(buffer->bytes);
    free(buffer);
}

void sgp_printf_append(struct sgp_printf_buffer *buffer, const char *text, size_t bytes)
{
    uint32_t length = (uint32_t)bytes;

    pthread_mutex_lock(&buffer->lock);
    if (bytes + sizeof(length) <= buffer->capacity) {
        while (buffer->end - buffer->begin + sizeof(length) + bytes > buffer->capacity) {
            uint32_t oldest;

            ring_get(buffer, buffer->begin, &oldest, sizeof(oldest));
            buffer->begin += sizeof(oldest) + oldest;
        }
        ring_put(buffer, &length, sizeof(length));
        ring_put(buffer, text, bytes);
    }
    pthread_mutex_unlock(&buffer->lock);
}

/* All text so far, taken out of the buffer; NULL: none. */
static char *take_text(struct sgp_printf_buffer *buffer, size_t *bytes)
{
    char *text = NULL;

    *bytes = 0;
    pthread_mutex_lock(&buffer->lock);
    if (buffer->end != buffer->begin) {
        text = malloc(buffer->end - buffer->begin);
    }
    while (text && buffer->begin < buffer->end) {
        uint32_t length;

        ring_get(buffer, buffer->begin, &length, sizeof(length));
        ring_get(buffer, buffer->begin + sizeof(length), text + *bytes, length);
        buffer->begin += sizeof(length) + length;
        *bytes += length;
    }
    pthread_mutex_unlock(&buffer->lock);
    return text;
}

void sgp_printf_flush(struct CUctx_st *context)
{
    struct sgp_printf_buffer *buffer = context->printf_buffer;
    size_t bytes;
    char *text;

    /* Unlocked look: whoever waits for a kernel comes after its last append. */
    if (!buffer ||
        __atomic_load_n(&buffer->end, __ATOMIC_RELAXED) == __atomic_load_n(&buffer->begin, __ATOMIC_RELAXED)) {
        return;
    }
    text = take_text(buffer, &bytes);
    if (!text) {
        return;
    }
    sgp_unlock();
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    free(text);
    sgp_lock();
}
