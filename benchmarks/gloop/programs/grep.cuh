/*
 * The kernels of grep.cu. A block has a file: it looks for one word after the other, each thread at its own places in
 * the text. By gloop it also opens the file, reads it, and writes what it found.
 */
#ifndef BENCHMARKS_GLOOP_PROGRAMS_GREP_CUH
#define BENCHMARKS_GLOOP_PROGRAMS_GREP_CUH

#include "gloop/gloop.cuh"
#include "grep.h"

enum { GREP_THREADS = 256, GREP_READ = 65536 /* bytes that are asked for at a time */ };

/* What callbacks are passed. All of it lies in the device's memory. */
struct grep_files {
    const char *paths;  /* GREP_PATH each; the output's is the last */
    long long *failure; /* what a call gave that failed */
};

static __device__ bool grep_is_letter(char byte)
{
    return byte >= 'a' && byte <= 'z';
}

/* Whether a word stands there. The text ends at `nr_bytes`. */
static __device__ bool grep_is_at(const char *text, uint32_t nr_bytes, uint32_t at, const char *word)
{
    uint32_t length = 0;
    while (length < GREP_WORD && word[length]) {
        if (at + length >= nr_bytes || text[at + length] != word[length]) {
            return false;
        }
        length++;
    }
    return (at == 0 || !grep_is_letter(text[at - 1])) &&
           (at + length == nr_bytes || !grep_is_letter(text[at + length]));
}

/* One word in one file. What is found is rare, so it is counted in memory. */
static __device__ void grep_word_block(const struct grep_search &search, int file, int number)
{
    const char *text = search.texts + (long)file * search.text_bytes, *word = search.words + number * GREP_WORD;
    struct grep_match *match = search.matches + (long)file * search.nr_words + number;
    __builtin_assume(__isGlobal(text));
    __builtin_assume(__isGlobal(word));
    __builtin_assume(__isGlobal(match));
    const char first = word[0];
    if (threadIdx.x == 0) {
        *match = {0, GREP_NONE};
    }
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < search.text_bytes; at += GREP_THREADS) {
        if (text[at] == first && grep_is_at(text, search.text_bytes, at, word)) {
            atomicAdd(&match->nr, 1u);
            atomicMin(&match->first, at);
        }
    }
    __syncthreads();
}

static __global__ void grep_plain(struct grep_search search, int first_word, int end_word)
{
    for (int word = first_word; word < end_word; word++) {
        grep_word_block(search, blockIdx.x, word);
    }
}

/* Closes what is open, last the output; the first call that failed is what the host is told. */
template <class Loop>
__device__ void grep_end_on(Loop *loop, struct grep_files files, int fd, int output, long long result)
{
    if (threadIdx.x == 0 && result < 0) {
        *files.failure = result;
    }
    if (fd >= 0) {
        gloop::fs::close(loop, fd, [](Loop *loop, long long result) {});
    }
    if (output >= 0) {
        gloop::fs::close(loop, output, [](Loop *loop, long long result) {});
    }
}

template <class Loop>
__device__ void grep_write_on(Loop *loop, struct grep_search search, struct grep_files files, int fd)
{
    gloop::fs::open(loop, files.paths + (long)search.nr_files * GREP_PATH, O_WRONLY, [=](Loop *loop, long long output) {
        if (output < 0) {
            grep_end_on(loop, files, fd, -1, output);
            return;
        }
        uint64_t nr_bytes = search.nr_words * sizeof(struct grep_match), at = loop->logicalBlockIdx().x * nr_bytes;
        gloop::fs::write(loop, (int)output, at, nr_bytes, search.matches + loop->logicalBlockIdx().x * search.nr_words,
                         [=](Loop *loop, long long result) { grep_end_on(loop, files, fd, (int)output, result); });
    });
}

/* One word, then a scheduling point. */
template <class Loop>
__device__ void grep_word_on(Loop *loop, struct grep_search search, struct grep_files files, int fd, int word)
{
    grep_word_block(search, loop->logicalBlockIdx().x, word);
    if (word + 1 == search.nr_words) {
        grep_write_on(loop, search, files, fd);
    } else {
        loop->postTask([=](Loop *loop) { grep_word_on(loop, search, files, fd, word + 1); });
    }
}

template <class Loop>
__device__ void grep_read_on(Loop *loop, struct grep_search search, struct grep_files files, int fd, uint32_t at)
{
    if (at == search.text_bytes) {
        grep_word_on(loop, search, files, fd, 0);
        return;
    }
    uint32_t nr_bytes = min((uint32_t)GREP_READ, search.text_bytes - at);
    char *text = (char *)search.texts + (long)loop->logicalBlockIdx().x * search.text_bytes;
    gloop::fs::read(loop, fd, at, nr_bytes, text + at, [=](Loop *loop, long long result) {
        if (result != nr_bytes) {
            grep_end_on(loop, files, fd, -1, result < 0 ? result : -EIO);
            return;
        }
        grep_read_on(loop, search, files, fd, at + nr_bytes);
    });
}

template <class Loop> __device__ void grep_file_on(Loop *loop, struct grep_search search, struct grep_files files)
{
    gloop::fs::open(loop, files.paths + (long)loop->logicalBlockIdx().x * GREP_PATH, O_RDONLY,
                    [=](Loop *loop, long long fd) {
                        if (fd < 0) {
                            grep_end_on(loop, files, -1, -1, fd);
                            return;
                        }
                        grep_read_on(loop, search, files, (int)fd, 0);
                    });
}

#endif
