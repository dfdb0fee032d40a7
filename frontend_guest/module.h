/* Modules and libraries: code that was loaded, and the functions in it that the program knows. */
#ifndef FRONTEND_GUEST_MODULE_H
#define FRONTEND_GUEST_MODULE_H

#include "function.h"

struct fgv_code {
    enum fgv_handle_kind kind;
    uint64_t handle;
    uint64_t library;            /* of a module that cuLibraryGetModule gave */
    struct fgv_context *context; /* of a module */
    struct fgv_function *functions;
};

/* What the program wants of the just-in-time compiler. */
struct fgv_jit_options {
    unsigned nr;
    const CUjit_option *options;
    void **values;
};

/* Whether a call about a module or library may be made: libraries need no current context. */
CUresult fgv_code_allowed(enum fgv_handle_kind kind);
/* Sends bytes to the worker, which keeps them under a number until a call takes them. */
CUresult fgv_blob_send(const void *bytes, uint64_t nr_bytes, uint64_t *blob);
/* Sends the image to the worker and has it loaded under a new handle. */
CUresult fgv_image_load(enum fgv_handle_kind kind, const void *image, const struct fgv_jit_options *options,
                        uint64_t *handle);
/* A file's bytes and a terminating zero, which makes text of PTX; the caller frees. NULL: not readable. */
uint8_t *fgv_file_read(const char *path, size_t *nr_bytes);
CUresult fgv_image_load_file(enum fgv_handle_kind kind, const char *path, const struct fgv_jit_options *options,
                             uint64_t *handle);
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
void fgv_module_forget_context(struct fgv_context *context);

#endif
