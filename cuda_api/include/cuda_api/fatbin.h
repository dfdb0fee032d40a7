/*
 * How long is an image? cuModuleLoadData and cuLibraryLoadData get a bare pointer, and the length is for us to find.
 *
 * Four things may be there: the wrapper that nvcc's programs register, whose pointer leads to a fat binary; the fat
 * binary itself; a cubin (ELF); or PTX text that ends with a NUL. The layouts are described in cuda_api/fatbin.py,
 * which looks inside.
 *
 * A program of separately compiled files registers a wrapper of version 2. The fat binary behind it is what its files
 * were linked to, and a list that ends with NULL leads to those that they came as, for a driver that must link for
 * another GPU. Where such images travel together each begins at a multiple of 8 bytes: see fgv_set_offset.
 *
 * Two users. A library that stands in for the driver has the program's pointer and no length: fgv_image_bytes. A host
 * that was sent an image must not hand it to a driver that will read as far as the image says: fgv_image_measure reads
 * no byte beyond the given limit, and the image is whole if it is as long as what was sent. Copy what came from a guest
 * to private memory first: it is read more than once.
 *
 * Wrong when: somebody passes a truncated image without telling its length. Nobody could know; NVIDIA's driver reads on
 * as well.
 */
#ifndef CUDA_API_FATBIN_H
#define CUDA_API_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_api/types.h"

#define FGV_FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FGV_FATBIN_HEADER_MAGIC  0xba55ed50u
#define FGV_ELF_MACHINE_CUDA     190

/* More is taken for garbage. The largest fat binaries known, those of cuBLASLt, have some hundred MiB. */
#define FGV_IMAGE_MAX_BYTES ((size_t)2 << 30)

/* Files of one program. More is an attack on the memory that lists them. */
#define FGV_MAX_PRELINKED 4096u

#define FGV_SET_ALIGNMENT_BYTES 8u

enum fgv_image_kind {
    FGV_IMAGE_FATBIN = 1, /* begins with the fat binary's header */
    FGV_IMAGE_ELF = 2,
    FGV_IMAGE_PTX = 3, /* the terminating NUL is counted */
};

struct fgv_fatbin_wrapper {
    uint32_t magic;
    uint32_t version; /* 1 or 2 */
    const void *data;
    const void *filename_or_prelinked;
};

struct fgv_fatbin_header {
    uint32_t magic;
    uint16_t version; /* 1 */
    uint16_t header_bytes;
    uint64_t entries_bytes;
};

/* The parts of an ELF64 header that tell its length; elf.h is not there on every system a guest library is built on. */
struct fgv_elf_header {
    uint8_t identification[16];
    uint16_t type;
    uint16_t machine;
    uint32_t version;
    uint64_t entry;
    uint64_t program_headers_offset;
    uint64_t section_headers_offset;
    uint32_t flags;
    uint16_t header_bytes;
    uint16_t program_header_bytes;
    uint16_t nr_program_headers;
    uint16_t section_header_bytes;
    uint16_t nr_section_headers;
    uint16_t names_section;
};

_Static_assert(sizeof(struct fgv_fatbin_wrapper) == 24, "as nvcc lays it out");
_Static_assert(sizeof(struct fgv_fatbin_header) == 16, "as nvcc lays it out");
_Static_assert(sizeof(struct fgv_elf_header) == 64, "as ELF64 lays it out");

/* Widens *end to offset + bytes; false when that is beyond the limit. */
static inline bool fgv_image_extend(uint64_t *end, uint64_t offset, uint64_t bytes, size_t limit_bytes)
{
    if (offset > limit_bytes || bytes > limit_bytes - offset) {
        return false;
    }
    if (offset + bytes > *end) {
        *end = offset + bytes;
    }
    return true;
}

/*
 * Where the parts end that a table of headers lists: each header has a 64-bit offset and a 64-bit size at the given
 * places, and a 32-bit type; parts of the type `absent` take no room in the file.
 */
static inline bool fgv_elf_parts_extend(uint64_t *end, const uint8_t *table, size_t nr, size_t stride,
                                        const size_t places[3], uint32_t absent, size_t limit_bytes)
{
    for (size_t i = 0; i < nr; i++, table += stride) {
        uint32_t type;
        uint64_t offset;
        uint64_t bytes;
        memcpy(&type, table + places[0], sizeof(type));
        memcpy(&offset, table + places[1], sizeof(offset));
        memcpy(&bytes, table + places[2], sizeof(bytes));
        if (type != absent && !fgv_image_extend(end, offset, bytes, limit_bytes)) {
            return false;
        }
    }
    return true;
}

/* Length of an ELF64 cubin: the furthest end of its header tables and of what they list. 0 when it is none. */
static inline size_t fgv_elf_bytes(const uint8_t *start, size_t limit_bytes)
{
    static const size_t section_places[3] = {4, 24, 32};
    static const size_t program_places[3] = {0, 8, 32};
    struct fgv_elf_header elf;
    uint64_t end = sizeof(elf);
    if (limit_bytes < sizeof(elf)) {
        return 0;
    }
    memcpy(&elf, start, sizeof(elf));
    if (elf.identification[4] != 2 || elf.identification[5] != 1 || elf.machine != FGV_ELF_MACHINE_CUDA) {
        return 0; /* 64 bits, little endian, for a GPU */
    }
    if ((elf.nr_section_headers > 0 && elf.section_header_bytes != 64) ||
        (elf.nr_program_headers > 0 && elf.program_header_bytes != 56)) {
        return 0;
    }
    if (!fgv_image_extend(&end, elf.section_headers_offset, (uint64_t)elf.nr_section_headers * 64, limit_bytes) ||
        !fgv_image_extend(&end, elf.program_headers_offset, (uint64_t)elf.nr_program_headers * 56, limit_bytes)) {
        return 0;
    }
    /* Sections of type 8 (NOBITS) have a size and no content. Segments of type 0 (NULL) mean nothing. */
    if (!fgv_elf_parts_extend(&end, start + elf.section_headers_offset, elf.nr_section_headers, 64, section_places, 8,
                              limit_bytes) ||
        !fgv_elf_parts_extend(&end, start + elf.program_headers_offset, elf.nr_program_headers, 56, program_places, 0,
                              limit_bytes)) {
        return 0;
    }
    return (size_t)end;
}

