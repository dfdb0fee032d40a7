/*
 * Large copies: see bulk.h.
 *
 * The processor fetches ahead by itself, but not beyond a page, and streaming stores keep its buffers busy meanwhile:
 * so lines are asked for early. One store for a whole line leaves no half-filled buffer behind that something else
 * might push out. On a Cascade Lake, 1 MiB at a time out of 4 MiB, best of 40 in three runs: 5.0 GB/s with neither, 5.2
 * with lines asked for early, 5.9 with both; memcpy 5.7. Into the 4 MiB, best of 30: memcpy 7.0 to 7.7, with both 7.6
 * to 7.8, and no gain with the smaller stores.
 */
#include "base/bulk.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define LINE_BYTES  64u
#define AHEAD_BYTES 1024u

/* Beyond the end nothing happens: to ask for what is not there is no fault. */
static inline void ask_for(const uint8_t *place)
{
    _mm_prefetch((const char *)(uintptr_t)((uint64_t)(uintptr_t)place + AHEAD_BYTES), _MM_HINT_T0);
}

void fgv_bulk_lines_sse2(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        __m128i quarters[4];
        ask_for(from + at);
        for (int i = 0; i < 4; i++) {
            quarters[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + at) + i);
        }
        for (int i = 0; i < 4; i++) {
            _mm_stream_si128((__m128i *)(void *)(to + at) + i, quarters[i]);
        }
    }
}

__attribute__((target("avx512f"))) void fgv_bulk_lines_avx512(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        ask_for(from + at);
        _mm512_stream_si512((__m512i *)(void *)(to + at), _mm512_loadu_si512(from + at));
    }
}

void fgv_bulk_copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes < FGV_STREAM_MIN_BYTES) {
        memcpy(to, from, bytes);
        return;
    }
    const size_t head = -(uintptr_t)to & (LINE_BYTES - 1);
    const size_t lines = (bytes - head) & ~(size_t)(LINE_BYTES - 1);
    memcpy(to, from, head);
    if (__builtin_cpu_supports("avx512f")) {
        fgv_bulk_lines_avx512(to + head, from + head, lines);
    } else {
        fgv_bulk_lines_sse2(to + head, from + head, lines);
    }
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
    _mm_sfence(); /* streaming stores are not ordered with what follows */
}
