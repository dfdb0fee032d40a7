/* components: connected components of a graph without directions. Each vertex has the least label of its neighbours and
 * its own, phase by phase, until nothing changes; then rounds go on all the same. */
#ifndef BENCHMARKS_SPACE_COMPONENTS_CUH
#define BENCHMARKS_SPACE_COMPONENTS_CUH

#include "program.cuh"

enum { COMPONENTS_EACH = 4, COMPONENTS_BLOCK = COMPONENTS_EACH * THREADS, COMPONENTS = 16, COMPONENTS_DEGREE = 8 };

struct components_view {
    int nr_vertices;
    const int *begins, *neighbours; /* vertex v has those from begins[v] to begins[v + 1] */
    int *labels[2];                 /* phases go to and fro */

    __host__ __device__ void vertex(int vertex, unsigned phase) const
    {
        const int *from = from_of(labels, phase);
        int least = from[vertex];
        for (int at = begins[vertex]; at < begins[vertex + 1]; at++) {
            int label = from[neighbours[at]];
            least = label < least ? label : least;
        }
        to_of(labels, phase)[vertex] = least;
    }

    __device__ void block(unsigned block, unsigned phase) const
    {
        for (int each = 0; each < COMPONENTS_EACH; each++) {
            vertex(block * COMPONENTS_BLOCK + each * THREADS + threadIdx.x, phase);
        }
    }

    void loops(unsigned phase) const
    {
        for (int at = 0; at < nr_vertices; at++) {
            vertex(at, phase);
        }
    }
};

/* `size` blocks of vertices, of COMPONENTS components at least; the vertices of one are alike in number % COMPONENTS.
 */
static std::unique_ptr<program> make_components(int size)
{
    auto made = new program_of<components_view>("components", size, 8);
    const int nr = size * COMPONENTS_BLOCK;
    uint64_t random = 1;
    std::vector<std::pair<int, int>> edges;
    for (int vertex = 0; vertex < nr; vertex++) {
        for (int edge = 0; edge < COMPONENTS_DEGREE / 2; edge++) {
            int other = (int)(drawn(&random) * (float)(nr / COMPONENTS)) * COMPONENTS + vertex % COMPONENTS;
            edges.emplace_back(vertex, other);
        }
    }
    auto begins = made->make<int>(nr + 1);
    auto neighbours = made->make<int>(2 * edges.size());
    auto first = made->make<int>(nr), second = made->make<int>(nr);
    for (const auto &edge : edges) {
        begins[HOST][edge.first + 1]++;
        begins[HOST][edge.second + 1]++;
    }
    for (int vertex = 0; vertex < nr; vertex++) {
        begins[HOST][vertex + 1] += begins[HOST][vertex];
        first[HOST][vertex] = vertex;
    }
    std::vector<int> next(begins[HOST], begins[HOST] + nr);
    for (const auto &edge : edges) {
        neighbours[HOST][next[edge.first]++] = edge.second;
        neighbours[HOST][next[edge.second]++] = edge.first;
    }
    return finished(made, [&](int side) {
        return components_view{nr, begins[side], neighbours[side], {first[side], second[side]}};
    });
}

#endif