/* Skips white space and comments; what is left of PTX must begin with ".version". */
static inline bool fgv_text_is_ptx(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    for (;;) {
        while (text < end && (*text == ' ' || (*text >= '\t' && *text <= '\r'))) {
            text++;
        }
        if (end - text < 2 || text[0] != '/') {
            return end - text >= 8 && memcmp(text, ".version", 8) == 0;
        }
        if (text[1] == '/') {
            while (text < end && *text != '\n') {
                text++;
            }
        } else if (text[1] == '*') {
            for (text += 2; end - text >= 2 && (text[0] != '*' || text[1] != '/'); text++) {
                continue;
            }
            text += end - text >= 2 ? 2 : end - text;
        } else {
            return false;
        }
    }
}

/*
 * Kind and length of the image at `start`, of which no byte at or after start[limit_bytes] is read. Wrappers are not
 * followed: their pointer is another process's here. CUDA_ERROR_INVALID_IMAGE: none of the kinds, or longer than the
 * limit.
 */
static inline CUresult fgv_image_measure(const void *start, size_t limit_bytes, size_t *bytes,
                                         enum fgv_image_kind *kind)
{
    struct fgv_fatbin_header header;
    const uint8_t *text = start;
    if (limit_bytes > FGV_IMAGE_MAX_BYTES) {
        limit_bytes = FGV_IMAGE_MAX_BYTES;
    }
    /* Byte by byte: the text of an unknown length may end before four bytes do. */
    if (limit_bytes >= 4 && text[0] == 0x7f && text[1] == 'E' && text[2] == 'L' && text[3] == 'F') {
        *kind = FGV_IMAGE_ELF;
        *bytes = fgv_elf_bytes(start, limit_bytes);
        return *bytes == 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
    }
    if (limit_bytes >= sizeof(header) && text[0] == 0x50 && text[1] == 0xed && text[2] == 0x55 && text[3] == 0xba) {
        memcpy(&header, start, sizeof(header));
        if (header.version != 1 || header.header_bytes < sizeof(header) || header.header_bytes > limit_bytes ||
            header.entries_bytes > limit_bytes - header.header_bytes) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        *kind = FGV_IMAGE_FATBIN;
        *bytes = header.header_bytes + (size_t)header.entries_bytes;
        return CUDA_SUCCESS;
    }
    const uint8_t *terminator = memchr(text, 0, limit_bytes);
    if (!terminator || !fgv_text_is_ptx(start, (size_t)(terminator - text))) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *kind = FGV_IMAGE_PTX;
    *bytes = (size_t)(terminator - text) + 1;
    return CUDA_SUCCESS;
}

/* Where an image begins: behind its wrapper if it has one. NULL: a wrapper of unknown version, or leading nowhere. */
static inline const void *fgv_image_start(const void *image)
{
    static const uint8_t magic[4] = {0xb1, 0x43, 0x62, 0x46};
    const uint8_t *byte = image;
    for (size_t i = 0; i < sizeof(magic); i++) {
        if (byte[i] != magic[i]) { /* stops at the NUL of a shorter text */
            return image;
        }
    }
    struct fgv_fatbin_wrapper wrapper;
    memcpy(&wrapper, image, sizeof(wrapper));
    return wrapper.version == 1 || wrapper.version == 2 ? wrapper.data : NULL;
}

/* Where the next image of a set begins, behind one that ends here. */
static inline uint64_t fgv_set_offset(uint64_t end)
{
    return (end + FGV_SET_ALIGNMENT_BYTES - 1) / FGV_SET_ALIGNMENT_BYTES * FGV_SET_ALIGNMENT_BYTES;
}

/*
 * The fat binaries that the one behind an image's wrapper was linked from; 0: none. CUDA_ERROR_INVALID_IMAGE: more than
 * anybody links, or a list without an end.
 */
static inline CUresult fgv_image_prelinked(const void *image, const void *const **list, uint32_t *nr)
{
    struct fgv_fatbin_wrapper wrapper = {.version = 0};
    *nr = 0;
    if (image && fgv_image_start(image) != image) {
        memcpy(&wrapper, image, sizeof(wrapper));
    }
    *list = wrapper.version == 2 ? (const void *const *)wrapper.filename_or_prelinked : NULL;
    while (*list && (*list)[*nr]) {
        if (++*nr > FGV_MAX_PRELINKED) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
    }
    return CUDA_SUCCESS;
}

/* Kind and length of an image that this process's own program passed; the bytes are those at fgv_image_start(image). */
static inline CUresult fgv_image_bytes(const void *image, size_t *bytes, enum fgv_image_kind *kind)
{
    if (!image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const void *start = fgv_image_start(image);
    if (!start) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return fgv_image_measure(start, FGV_IMAGE_MAX_BYTES, bytes, kind);
}

#endif
