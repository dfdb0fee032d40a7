/* Device files of FairGV's kernel module, which are for a group of users: frontend_guest/kmod. */
#ifndef FRONTEND_GUEST_NODE_H
#define FRONTEND_GUEST_NODE_H

#include <stdbool.h>
#include <stddef.h>

/* Opens the first file with this prefix and a number whose content is accepted, and fills `path` with its name. -1:
 * none; `denied` is set when the one in `path` is not for this user. */
int fgv_node_open(const char *prefix, bool (*accepts)(int file), char *path, size_t path_bytes, bool *denied);

#endif
