/*
 * Copying much between the arena and the program's memory, by streaming stores.
 *
 * A plain store first fetches the line that it overwrites. Out of the arena memcpy therefore moves every byte of the
 * destination twice. Into the arena the lines are in the cache, but in the device's way: it reads them out of the
 * processor that wrote them, which then has to get each back before it can write it again. docs/lab/copies.md has what
 * each way of storing takes.
 *
 * Wrong when: the program reads what it copied at once and it would have fitted in the cache. Small copies therefore
 * stay with memcpy. Or when it is the processor that reads the arena: see fgv_chunk_stage.
 */
#ifndef FRONTEND_GUEST_BULK_H
#define FRONTEND_GUEST_BULK_H

#include <stddef.h>
#include <stdint.h>

#define FGV_STREAM_MIN_BYTES (256u * 1024u)

void fgv_bulk_copy(uint8_t *to, const uint8_t *from, size_t bytes);

/* How whole lines are copied, `to` beginning with one: on any processor, and on one with AVX-512. */
void fgv_bulk_lines_sse2(uint8_t *to, const uint8_t *from, size_t bytes);
void fgv_bulk_lines_avx512(uint8_t *to, const uint8_t *from, size_t bytes);

#endif
