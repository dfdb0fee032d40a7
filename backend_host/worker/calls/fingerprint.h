/*
 * Fingerprints of linear memory, which a kernel of the worker's own takes in the client's context: they tell what
 * changed since it was copied, at the speed of reading it.
 *
 * A print is of FGW_PRINT_BYTES: two polynomials over the field of 2^61 - 1, whose coefficients are the memory's words
 * of 32 bits, at two points that are drawn anew in each worker. Two such memories that differ have the same print for
 * at most 2^19 of 2^61 points, so for one pair of points in 2^84.
 *
 * Wrong when: the client learns the points. It could then lose what it wrote itself, and nothing else.
 */
#ifndef BACKEND_HOST_WORKER_FINGERPRINT_H
#define BACKEND_HOST_WORKER_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/driver.h"

#define FGW_PRINT_BYTES (UINT64_C(2) << 20)

struct fgw_print {
    uint64_t values[2];
    uint64_t bits; /* all words, or-ed: 0 where all of them are */
    uint64_t nothing;
};

static inline bool fgw_print_is_zero(const struct fgw_print *print)
{
    return print->bits == 0;
}

static inline bool fgw_print_is_same(const struct fgw_print *print, const struct fgw_print *other)
{
    return print->values[0] == other->values[0] && print->values[1] == other->values[1];
}

/* What prints told of memory that has been printed before. */
struct fgw_compared {
    uint64_t bytes, changed_bytes;
};

/* A print of the memory whose print was `before`. */
static inline void fgw_print_compare(const struct fgw_print *before, const struct fgw_print *now,
                                     struct fgw_compared *compared)
{
    compared->bytes += FGW_PRINT_BYTES;
    compared->changed_bytes += fgw_print_is_same(before, now) ? 0 : FGW_PRINT_BYTES;
}

#define FGW_MOST_PRINTS  128u /* of one submission */
#define FGW_PRINT_PLACES 4u   /* submissions at once */

#define FGW_MOST_SCANNED 8u

/* Ranges of addresses; those of 0 bytes are none. */
struct fgw_scanned {
    struct {
        uint64_t address, bytes;
    } ranges[FGW_MOST_SCANNED];
};

/* The kernels, and memory of the host that they write to. */
struct fgw_printer {
    CUfunction kernel, scan;
    CUdeviceptr to;
    struct fgw_print *prints;
    uint64_t *found; /* by scans: a word in one of the ranges; 0: none was yet */
};

/* Compiles the kernel for the device of the current context, and devices of its kind; NULL: the driver does not. It is
 * freed. */
void *fgw_printer_compile(const struct fgv_driver *driver);
/* Makes one in the context that is current; false: the driver has not what it needs. `code`: compiled, or NULL, and the
 * driver compiles it, for so long that launches in this context wait for 60 to 110 ms on an H200. */
bool fgw_printer_make(const struct fgv_driver *driver, const void *code, struct fgw_printer *printer);
void fgw_printer_unmake(const struct fgv_driver *driver, struct fgw_printer *printer);
/* Submits the kernel for at most FGW_MOST_PRINTS times FGW_PRINT_BYTES. The prints of a place are there at its end. */
CUresult fgw_printer_submit(const struct fgv_driver *driver, const struct fgw_printer *printer, uint64_t address,
                            uint64_t bytes, uint32_t place, CUstream stream);

/* Submits the kernel that looks for words which are an address in one of the ranges, at multiples of 8. `bytes` is a
 * multiple of 16. What it finds is there at its end. */
CUresult fgw_printer_scan(const struct fgv_driver *driver, const struct fgw_printer *printer, uint64_t address,
                          uint64_t bytes, const struct fgw_scanned *scanned, CUstream stream);

static inline const struct fgw_print *fgw_printer_prints(const struct fgw_printer *printer, uint32_t place)
{
    return printer->prints + place * FGW_MOST_PRINTS;
}

/* cffi: begin */
/* Its PTX, and its points. */
const char *fgw_print_ptx(void);
void fgw_print_points(uint64_t points[2]);
/* cffi: end */

#endif
