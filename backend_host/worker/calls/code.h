/* Functions and kernels, saved and found again: see code.c. */
#ifndef BACKEND_HOST_CODE_H
#define BACKEND_HOST_CODE_H

#include "client/kind.h"

const char *fgw_code_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_code_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

#endif
