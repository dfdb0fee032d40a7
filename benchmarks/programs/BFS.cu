/*
 * BFS, after SHOC: breadth first, one launch for each level, with a thread for each vertex. The host waits for a word
 * after each of them that says whether a vertex was found, and launches the next level if one was.
 *
 * The method is that of Harish and Narayanan ("Accelerating large graph algorithms on the GPU using CUDA", 2007). The
 * graph is a random one: each vertex leads to the next one and to some others.
 */
#include "BFS.h"

#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

enum { NR_THREADS = 256, LEAST_EDGES = 2, MOST_EDGES = 14 };

static struct bfs_graph graph, device;
static uint32_t *first, *targets; /* of the host's graph */
static int32_t *device_levels, *loops_levels, *fetched_levels;
static int *device_is_found;

static __global__ void visit(struct bfs_graph graph, int32_t *levels, int32_t level, int *is_found)
{
    uint32_t vertex = blockIdx.x * NR_THREADS + threadIdx.x;
    if (vertex >= graph.nr_vertices || levels[vertex] != level) {
        return;
    }
    for (uint32_t edge = graph.first[vertex]; edge < graph.first[vertex + 1]; edge++) {
        uint32_t target = graph.targets[edge];
        if (levels[target] == BFS_UNSEEN) {
            levels[target] = level + 1; /* who else does so writes the same */
            *is_found = 1;
        }
    }
}

static void generate(void)
{
    uint64_t random = 11;
    uint32_t nr_edges = 0;
    for (uint32_t vertex = 0; vertex < graph.nr_vertices; vertex++) {
        first[vertex] = nr_edges;
        targets[nr_edges++] = (vertex + 1) % graph.nr_vertices;
        uint32_t nr = LEAST_EDGES + benchmark_random(&random) % (MOST_EDGES - LEAST_EDGES + 1);
        while (--nr) {
            targets[nr_edges++] = benchmark_random(&random) % graph.nr_vertices;
        }
    }
    first[graph.nr_vertices] = nr_edges;
}

static uint32_t *on_device(const uint32_t *words, size_t nr)
{
    uint32_t *memory;
    BENCHMARK_CUDA(cudaMalloc(&memory, nr * sizeof(*words)));
    BENCHMARK_CUDA(cudaMemcpy(memory, words, nr * sizeof(*words), cudaMemcpyHostToDevice));
    return memory;
}

static double prepare(size_t size)
{
    if (size > (1u << 27)) {
        benchmark_fail("at most 2^27 vertices");
    }
    graph.nr_vertices = device.nr_vertices = (uint32_t)size;
    graph.first = first = (uint32_t *)benchmark_allocate(size + 1, sizeof(*first));
    graph.targets = targets = (uint32_t *)benchmark_allocate(size * MOST_EDGES, sizeof(*targets));
    loops_levels = (int32_t *)benchmark_allocate(size, sizeof(*loops_levels));
    fetched_levels = (int32_t *)benchmark_allocate(size, sizeof(*fetched_levels));
    generate();
    if (benchmark_uses_device()) {
        device.first = on_device(first, size + 1);
        device.targets = on_device(targets, first[size]);
        BENCHMARK_CUDA(cudaMalloc(&device_levels, size * sizeof(*device_levels)));
        BENCHMARK_CUDA(cudaMalloc(&device_is_found, sizeof(*device_is_found)));
    }
    return 1e-6 * first[size];
}

static void device_round(void)
{
    static const int32_t begin = 0;
    int is_found = 1;
    BENCHMARK_CUDA(cudaMemset(device_levels, 0xff, graph.nr_vertices * sizeof(*device_levels)));
    BENCHMARK_CUDA(cudaMemcpy(device_levels, &begin, sizeof(begin), cudaMemcpyHostToDevice));
    for (int32_t level = 0; is_found; level++) {
        BENCHMARK_CUDA(cudaMemset(device_is_found, 0, sizeof(*device_is_found)));
        visit<<<(graph.nr_vertices + NR_THREADS - 1) / NR_THREADS, NR_THREADS>>>(device, device_levels, level,
                                                                                 device_is_found);
        BENCHMARK_CUDA(cudaGetLastError());
        BENCHMARK_CUDA(cudaMemcpy(&is_found, device_is_found, sizeof(is_found), cudaMemcpyDeviceToHost));
    }
}

static void loops_round(void)
{
    for (uint32_t vertex = 0; vertex < graph.nr_vertices; vertex++) {
        loops_levels[vertex] = vertex == 0 ? 0 : BFS_UNSEEN;
    }
    for (int32_t level = 0; bfs_loops(&graph, loops_levels, level); level++) {
    }
}

static void fetch(void)
{
    BENCHMARK_CUDA(
        cudaMemcpy(fetched_levels, device_levels, graph.nr_vertices * sizeof(*device_levels), cudaMemcpyDeviceToHost));
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_ints("level", fetched_levels, loops_levels, graph.nr_vertices, why, why_size);
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)device.first));
        BENCHMARK_CUDA(cudaFree((void *)device.targets));
        BENCHMARK_CUDA(cudaFree(device_levels));
        BENCHMARK_CUDA(cudaFree(device_is_found));
    }
    free(first);
    free(targets);
    free(loops_levels);
    free(fetched_levels);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "BFS",
        .summary = "how far all vertices of a random graph are from the first one, level by level",
        .unit = "Medges/s",
        .default_size = 1 << 16,
        .size_help = "vertices, each with 8 edges in the mean",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
