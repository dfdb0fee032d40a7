/* Finding a file of the kernel module: see node.h. */
#include "base/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define NR_NODES 16u /* numbers of devices that were taken out leave gaps */

int fgv_node_open(const char *prefix, bool (*accepts)(int file), char *path, size_t path_bytes, bool *denied)
{
    for (unsigned i = 0; i < NR_NODES; i++) {
        snprintf(path, path_bytes, "%s%u", prefix, i);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file >= 0 && accepts(file)) {
            return file;
        }
        if (file >= 0) {
            close(file);
        } else if (errno == EACCES || errno == EPERM) {
            *denied = true;
            return -1;
        }
    }
    return -1;
}
