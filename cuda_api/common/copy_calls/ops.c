/* Keeps what the library lent: see ops.h. */
#include "ops.h"

static const struct fgv_copy_ops *ops;

void fgv_copy_set_ops(const struct fgv_copy_ops *lent)
{
    ops = lent;
}

const struct fgv_copy_ops *fgv_copy_ops_get(void)
{
    return ops;
}
