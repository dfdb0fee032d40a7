/* What modules, libraries and links share: sets of images, files, options of the compiler and its logs. */
#include "code/loading.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_api/fatbin.h"

#define MAX_FILE_BYTES ((off_t)1 << 31)

CUresult sgp_set_append(struct sgp_image_set *set, const void *image, size_t bytes)
{
    size_t offset = fgv_set_offset(set->bytes);
    uint8_t *grown = bytes > FGV_IMAGE_MAX_BYTES - offset ? NULL : realloc(set->start, offset + bytes);

    if (!grown) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(grown + set->bytes, 0, offset - set->bytes);
    memcpy(grown + offset, image, bytes);
    *set = (struct sgp_image_set){.start = grown, .bytes = offset + bytes};
    return CUDA_SUCCESS;
}

CUresult sgp_file_read(const char *name, void **data, size_t *bytes)
{
    struct stat status;
    size_t used = 0;
    ssize_t got = 1;
    int fd = open(name, O_RDONLY | O_CLOEXEC);

    *data = NULL;
    if (fd < 0) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY; /* what NVIDIA's driver says of a folder: it seems to have no end */
    }
    if (status.st_size >= MAX_FILE_BYTES || !(*data = calloc(1, (size_t)status.st_size + 64))) {
        close(fd);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    while (got > 0 && used < (size_t)status.st_size) {
        got = read(fd, (char *)*data + used, (size_t)status.st_size - used);
        used += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (bytes) {
        *bytes = used;
    }
    return CUDA_SUCCESS;
}

bool sgp_jit_options_are_ok(unsigned int nr_options, const CUjit_option *options, void *const *values)
{
    if (nr_options && (!options || !values)) {
        return false;
    }
    for (unsigned int i = 0; i < nr_options; i++) {
        if ((unsigned int)options[i] >= CU_JIT_NUM_OPTIONS) {
            return false;
        }
    }
    return true;
}

/* One of the program's logs: its buffer is filled, as far as there is room, and its size becomes what is filled. */
static void log_write(unsigned int nr_options, const CUjit_option *options, void **values, CUjit_option buffer_option,
                      const char *text)
{
    const CUjit_option size_option = buffer_option + 1;
    char *buffer = NULL;
    void **size = NULL;
    size_t bytes, length = strlen(text);

    for (unsigned int i = 0; options && values && i < nr_options; i++) {
        if (options[i] == buffer_option) {
            buffer = values[i];
        } else if (options[i] == size_option) {
            size = &values[i];
        }
    }
    bytes = size ? (uint32_t)(uintptr_t)*size : 0;
    if (buffer && bytes) {
        snprintf(buffer, bytes, "%s", text);
    }
    if (size) {
        *size = (void *)(uintptr_t)(!buffer || !bytes ? 0 : length < bytes ? length : bytes - 1);
    }
}

void sgp_jit_log(unsigned int nr_options, const CUjit_option *options, void **values, const char *text)
{
    log_write(nr_options, options, values, CU_JIT_INFO_LOG_BUFFER, ""); /* there is nothing to tell but errors */
    log_write(nr_options, options, values, CU_JIT_ERROR_LOG_BUFFER, text);
}
