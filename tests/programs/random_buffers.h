/*
 * Random numbers, and buffers of every kind of memory with what each must hold worked out beside it, for
 * random_steps.h. A buffer is used in one stream at a time, and goes to another by an event.
 */
#ifndef TESTS_PROGRAMS_RANDOM_BUFFERS_H
#define TESTS_PROGRAMS_RANDOM_BUFFERS_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"

typedef std::vector<uint8_t> bytes;

static struct {
    uint64_t seed, random;
    int step;
    cudaMemPool_t pool;
    std::vector<cudaStream_t> streams;
    std::vector<cudaEvent_t> events;
    std::vector<std::unique_ptr<struct buffer>> buffers;
    std::vector<std::unique_ptr<bytes>> sources; /* of copies that may not have ended */
    bytes constants;
    bool is_capturing;
    std::vector<std::function<void()>> captured; /* what a launch of the graph does to the model */
} now;

static std::map<std::string, int> nr_done;

static uint64_t below(uint64_t limit)
{
    now.random ^= now.random << 13;
    now.random ^= now.random >> 7;
    now.random ^= now.random << 17;
    return (now.random * 0x2545F4914F6CDD1D >> 11) % limit;
}

static bool once_in(uint64_t nr)
{
    return below(nr) == 0;
}

static bytes some(size_t nr)
{
    bytes made(nr);
    std::generate(made.begin(), made.end(), [] { return (uint8_t)below(256); });
    return made;
}

/* From a byte to 3 MiB, small ones more often. */
static size_t some_size()
{
    const size_t limits[] = {8, 600, 600, 70'000, 70'000, 1 << 20, 3 << 20};
    return 1 + below(limits[below(7)]);
}

enum kind { ALLOCATED, PINNED, IN_ORDER, OF_A_POOL, MANAGED, REGISTERED, VARIABLE };

struct buffer {
    enum kind kind;
    size_t stream; /* the one whose work may use it */
    bytes wanted;
    uint8_t *host = nullptr;   /* or where it has none, as `device` */
    uint8_t *device = nullptr; /* for kernels */
    std::vector<std::string> history;

    bool is_on_host() const { return kind == PINNED || kind == REGISTERED || kind == MANAGED; }
};

static buffer &any()
{
    return *now.buffers[below(now.buffers.size())];
}

static void make(enum kind kind, size_t nr, size_t stream)
{
    now.buffers.emplace_back(new buffer{kind, stream, bytes(nr)});
    buffer &made = *now.buffers.back();
    switch (kind) {
    case IN_ORDER:
        CHECK(cudaMallocAsync(&made.host, nr, now.streams[stream]));
        break;
    case OF_A_POOL:
        CHECK(cudaMallocFromPoolAsync((void **)&made.host, nr, now.pool, now.streams[stream]));
        break;
    case MANAGED:
        CHECK(cudaMallocManaged(&made.host, nr));
        break;
    case PINNED:
        CHECK(cudaHostAlloc(&made.host, nr, once_in(2) ? cudaHostAllocMapped : cudaHostAllocPortable));
        break;
    case REGISTERED:
        made.host = (uint8_t *)aligned_alloc(4096, (nr + 4095) / 4096 * 4096);
        CHECK(cudaHostRegister(made.host, nr, cudaHostRegisterMapped));
        break;
    default:
        CHECK(cudaMalloc(&made.host, nr));
    }
    made.device = made.host;
    if (kind == REGISTERED) {
        CHECK(cudaHostGetDevicePointer((void **)&made.device, made.host, 0));
    }
    if (made.is_on_host()) {
        memset(made.host, 0, nr);
    } else {
        CHECK(cudaMemsetAsync(made.device, 0, nr, now.streams[stream]));
    }
    nr_done["allocations"]++;
}

static void drop(size_t which)
{
    const buffer &dropped = *now.buffers[which];
    if ((dropped.kind == IN_ORDER || dropped.kind == OF_A_POOL) && !once_in(5)) {
        CHECK(cudaFreeAsync(dropped.host, now.streams[dropped.stream]));
    } else if (dropped.kind == REGISTERED) {
        CHECK(cudaStreamSynchronize(now.streams[dropped.stream]));
        CHECK(cudaHostUnregister(dropped.host));
        free(dropped.host);
    } else {
        const bool waits_itself = dropped.kind == ALLOCATED || dropped.kind == MANAGED;
        CHECK(waits_itself ? cudaSuccess : cudaStreamSynchronize(now.streams[dropped.stream]));
        CHECK(dropped.kind == PINNED ? cudaFreeHost(dropped.host) : cudaFree(dropped.host));
    }
    now.buffers.erase(now.buffers.begin() + which);
    nr_done["frees"]++;
}

/* What is done next in that stream comes behind what was done to the buffer. A capture cannot wait for that. */
static bool may_use(buffer &used, size_t stream)
{
    if (used.stream != stream && !now.is_capturing) {
        cudaEvent_t event = now.events[below(now.events.size())];
        CHECK(cudaEventRecord(event, now.streams[used.stream]));
        CHECK(cudaStreamWaitEvent(now.streams[stream], event, 0));
        used.stream = stream;
        nr_done["waits"]++;
    }
    return used.stream == stream;
}

static void change(const char *what, buffer &changed, std::function<void()> model)
{
    changed.history.push_back(std::to_string(now.step) + (now.is_capturing ? ": captured " : ": ") + what);
    nr_done[what]++;
    if (now.is_capturing) {
        now.captured.push_back(model);
    } else {
        model();
    }
}

/* Ends the program where the buffer is not as the model. */
static void look(const buffer &at)
{
    bytes got(at.wanted.size());
    const cudaStream_t stream = now.streams[at.stream];
    if (at.is_on_host() && once_in(2)) {
        CHECK(cudaStreamSynchronize(stream));
        std::copy_n(at.host, got.size(), got.begin());
    } else {
        CHECK(cudaMemcpyAsync(got.data(), at.host, got.size(), cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    nr_done["looks"]++;
    if (got != at.wanted) {
        const size_t first = std::mismatch(got.begin(), got.end(), at.wanted.begin()).first - got.begin();
        printf("byte %zu of %zu of a buffer of kind %d is %d, not %d, after\n", first, got.size(), at.kind, got[first],
               at.wanted[first]);
        std::for_each(at.history.begin(), at.history.end(), [](const std::string &line) { puts(line.c_str()); });
        exit(verdict(false));
    }
}

#endif
