/*
 * printf in kernels. Text is made when the kernel calls, and kept in the context's buffer until a call that
 * synchronises: there CUDA prints it. A full buffer drops its oldest lines, as CUDA's does. Formats are C's without %n;
 * an argument is 4 bytes, or 8 for ll, l, floats, pointers.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"

#define MAX_ARGUMENTS    32
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

/* One conversion: from the '%' on. */
struct conversion {
    char spelling[64]; /* for snprintf, with the length modifiers the host needs */
    char type;
    size_t argument_bytes;
    bool has_width_argument;
    bool has_precision_argument;
};

/* Returns where the format goes on; NULL: this is no conversion, print it as it stands. */
static const char *conversion_parse(const char *at, struct conversion *conversion)
{
    char *to = conversion->spelling;
    char *limit = to + sizeof(conversion->spelling) - 5;
    unsigned int nr_long = 0;

    memset(conversion, 0, sizeof(*conversion));
    *to++ = *at++;
    while (*at && strchr("-+ #0", *at) && to < limit) {
        *to++ = *at++;
    }
    for (bool after_dot = false;; after_dot = true) {
        if (*at == '*') {
            *(after_dot ? &conversion->has_precision_argument : &conversion->has_width_argument) = true;
            *to++ = *at++;
        }
        while (isdigit((unsigned char)*at) && to < limit) {
            *to++ = *at++;
        }
        if (after_dot || *at != '.' || to >= limit) {
            break;
        }
        *to++ = *at++;
    }
    for (; *at == 'l' || *at == 'h'; at++) {
        nr_long += *at == 'l';
    }
    conversion->type = *at;
    if (!*at || !strchr("diouxXceEfFgGaAps%", *at)) {
        return NULL;
    }
    conversion->argument_bytes = nr_long || strchr("eEfFgGaAps", *at) ? 8 : 4;
    if (conversion->argument_bytes == 8 && strchr("diouxX", *at)) {
        *to++ = 'l';
        *to++ = 'l';
    }
    *to++ = *at;
    return at + 1;
}

static uint64_t argument_next(const uint8_t **arguments, size_t bytes)
{
    uintptr_t at = ((uintptr_t)*arguments + bytes - 1) & ~(uintptr_t)(bytes - 1);
    uint32_t narrow;
    uint64_t wide;

    *arguments = (const uint8_t *)(at + bytes);
    if (bytes == 8) {
        memcpy(&wide, (const void *)at, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, (const void *)at, sizeof(narrow));
    return narrow;
}

#define PRINT(value)                                                                                                   \
    (conversion->has_width_argument ? (conversion->has_precision_argument                                              \
                                           ? snprintf(text, bytes, conversion->spelling, stars[0], stars[1], value)    \
                                           : snprintf(text, bytes, conversion->spelling, stars[0], value))             \
     : conversion->has_precision_argument ? snprintf(text, bytes, conversion->spelling, stars[1], value)               \
                                          : snprintf(text, bytes, conversion->spelling, value))

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static int conversion_print(const struct conversion *conversion, const int stars[2], uint64_t argument, char *text,
                            size_t bytes)
{
    double number;

    switch (conversion->type) {
    case 'd':
    case 'i':
    case 'o':
    case 'u':
    case 'x':
    case 'X':
    case 'c':
        return conversion->argument_bytes == 8 ? PRINT((long long)argument) : PRINT((int)argument);
    case 'p':
        return PRINT((void *)(uintptr_t)argument);
    case 's':
        return PRINT(argument ? (const char *)(uintptr_t)argument : "(null)");
    default:
        memcpy(&number, &argument, sizeof(number));
        return PRINT(number);
    }
}
#pragma GCC diagnostic pop

int sgp_printf_format(const char *format, const uint8_t *arguments, char *text, size_t text_bytes, size_t *length)
{
    int nr_arguments = 0;
    size_t used = 0;

    while (*format && used + 1 < text_bytes) {
        struct conversion conversion;
        const char *rest = *format == '%' ? conversion_parse(format, &conversion) : NULL;
        int stars[2] = {0, 0}, printed;

        if (!rest) {
            text[used++] = *format++;
            continue;
        }
        format = rest;
        if (conversion.type == '%') {
            text[used++] = '%';
            continue;
        }
        if (++nr_arguments > MAX_ARGUMENTS) {
            return -1;
        }
        if (conversion.has_width_argument) {
            stars[0] = (int)argument_next(&arguments, 4);
        }
        if (conversion.has_precision_argument) {
            stars[1] = (int)argument_next(&arguments, 4);
        }
        printed = conversion_print(&conversion, stars, argument_next(&arguments, conversion.argument_bytes),
                                   text + used, text_bytes - used);
        if (printed > 0) {
            used = used + (size_t)printed < text_bytes ? used + (size_t)printed : text_bytes - 1;
        }
    }
    *length = used;
    return nr_arguments;
}
