/* Compiled code in this process: a shared object and its tables. */
#include "code/code.h"

#include <dlfcn.h>

#include "base/view.h"
#include "device/attributes.h"

static bool kernel_is_sound(const struct sgp_kernel *kernel)
{
    return kernel->name && (kernel->needs_threads ? !!kernel->run_thread : !!kernel->run_block) &&
           kernel->parameters_bytes <= SGP_MAX_PARAMETERS_BYTES &&
           kernel->static_shared_bytes <= SGP_MAX_STATIC_SHARED_BYTES && kernel->stack_bytes <= (64u << 20);
}

CUresult sgp_code_open(const char *path, struct sgp_code *code)
{
    code->shared_object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    sgp_view_outdate();
    if (!code->shared_object) {
        sgp_log("compile", "cannot load %s: %s", path, dlerror());
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    code->module = dlsym(code->shared_object, SGP_MODULE_SYMBOL);
    if (!code->module || code->module->abi_version != SGP_ABI_VERSION) {
        sgp_log("compile", "%s was made for another version of softgpu", path);
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    for (uint32_t i = 0; i < code->module->nr_kernels; i++) {
        if (!kernel_is_sound(&code->module->kernels[i])) {
            sgp_log("compile", "%s: kernel %s asks for more than the device has", path, code->module->kernels[i].name);
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    return CUDA_SUCCESS;
}

void sgp_code_close(struct sgp_code *code)
{
    if (code->shared_object) {
        dlclose(code->shared_object);
    }
}
