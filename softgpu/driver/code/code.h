/* Compiled code comes into this process as a shared object. Without the lock. */
#ifndef SOFTGPU_CODE_H
#define SOFTGPU_CODE_H

#include "base/driver.h"
#include "kernel_abi.h"

struct sgp_code {
    void *shared_object;
    const struct sgp_module *module;
};

/* On failure what is open stays so, for sgp_code_close. */
CUresult sgp_code_open(const char *path, struct sgp_code *code);
void sgp_code_close(struct sgp_code *code);

#endif
