/*
 * The kernels of images.cu. A block has an image that is asked for, and each of its warps compares it with one known
 * image after the other. By gloop known images come through mapped windows of their file, of which many blocks want the
 * same at a time.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_IMAGES_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_IMAGES_CUH

#include <climits>

#include "gloop/gloop.cuh"
#include "images.h"

enum {
    IMAGES_THREADS = 256,
    IMAGES_WARPS = IMAGES_THREADS / 32,
    IMAGES_WORDS = IMAGES_BYTES / 4 / 32, /* of an image, for each thread of a warp */
};

/* What callbacks are passed beside the images. All of it lies in the device's memory. */
struct images_files {
    const char *known, *asked; /* paths */
    int *descriptors;          /* of both, once they are open */
    long long *failure;        /* what a call gave that failed */
    int window;                /* images that are mapped at a time */
    int step;                  /* of these, how many between two scheduling points */
};

static __device__ unsigned images_distance(const unsigned *one, const unsigned *other, unsigned lane)
{
    unsigned sum = 0;
#pragma unroll
    for (int word = 0; word < IMAGES_WORDS; word++) {
        unsigned difference = __vabsdiffu4(one[word * 32 + lane], other[word * 32 + lane]);
        sum = __dp4a(difference, difference, sum);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    return sum;
}

/* Compares with `nr` known images from `known` on, the first of which has this number. */
static __device__ void images_compare_block(const uint8_t *asked, const uint8_t *known, int first, int nr,
                                            uint64_t *nearest)
{
    __builtin_assume(__isGlobal(asked));
    __builtin_assume(__isGlobal(known));
    unsigned lane = threadIdx.x % 32;
    unsigned long long least = ULLONG_MAX;
    for (int at = threadIdx.x / 32; at < nr; at += IMAGES_WARPS) {
        unsigned sum =
            images_distance((const unsigned *)asked, (const unsigned *)(known + (long)at * IMAGES_BYTES), lane);
        least = min(least, (unsigned long long)sum << 32 | (unsigned)(first + at));
    }
    if (lane == 0 && least != ULLONG_MAX) {
        atomicMin((unsigned long long *)nearest, least);
    }
}

static __global__ void images_plain(struct images images, int first, int end)
{
    images_compare_block(images.asked + (long)blockIdx.x * IMAGES_BYTES, images.known + (long)first * IMAGES_BYTES,
                         first, end - first, images.nearest + blockIdx.x);
}

static __device__ void images_note(const struct images_files &files, long long result)
{
    if (threadIdx.x == 0 && result < 0) {
        *files.failure = result;
    }
}

/* Opens both files, for all blocks that come later. */
template <class Loop> __device__ void images_open_on(Loop *loop, struct images_files files)
{
    const char *const paths[] = {files.known, files.asked};
    for (int file = 0; file < 2; file++) {
        gloop::fs::open(loop, paths[file], O_RDONLY, [=](Loop *loop, long long result) {
            files.descriptors[file] = (int)result;
            images_note(files, result);
        });
    }
}

template <class Loop> __device__ void images_close_on(Loop *loop, struct images_files files)
{
    for (int file = 0; file < 2; file++) {
        gloop::fs::close(loop, files.descriptors[file],
                         [=](Loop *loop, long long result) { images_note(files, result); });
    }
}

/* Where a block is: the image that it asks for, and the window of known ones that is mapped, from this image on. */
struct images_place {
    const uint8_t *asked, *known;
    int first;
};

/* Nobody waits for the answer. */
template <class Loop> __device__ void images_unmap_on(Loop *loop, struct images_files files, const uint8_t *mapped)
{
    gloop::fs::munmap(loop, mapped, [=](Loop *loop, long long result) { images_note(files, result); });
}

template <class Loop>
__device__ void images_window_on(Loop *loop, struct images images, struct images_files files,
                                 struct images_place place);

/* Some images of a window, then a scheduling point. */
template <class Loop>
__device__ void images_step_on(Loop *loop, struct images images, struct images_files files, struct images_place place,
                               int done)
{
    int end = min(files.window, images.nr_known - place.first);
    while (done < end) {
        int nr = min(files.step, end - done);
        images_compare_block(place.asked, place.known + (long)done * IMAGES_BYTES, place.first + done, nr,
                             images.nearest + loop->logicalBlockIdx().x);
        done += nr;
        if (loop->postTaskIfNecessary([=](Loop *loop) { images_step_on(loop, images, files, place, done); })) {
            return;
        }
    }
    images_unmap_on(loop, files, place.known);
    place.first += files.window;
    images_window_on(loop, images, files, place);
}

template <class Loop>
__device__ void images_window_on(Loop *loop, struct images images, struct images_files files, struct images_place place)
{
    if (place.first >= images.nr_known) {
        images_unmap_on(loop, files, place.asked);
        return;
    }
    uint64_t at = (uint64_t)place.first * IMAGES_BYTES;
    uint64_t nr_bytes = (uint64_t)min(files.window, images.nr_known - place.first) * IMAGES_BYTES;
    gloop::fs::mmap(loop, files.descriptors[0], at, nr_bytes, PROT_READ, [=](Loop *loop, long long result) {
        struct images_place next = place;
        next.known = (const uint8_t *)result;
        if (result < 0) {
            images_note(files, result);
        } else {
            images_step_on(loop, images, files, next, 0);
        }
    });
}

/* Maps the image that this block asks for. */
template <class Loop> __device__ void images_block_on(Loop *loop, struct images images, struct images_files files)
{
    uint64_t at = (uint64_t)loop->logicalBlockIdx().x * IMAGES_BYTES;
    gloop::fs::mmap(loop, files.descriptors[1], at, IMAGES_BYTES, PROT_READ, [=](Loop *loop, long long result) {
        if (result < 0) {
            images_note(files, result);
        } else {
            images_window_on(loop, images, files, {(const uint8_t *)result, NULL, 0});
        }
    });
}

#endif
