/* BFS: what the device part and the loops share. */
#ifndef BENCHMARKS_PROGRAMS_BFS_H
#define BENCHMARKS_PROGRAMS_BFS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BFS_UNSEEN = -1 };

/* Edges of vertex v lead to targets[first[v]] up to targets[first[v + 1] - 1]. */
struct bfs_graph {
    const uint32_t *first, *targets;
    uint32_t nr_vertices;
};

/* Vertices of `level` give the next one to all that they lead to and that have none; whether there were any. */
bool bfs_loops(const struct bfs_graph *graph, int32_t *levels, int32_t level);

#ifdef __cplusplus
}
#endif

#endif
