/*
 * Text of printf in kernels. Formats are C's without %n; an argument is 4 bytes, or 8 for ll, l, floats, pointers.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/records.h"

/* CUDA ignores further ones, and prints their conversions as they stand. */
#define MAX_ARGUMENTS 32

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
    unsigned int nr_long = 0, nr_short = 0;

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
        nr_short += *at == 'h';
    }
    conversion->type = *at;
    if (!*at || !strchr("diouxXceEfFgGaAps%", *at)) {
        return NULL;
    }
    conversion->argument_bytes = nr_long || strchr("eEfFgGaAps", *at) ? 8 : 4;
    if (strchr("diouxX", *at)) {
        unsigned int nr = nr_long || nr_short > 2 ? 2 : nr_short;

        memset(to, nr_long ? 'l' : 'h', nr);
        to += nr;
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

    if (!format) {
        return -1;
    }
    while (*format && used + 1 < text_bytes) {
        struct conversion conversion;
        const char *rest = *format == '%' ? conversion_parse(format, &conversion) : NULL;
        int stars[2] = {0, 0}, printed;

        if (!rest || (nr_arguments == MAX_ARGUMENTS && conversion.type != '%')) {
            text[used++] = *format++;
            continue;
        }
        format = rest;
        if (conversion.type == '%') {
            text[used++] = '%';
            continue;
        }
        nr_arguments++;
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
