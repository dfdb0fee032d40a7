/*
 * Functions and kernels: both are a struct fgv_function here. What a launch and the questions of the runtime need
 * (parameter layout, attributes, name) is fetched once, with the handle.
 */
#ifndef FRONTEND_GUEST_FUNCTION_H
#define FRONTEND_GUEST_FUNCTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/wire.h"

#define FGV_NR_OCCUPANCIES 8u

struct fgv_context;

/* An answer about occupancy, kept: launchers ask the same question before every launch. */
struct fgv_occupancy {
    uint64_t question[3];
    uint64_t answer;
    uint16_t call; /* 0: empty */
};

struct fgv_function {
    uint64_t handle;
    uint64_t owner;              /* module of a function, library of a kernel */
    uint64_t kernel;             /* kernel that a function belongs to, 0 for a module's own */
    struct fgv_context *context; /* of a function */
    char *name;                  /* NULL while unknown: it was enumerated */
    _Atomic uint32_t is_known;   /* the fields up to `attributes` are filled */
    uint32_t nr_parameters;
    uint32_t parameter_bytes;
    struct fgv_parameter *parameters;
    int32_t attributes[FGV_NR_FUNCTION_ATTRIBUTES]; /* by CUfunction_attribute */
    struct fgv_occupancy occupancies[FGV_NR_OCCUPANCIES];
    uint32_t next_occupancy;
    enum fgv_handle_kind kind;
    struct fgv_function *next;    /* of the same owner */
    struct fgv_function *derived; /* of a kernel: its functions, one in each context */
};

/* Guards lists, names, attributes that change, and occupancies. Held for moments only, never across a wait for the
 * host. */
extern pthread_mutex_t fgv_code_lock;

/* Asks for what is not known of an enumerated function. */
CUresult fgv_function_know(struct fgv_function *function);
/* Asks the worker for a function of a module, or a kernel of a library, by name. *made is not in any list yet. */
CUresult fgv_function_fetch(enum fgv_handle_kind kind, uint64_t owner, const char *name, struct fgv_function **made);
/* A record for a handle that the worker has just learned. NULL without memory. */
struct fgv_function *fgv_function_make(enum fgv_handle_kind kind, uint64_t handle, uint64_t owner);
/* Drops the handle and frees the record, derived functions too. Under the lock. */
void fgv_function_free(struct fgv_function *function);
/* Frees the functions of a kernel that belong to a context; NULL: all. Under the lock. */
void fgv_function_free_derived(struct fgv_function *kernel, const struct fgv_context *context);
/* The function for a call that also takes a kernel in its place. */
CUresult fgv_function_of_either(CUfunction either, struct fgv_function **function);

#endif
