/* Keeps what the library lent: see ops.h. */
#include "ops.h"

static const struct fgv_graph_ops *ops;

void fgv_graph_set_ops(const struct fgv_graph_ops *lent)
{
    ops = lent;
}

const struct fgv_graph_ops *fgv_graph_ops_get(void)
{
    return ops;
}
