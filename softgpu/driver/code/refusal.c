/*
 * Images that softgpu cannot run, in words. Many programs and libraries do not look at what their launches return, and
 * go on with what they find in memory: so it is said where the user sees it, whoever else hears of it.
 */
#include "code/refusal.h"

#include <stdio.h>

#include "base/notice.h"
#include "cuda_api/fatbin_choice.h"

#define MAX_ARCHITECTURES     8u
#define ELF_VERSION_AT        8u
#define ELF_VERSION_SINCE_130 8u
#define HELP                                                                                                           \
    "softgpu runs PTX: build with -gencode arch=compute_80,code=compute_80; for CuPy set CUPY_COMPILE_WITH_PTX=1, "    \
    "for Numba remove nvidia-nvjitlink"

struct architectures {
    uint32_t of[MAX_ARCHITECTURES];
    uint32_t nr;
    bool has_more;
};

static void note(struct architectures *architectures, uint32_t architecture)
{
    for (uint32_t i = 0; i < architectures->nr; i++) {
        if (architectures->of[i] == architecture) {
            return;
        }
    }
    if (architectures->nr < MAX_ARCHITECTURES) {
        architectures->of[architectures->nr++] = architecture;
    } else {
        architectures->has_more = true;
    }
}

/* nvcc 13 moved the number of the architecture up by a byte, and counts the format's version up with it. */
static bool cubin_note(struct architectures *architectures, const uint8_t *image, size_t bytes)
{
    struct fgv_elf_header header;

    if (bytes < sizeof(header)) {
        return false;
    }
    memcpy(&header, image, sizeof(header));
    note(architectures, header.identification[ELF_VERSION_AT] >= ELF_VERSION_SINCE_130 ? header.flags >> 8 & 0xff
                                                                                       : header.flags & 0xff);
    return true;
}

/* False: there is something else in it than machine code. */
static bool fatbin_note(struct architectures *architectures, const uint8_t *image, size_t bytes)
{
    struct fgv_fatbin_header header;
    struct fgv_fatbin_entry entry;

    if (bytes < sizeof(header)) {
        return false;
    }
    memcpy(&header, image, sizeof(header));
    if (header.header_bytes != sizeof(header) || header.entries_bytes != bytes - sizeof(header)) {
        return false;
    }
    for (uint64_t at = 0; at < header.entries_bytes;) {
        if (!fgv_fatbin_entry_at(image + sizeof(header), header.entries_bytes, at, &entry, &at) ||
            entry.kind != FGV_FATBIN_ELF) {
            return false;
        }
        note(architectures, entry.architecture);
    }
    return architectures->nr > 0;
}

bool sgp_image_lacks_ptx(enum fgv_image_kind kind, const void *image, size_t bytes, char *text, size_t text_bytes)
{
    struct architectures architectures = {.nr = 0};
    size_t used = 0;

    if (kind == FGV_IMAGE_PTX || !(kind == FGV_IMAGE_ELF ? cubin_note(&architectures, image, bytes)
                                                         : fatbin_note(&architectures, image, bytes))) {
        return false;
    }
    for (uint32_t i = 0; i < architectures.nr && used < text_bytes; i++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%u",
                                 i ? ", sm_" : "an image has machine code for sm_", architectures.of[i]);
    }
    if (used < text_bytes) {
        snprintf(text + used, text_bytes - used, "%s and no PTX", architectures.has_more ? " and others" : "");
    }
    return true;
}

/* Without what the compiler's words begin with for the driver: "softgpu: CUDA_ERROR_...: ". */
static const char *words_of(const char *text)
{
    static const char start[] = "softgpu: CUDA_ERROR_";
    const char *words = strncmp(text, start, sizeof(start) - 1) ? NULL : strstr(text + sizeof(start), ": ");

    return words ? words + 2 : text;
}

void sgp_refusal_tell(CUresult result, const char *error_text)
{
    const char *text = words_of(error_text);

    switch (result) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        sgp_notice("softgpu: %s; " HELP, *text ? text : "an image has no PTX");
        return;
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        sgp_notice("softgpu: no image loads: %s", text);
        return;
    case CUDA_ERROR_NOT_SUPPORTED:
        sgp_notice("softgpu: an image does not load: %s", text);
        return;
    default:
        return;
    }
}
