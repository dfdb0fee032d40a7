/*
 * scan in C: the pieces that the blocks of the kernels scan, then the sums of the pieces, then both added. Within a
 * piece it is the kernels' own algorithm, sums of four elements and log2(256) steps that add what stands ever farther
 * left, and not the one running sum that would do for a sequential program: the two sides are to do the same additions.
 */
#include "scan.h"

/* Exclusive sums of up to 256 elements, in place, by doubling: from the right, so that a step sees what the last one
 * left. */
static void scan_by_doubling(uint32_t *elements, size_t nr)
{
    uint32_t sums[SHORT_LENGTH / 4];
    for (size_t i = 0; i < nr; i++) {
        sums[i] = elements[i];
    }
    for (size_t offset = 1; offset < nr; offset *= 2) {
        for (size_t i = nr; i-- > offset;) {
            sums[i] += sums[i - offset];
        }
    }
    for (size_t i = 0; i < nr; i++) {
        elements[i] = sums[i] - elements[i];
    }
}

static void scan_piece(uint32_t *to, const uint32_t *from)
{
    uint32_t before[SHORT_LENGTH / 4];
    for (size_t i = 0; i < SHORT_LENGTH / 4; i++) {
        before[i] = from[4 * i] + from[4 * i + 1] + from[4 * i + 2] + from[4 * i + 3];
    }
    scan_by_doubling(before, SHORT_LENGTH / 4);
    for (size_t i = 0; i < SHORT_LENGTH / 4; i++) {
        to[4 * i] = before[i];
        to[4 * i + 1] = to[4 * i] + from[4 * i];
        to[4 * i + 2] = to[4 * i + 1] + from[4 * i + 1];
        to[4 * i + 3] = to[4 * i + 2] + from[4 * i + 2];
    }
}

void scan_short_loops(uint32_t *to, const uint32_t *from, size_t nr_elements)
{
#pragma omp parallel for
    for (size_t at = 0; at < nr_elements; at += SHORT_LENGTH) {
        scan_piece(to + at, from + at);
    }
}

void scan_large_loops(uint32_t *to, uint32_t *sums, const uint32_t *from, size_t nr_elements, size_t length)
{
    size_t nr_pieces = nr_elements / SHORT_LENGTH, pieces_each = length / SHORT_LENGTH;

    scan_short_loops(to, from, nr_elements);
#pragma omp parallel for
    for (size_t array = 0; array < nr_pieces; array += pieces_each) {
        for (size_t piece = array; piece < array + pieces_each; piece++) {
            size_t last = (piece + 1) * SHORT_LENGTH - 1;
            sums[piece] = to[last] + from[last];
        }
        scan_by_doubling(sums + array, pieces_each);
    }
#pragma omp parallel for
    for (size_t piece = 0; piece < nr_pieces; piece++) {
        for (size_t i = 0; i < SHORT_LENGTH; i++) {
            to[piece * SHORT_LENGTH + i] += sums[piece];
        }
    }
}
