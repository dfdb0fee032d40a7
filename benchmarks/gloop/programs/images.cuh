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
    IMAGES_STEP = 16,                     /* images between two scheduling points */
};

/* What callbacks are passed beside the images. All of it lies in the device's memory. */
struct images_files {
    const char *known, *asked; /* paths */
    long long *failure;        /* what a call gave that failed */
    int window;                /* images that are mapped at a time; a multiple of IMAGES_STEP */
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
    for (; first < end; first += IMAGES_STEP) {
        images_compare_block(images.asked + (long)blockIdx.x * IMAGES_BYTES, images.known + (long)first * IMAGES_BYTES,
                             first, min(IMAGES_STEP, end - first), images.nearest + blockIdx.x);
    }
}

/* Where a block is: the image that it asks for, mapped, the file of known ones, and the window of it that is mapped. */
struct images_place {
    const uint8_t *asked, *known;
    int fd_asked, fd_known, first;
};

/* Unmaps and closes what is there; the first call that failed is what the host is told. */
template <class Loop>
__device__ void images_end_on(Loop *loop, struct images_files files, struct images_place place, long long result)
{
    const auto nothing = [](Loop *loop, long long result) {};
    if (threadIdx.x == 0 && result < 0) {
        *files.failure = result;
    }
    if (place.asked) {
        gloop::fs::munmap(loop, place.asked, nothing);
    }
    if (place.fd_asked >= 0) {
        gloop::fs::close(loop, place.fd_asked, nothing);
    }
    if (place.fd_known >= 0) {
        gloop::fs::close(loop, place.fd_known, nothing);
    }
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
    for (; done < end; done += IMAGES_STEP) {
        images_compare_block(place.asked, place.known + (long)done * IMAGES_BYTES, place.first + done,
                             min(IMAGES_STEP, end - done), images.nearest + loop->logicalBlockIdx().x);
        if (loop->postTaskIfNecessary(
                [=](Loop *loop) { images_step_on(loop, images, files, place, done + IMAGES_STEP); })) {
            return;
        }
    }
    gloop::fs::munmap(loop, place.known, [=](Loop *loop, long long result) {
        if (result < 0) {
            images_end_on(loop, files, place, result);
            return;
        }
        struct images_place next = place;
        next.first += files.window;
        images_window_on(loop, images, files, next);
    });
}

template <class Loop>
__device__ void images_window_on(Loop *loop, struct images images, struct images_files files, struct images_place place)
{
    if (place.first >= images.nr_known) {
        images_end_on(loop, files, place, 0);
        return;
    }
    uint64_t at = (uint64_t)place.first * IMAGES_BYTES;
    uint64_t nr_bytes = (uint64_t)min(files.window, images.nr_known - place.first) * IMAGES_BYTES;
    gloop::fs::mmap(loop, place.fd_known, at, nr_bytes, PROT_READ, [=](Loop *loop, long long result) {
        if (result < 0) {
            images_end_on(loop, files, place, result);
            return;
        }
        struct images_place next = place;
        next.known = (const uint8_t *)result;
        images_step_on(loop, images, files, next, 0);
    });
}

/* Opens both files and maps the image that this block asks for. */
template <class Loop> __device__ void images_block_on(Loop *loop, struct images images, struct images_files files)
{
    gloop::fs::open(loop, files.known, O_RDONLY, [=](Loop *loop, long long fd_known) {
        struct images_place place = {NULL, NULL, -1, (int)fd_known, 0};
        if (fd_known < 0) {
            images_end_on(loop, files, place, fd_known);
            return;
        }
        gloop::fs::open(loop, files.asked, O_RDONLY, [=](Loop *loop, long long fd_asked) {
            struct images_place opened = place;
            opened.fd_asked = (int)fd_asked;
            if (fd_asked < 0) {
                images_end_on(loop, files, opened, fd_asked);
                return;
            }
            uint64_t at = (uint64_t)loop->logicalBlockIdx().x * IMAGES_BYTES;
            gloop::fs::mmap(loop, (int)fd_asked, at, IMAGES_BYTES, PROT_READ, [=](Loop *loop, long long result) {
                if (result < 0) {
                    images_end_on(loop, files, opened, result);
                    return;
                }
                struct images_place mapped = opened;
                mapped.asked = (const uint8_t *)result;
                images_window_on(loop, images, files, mapped);
            });
        });
    });
}

#endif
