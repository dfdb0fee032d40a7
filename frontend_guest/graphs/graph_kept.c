/* What CUDA owns and the program may read: parameters of kernel nodes, bodies of conditional nodes. By node. Child
 * graphs are entered with nothing, for what they die with. */
#include "graphs/graph_kept.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "graphs/graph_update.h"

#define NR_BUCKETS 1024u

struct kept {
    struct kept *next;
    uint64_t node;
    uint64_t root; /* the graph that the node dies with */
    size_t bytes;
    void *block;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *buckets[NR_BUCKETS];

static struct kept **place_of(uint64_t node)
{
    struct kept **link = &buckets[node % NR_BUCKETS];
    while (*link && (*link)->node != node) {
        link = &(*link)->next;
    }
    return link;
}

static void unlink_kept(struct kept **link)
{
    struct kept *kept = *link;
    *link = kept->next;
    free(kept->block);
    free(kept);
}

void *fgv_kept_block(uint64_t node, uint64_t root, size_t bytes)
{
    pthread_mutex_lock(&lock);
    struct kept **link = place_of(node);
    struct kept *kept = *link;
    if (kept && kept->bytes != bytes) {
        unlink_kept(link);
        kept = NULL;
    }
    if (!kept && (kept = malloc(sizeof(*kept)))) {
        link = &buckets[node % NR_BUCKETS];
        *kept = (struct kept){.next = *link, .node = node, .root = root, .bytes = bytes, .block = malloc(bytes + 1)};
        *link = kept;
    }
    void *block = !kept ? NULL : kept->block;
    pthread_mutex_unlock(&lock);
    return block;
}

void fgv_kept_drop(uint64_t node)
{
    pthread_mutex_lock(&lock);
    struct kept **link = place_of(node);
    if (*link) {
        unlink_kept(link);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t fgv_kept_root(uint64_t graph)
{
    pthread_mutex_lock(&lock);
    const struct kept *kept = *place_of(graph);
    const uint64_t root = !kept ? graph : kept->root;
    pthread_mutex_unlock(&lock);
    return root;
}

void fgv_graph_forget(uint64_t graph)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < NR_BUCKETS; i++) {
        struct kept **link = &buckets[i];
        while (*link) {
            if ((*link)->root == graph) {
                unlink_kept(link);
            } else {
                link = &(*link)->next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    fgv_update_forget_graph(graph);
    fgv_user_objects_drop(graph);
}
