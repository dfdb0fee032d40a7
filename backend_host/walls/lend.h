/* A device node of the host in the root folder of a worker that runs, and away again. */
#ifndef BACKEND_HOST_WALLS_LEND_H
#define BACKEND_HOST_WALLS_LEND_H

/* cffi: begin */
/* Binds the node `path` of this process's root at the same path in the root of the process that `pidfd` names, which is
 * not this one's. 0, or an errno: nothing has changed then. */
int fgw_walls_lend(int pidfd, const char *path);
/* Takes it away; what is open stays open. 0, or an errno. */
int fgw_walls_take_back(int pidfd, const char *path);
/* cffi: end */

/* Takes these away from this process's own root, which may mount still; the last one is NULL. 0, or an errno. */
int fgw_walls_take_away(const char *const *paths);

#endif
