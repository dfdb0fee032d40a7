/*
 * Copying much between the arena and the program's memory.
 *
 * Out of the arena: a plain store first fetches the line that it overwrites, so memcpy moves every byte of the
 * destination twice. Streaming stores do not: on an H200's host, 512 KiB at a time, 15 GB/s instead of 8.7, where the
 * driver itself reaches 16. Into the arena, which is in the cache already, plain stores are right.
 *
 * Wrong when: the program reads what it copied at once and it would have fitted in the cache. Small copies therefore
 * stay with memcpy.
 */
#ifndef FRONTEND_GUEST_BULK_H
#define FRONTEND_GUEST_BULK_H

#include <stddef.h>
#include <stdint.h>

#define FGV_STREAM_MIN_BYTES (256u * 1024u)

/* Out of the arena. */
void fgv_bulk_copy(uint8_t *to, const uint8_t *from, size_t bytes);
/* Into it. */
void fgv_bulk_stage(uint8_t *to, const uint8_t *from, size_t bytes);

/* How whole lines are copied: out, `to` beginning with a line, on any processor and on one with AVX-512, and in. */
void fgv_bulk_lines_sse2(uint8_t *to, const uint8_t *from, size_t bytes);
void fgv_bulk_lines_avx512(uint8_t *to, const uint8_t *from, size_t bytes);
void fgv_bulk_stage_avx512(uint8_t *to, const uint8_t *from, size_t bytes);

#endif
