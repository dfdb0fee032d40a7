/*
 * Graphs that copy from and to memory that is not pinned. NVIDIA's driver reads it in the thread that launches, at
 * once: what a host function of the same graph writes is copied or is not, so no case has that (tests/end_to_end does).
 */
#ifndef CONFORMANCE_ORDINARY_H
#define CONFORMANCE_ORDINARY_H

#include "case.h"

enum { BYTES = 3000, PITCH = 100, WIDTH = 60, ROWS = 7, SLICES = 3, MANY = 1 << 20 };

static inline void number_bytes(uint8_t *memory, size_t bytes, unsigned int seed)
{
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(seed + i * 5 + (i >> 8));
    }
}

static inline uint8_t *ordinary(size_t bytes, unsigned int seed)
{
    uint8_t *memory = malloc(bytes);
    number_bytes(memory, bytes, seed);
    return memory;
}

static inline CUcontext current(void)
{
    CUcontext context;
    MUST(cuCtxGetCurrent, &context);
    return context;
}

static inline CUDA_MEMCPY3D row_of(size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcPitch = bytes,
                           .srcHeight = 1,
                           .dstPitch = bytes,
                           .dstHeight = 1,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static inline CUDA_MEMCPY3D to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    CUDA_MEMCPY3D copy = row_of(bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    return copy;
}

static inline CUDA_MEMCPY3D from_device(void *to, CUdeviceptr from, size_t bytes)
{
    CUDA_MEMCPY3D copy = row_of(bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    return copy;
}

struct look {
    const uint8_t *memory;
    size_t bytes;
    unsigned int sum;
};

/* What a host function finds in the memory. */
static inline void look(void *data)
{
    struct look *what = data;
    for (size_t i = 0; i < what->bytes; i++) {
        what->sum = what->sum * 31 + what->memory[i];
    }
}

/* A copy of ordinary memory to the device, one from there, and a host node that looks at what came. */
struct graph {
    CUgraph graph;
    CUgraphNode host, in, out;
    CUgraphExec executable;
    CUdeviceptr device;
    uint8_t *from, *to;
    struct look look;
};

static inline void graph_make(struct graph *made, size_t bytes)
{
    *made = (struct graph){.device = device_bytes(bytes, 0), .from = ordinary(bytes, 1), .to = ordinary(bytes, 2)};
    made->look = (struct look){.memory = made->to, .bytes = bytes};
    CUDA_HOST_NODE_PARAMS host = {.fn = look, .userData = &made->look};
    CUDA_MEMCPY3D in = to_device(made->device, made->from, bytes), out = from_device(made->to, made->device, bytes);
    MUST(cuGraphCreate, &made->graph, 0);
    DO(cuGraphAddMemcpyNode, &made->in, made->graph, NULL, 0, &in, current());
    DO(cuGraphAddMemcpyNode, &made->out, made->graph, &made->in, 1, &out, current());
    MUST(cuGraphAddHostNode, &made->host, made->graph, &made->out, 1, &host);
}

static inline void graph_start(struct graph *made)
{
    DO(cuGraphInstantiateWithFlags, &made->executable, made->graph, 0);
}

static inline void run(CUgraphExec executable, const char *label, const void *memory, size_t bytes)
{
    DO(cuGraphLaunch, executable, NULL);
    DO(cuStreamSynchronize, NULL);
    say_bytes(label, memory, bytes);
}

static inline long long number_of(const struct graph *made, CUgraphNode node)
{
    return !node ? 0 : node == made->host ? 1 : node == made->in ? 2 : node == made->out ? 3 : -1;
}

#endif
