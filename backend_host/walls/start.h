/*
 * How the daemon starts a worker behind walls: in namespaces of its own, with a root folder of its own in which only
 * that is which the plan names, with few privileges and with limits. What a worker gives up once it knows its guest is
 * enter.h.
 */
#ifndef BACKEND_HOST_WALLS_START_H
#define BACKEND_HOST_WALLS_START_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
enum fgw_walls_entry_kind {
    FGW_WALLS_READ = 1, /* a file or folder, read-only, the one of the same path outside or of `other` */
    FGW_WALLS_DEVICE,   /* a device node */
    FGW_WALLS_WRITE,    /* a file that the worker writes */
    FGW_WALLS_LINK,     /* a symbolic link to `other` */
    FGW_WALLS_MEMORY, /* an empty folder in memory that anybody inside may write; `other` is the options of its tmpfs */
    FGW_WALLS_PROCESSES, /* the processes of the namespace, as procfs shows them; `other` is its options */
    FGW_WALLS_FOLDER,    /* an empty folder, to mount something on */
    FGW_WALLS_CACHES,    /* the folders of all tenants, `other` outside; a worker keeps its own alone (enter.h) */
};
struct fgw_walls_entry {
    uint32_t kind;
    const char *path;  /* inside: absolute, without links on the way but those of earlier entries */
    const char *other; /* NULL: see the kind */
};
struct fgw_walls_limit {
    int32_t resource; /* RLIMIT_... */
    uint64_t most;
};
struct fgw_walls_plan {
    char *const *command; /* as execve takes it, like `environment` */
    char *const *environment;
    const char *folder;
    int32_t kept_fd;     /* stays open at its number; -1: none */
    int32_t error_fd;    /* becomes standard error; -1: ours. Input and output are /dev/null */
    uint64_t namespaces; /* CLONE_NEW... */
    bool has_root;       /* `entries` make a root of its own; needs a mount namespace */
    bool has_landlock;
    uint32_t nr_entries;
    const struct fgw_walls_entry *entries; /* a folder stands before what is in it */
    uint32_t nr_limits;
    const struct fgw_walls_limit *limits;
};

/* Starts a process behind these walls; returns its id once it runs `command`, and a descriptor of it in `pidfd`. -1:
 * none was started, and `error` says in one line what could not be had. */
int fgw_walls_start(const struct fgw_walls_plan *plan, int *pidfd, char *error, uint32_t error_bytes);
/* Which version of Landlock the kernel has, 0: none. */
int fgw_walls_landlock_version(void);
/* cffi: end */

/* root.c, in the new process: makes the root folder and goes there. False: errno, and `at` says which entry. */
bool fgw_walls_make_root(const struct fgw_walls_plan *plan, const char **at);

#endif
