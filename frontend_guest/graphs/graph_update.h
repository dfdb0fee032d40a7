/*
 * Updates of what was instantiated of a graph. A program changes the same nodes before each launch, and nothing but
 * values and addresses in them. What went well once goes well again as long as it differs in nothing that the driver
 * could refuse: such an update is not waited for. The first one of a node is, and any that is not like the last.
 */
#ifndef FRONTEND_GUEST_GRAPH_UPDATE_H
#define FRONTEND_GUEST_GRAPH_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "copy/staging.h"
#include "cuda_api/types.h"

/* params: as they are sent, with numbers for handles. Whether the driver cannot refuse them for this node. */
bool fgv_update_is_sound(uint64_t exec, uint64_t node, const CUgraphNodeParams *params);
/* The driver took them. root: the graph that the node dies with. staging: of a copy; the next one of a copy that has
 * any is waited for. */
void fgv_update_remember(uint64_t exec, uint64_t node, uint64_t root, const CUgraphNodeParams *params,
                         const struct fgv_staging *staging);
/* What was remembered last of a copy; false: nothing was. */
bool fgv_update_copy(uint64_t exec, uint64_t node, CUgraphNodeParams *params, struct fgv_staging *staging);
/* Whether it is known to be of a kind that can be disabled, and in this graph; and the driver did that. */
bool fgv_update_may_be_disabled(uint64_t exec, uint64_t node);
void fgv_update_remember_disabled(uint64_t exec, uint64_t node);
/* Everything about an executable graph, about a node, about the nodes of a graph is forgotten. */
void fgv_update_forget_exec(uint64_t exec);
void fgv_update_forget_node(uint64_t node);
void fgv_update_forget_graph(uint64_t root);
/* Some graph got another shape: as a child graph it may not fit any more. */
void fgv_update_reshaped(void);

#endif
