/*
 * The kernels of mummergpu.cu. A thread has one query: a block of the first kernel goes through all places of its
 * queries, and is long; one of the second looks at what the first found, and is short.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_MUMMERGPU_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_MUMMERGPU_CUH

#include "gloop/gloop.cuh"
#include "mummergpu.h"

enum { MUMMER_THREADS = 256 };

/* The bases that a suffix and a pattern have in common; below none where there is no such suffix. */
static __device__ int mummer_length_at(const struct mummer &mummer, int suffix, const char *pattern, int most)
{
    if (suffix < 0 || suffix >= mummer.nr_bases) {
        return -1;
    }
    const char *bases = mummer.bases + mummer.suffixes[suffix];
    int length = 0;
    while (length < most && bases[length] == pattern[length]) {
        length++;
    }
    return length;
}

/* By halving: the first suffix that is not below the pattern. */
static __device__ int mummer_first_above(const struct mummer &mummer, const char *pattern, int most)
{
    int low = 0, high = mummer.nr_bases;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int length = mummer_length_at(mummer, middle, pattern, most);
        if (length < most && mummer.bases[mummer.suffixes[middle] + length] < pattern[length]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The matches of a block's queries at one offset. */
static __device__ void mummer_match_block(const struct mummer &mummer, int block, int offset)
{
    __builtin_assume(__isGlobal(mummer.bases));
    __builtin_assume(__isGlobal(mummer.suffixes));
    __builtin_assume(__isGlobal(mummer.queries));
    int query = block * MUMMER_THREADS + threadIdx.x, most = MUMMER_QUERY - offset;
    if (query < mummer.nr_queries) {
        const char *pattern = mummer.queries + (long)query * MUMMER_QUERY + offset;
        int above = mummer_first_above(mummer, pattern, most);
        int with_above = mummer_length_at(mummer, above, pattern, most);
        int with_below = mummer_length_at(mummer, above - 1, pattern, most);
        mummer.matches[(long)offset * mummer.nr_queries + query] =
            with_above >= with_below ? MUMMER_MATCH(with_above, above) : MUMMER_MATCH(with_below, above - 1);
    }
}

static __device__ void mummer_print_block(const struct mummer &mummer, int block)
{
    int query = block * MUMMER_THREADS + threadIdx.x;
    if (query >= mummer.nr_queries) {
        return;
    }
    struct mummer_place place = {0, 0, 0};
    int suffix = 0;
    for (int offset = 0; offset < MUMMER_OFFSETS; offset++) {
        uint32_t match = mummer.matches[(long)offset * mummer.nr_queries + query];
        if (MUMMER_LENGTH(match) > place.length) {
            place = {MUMMER_LENGTH(match), offset, 0};
            suffix = MUMMER_SUFFIX(match);
        }
    }
    const char *pattern = mummer.queries + (long)query * MUMMER_QUERY + place.offset;
    place.position = mummer.suffixes[suffix];
    for (int at = suffix - MUMMER_NEIGHBOURS; at <= suffix + MUMMER_NEIGHBOURS; at++) {
        if (mummer_length_at(mummer, at, pattern, place.length) == place.length) {
            place.position = min(place.position, mummer.suffixes[at]);
        }
    }
    mummer.longest[query] = place;
}

static __global__ void mummer_match_plain(struct mummer mummer, int first_block, int first_offset, int end_offset)
{
    for (int offset = first_offset; offset < end_offset; offset++) {
        mummer_match_block(mummer, first_block + blockIdx.x, offset);
    }
}

static __global__ void mummer_print_plain(struct mummer mummer)
{
    mummer_print_block(mummer, blockIdx.x);
}

template <class Loop> __device__ void mummer_match_on(Loop *loop, struct mummer mummer, int offset)
{
    for (; offset < MUMMER_OFFSETS; offset++) {
        mummer_match_block(mummer, loop->logicalBlockIdx().x, offset);
        if (loop->postTaskIfNecessary([=](Loop *loop) { mummer_match_on(loop, mummer, offset + 1); })) {
            return;
        }
    }
}

#endif
