/*
 * The optimised code of an image that was loaded as quick code (compile.c), from the launch on at which it is found.
 *
 * Both are made of one text, so that they differ in the addresses of their functions alone. Whatever the program sees
 * (handles, attributes, globals, the numbers that are the addresses of device functions) stays that of the quick code,
 * which stays loaded; a launch takes what it calls from the optimised code. Should the tables differ all the same, the
 * quick code serves to the end.
 */
#include "code/tier.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "code/code.h"
#include "code/compile.h"

#define LOOK_NS 5000000ull /* from look to look: one takes a microsecond */
#define NEVER   UINT64_MAX

struct sgp_tier {
    _Atomic(const struct sgp_module *) module; /* NULL: not there yet */
    _Atomic uint64_t look_ns;                  /* when to look next; NEVER while a thread does */
    struct sgp_code code;
    char path[PATH_MAX];
};

struct sgp_tier *sgp_tier_new(const char *optimised)
{
    struct sgp_tier *tier = calloc(1, sizeof(*tier));

    if (tier) {
        strcpy(tier->path, optimised);
    }
    return tier;
}

void sgp_tier_delete(struct sgp_tier *tier)
{
    if (tier) {
        sgp_code_close(&tier->code);
    }
    free(tier);
}

static bool kernels_agree(const struct sgp_kernel *quick, const struct sgp_kernel *optimised)
{
    const size_t begin = offsetof(struct sgp_kernel, nr_parameters);
    const size_t end = offsetof(struct sgp_kernel, context_bytes) + sizeof(quick->context_bytes);

    return !strcmp(quick->name, optimised->name) &&
           !memcmp((const char *)quick + begin, (const char *)optimised + begin, end - begin) &&
           !quick->run_thread == !optimised->run_thread && !quick->run_block == !optimised->run_block &&
           (!quick->nr_parameters ||
            !memcmp(quick->parameters, optimised->parameters, quick->nr_parameters * sizeof(*quick->parameters)));
}

static bool globals_agree(const struct sgp_module *quick, const struct sgp_module *optimised)
{
    return quick->globals_bytes == optimised->globals_bytes && quick->image_bytes == optimised->image_bytes &&
           (!quick->image_bytes || !memcmp(quick->globals_image, optimised->globals_image, quick->image_bytes));
}

static bool modules_agree(const struct sgp_module *quick, const struct sgp_module *optimised)
{
    if (quick->nr_kernels != optimised->nr_kernels || !globals_agree(quick, optimised)) {
        return false;
    }
    for (uint32_t i = 0; i < quick->nr_kernels; i++) {
        if (!kernels_agree(&quick->kernels[i], &optimised->kernels[i])) {
            return false;
        }
    }
    return true;
}

/* By one thread at a time. */
static void look(struct sgp_tier *tier, const struct sgp_module *quick)
{
    if (!sgp_compiled_look(tier->path)) {
        atomic_store(&tier->look_ns, sgp_now_ns() + LOOK_NS);
        return;
    }
    if (sgp_code_open(tier->path, &tier->code)) {
        return;
    }
    if (!modules_agree(quick, tier->code.module)) {
        sgp_log("compile", "%s is not what was compiled quickly", tier->path);
        return;
    }
    sgp_log("compile", "%s from here on", tier->path);
    atomic_store(&tier->module, tier->code.module);
}

const struct sgp_kernel *sgp_tier_kernel(struct sgp_tier *tier, const struct sgp_module *quick,
                                         const struct sgp_kernel *kernel)
{
    const struct sgp_module *optimised = tier ? atomic_load(&tier->module) : NULL;

    if (tier && !optimised) {
        uint64_t look_ns = atomic_load(&tier->look_ns);

        if (sgp_now_ns() >= look_ns && atomic_compare_exchange_strong(&tier->look_ns, &look_ns, NEVER)) {
            look(tier, quick);
        }
        optimised = atomic_load(&tier->module);
    }
    return optimised ? &optimised->kernels[kernel - quick->kernels] : kernel;
}
