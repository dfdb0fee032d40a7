/* Modules and libraries: code that was loaded, and the functions in it that the program knows. */
#ifndef FRONTEND_GUEST_CODE_H
#define FRONTEND_GUEST_CODE_H

#include "code/function.h"

struct fgv_code {
    enum fgv_handle_kind kind;
    uint64_t handle;
    uint64_t library;            /* of a module that cuLibraryGetModule gave */
    struct fgv_context *context; /* of a module */
    struct fgv_function *functions;
};

/* Whether the program wants functions loaded with their module, and not when they are launched first. */
bool fgv_code_is_eager(void);
/* Whether a call about a module or library may be made: libraries need no current context. */
CUresult fgv_code_allowed(enum fgv_handle_kind kind);
/* The record of a module or library; NULL without memory. */
struct fgv_code *fgv_code_make(enum fgv_handle_kind kind, uint64_t handle);
/* Forgets a module or library, its functions, its variables; the handle itself is dropped when `drops`. */
void fgv_code_free(struct fgv_code *code, bool drops);
/* A function by name: the known one, else asked for. */
CUresult fgv_code_function(enum fgv_handle_kind kind, uint64_t owner, const char *name, uint64_t *handle);
CUresult fgv_code_global(uint16_t number, uint64_t owner, const char *name, CUdeviceptr *address, size_t *bytes);
/* cuModuleEnumerateFunctions and cuLibraryEnumerateKernels. */
CUresult fgv_code_enumerate(uint16_t number, enum fgv_handle_kind kind, uint64_t owner, uint32_t count,
                            uint64_t *handles);

#endif
