/* The kernel of BFS.cu as a plain loop. Several threads may give a vertex its level: all give the same. */
#include <stddef.h>

#include "BFS.h"

bool bfs_loops(const struct bfs_graph *graph, int32_t *levels, int32_t level)
{
    int is_found = 0;
#pragma omp parallel for reduction(| : is_found) schedule(dynamic, 1024)
    for (uint32_t vertex = 0; vertex < graph->nr_vertices; vertex++) {
        int32_t mine;
#pragma omp atomic read
        mine = levels[vertex];
        if (mine != level) {
            continue;
        }
        for (uint32_t edge = graph->first[vertex]; edge < graph->first[vertex + 1]; edge++) {
            int32_t *target = &levels[graph->targets[edge]], theirs;
#pragma omp atomic read
            theirs = *target;
            if (theirs == BFS_UNSEEN) {
#pragma omp atomic write
                *target = level + 1;
                is_found = 1;
            }
        }
    }
    return is_found;
}
