/*
 * See fingerprint.h. A block of threads takes one print. Each thread evaluates its polynomial by Horner's rule, four
 * words at a time, in steps of as many as the block reads at once; then the threads' values are summed in pairs, each
 * time by the power of the point that lies between them. Products are of 122 bits; what is beyond the lower 61 is added
 * to them, as 2^61 is 1 in this field.
 */
#define _GNU_SOURCE
#include "calls/fingerprint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define THREADS      512
#define STEPS        256 /* of a thread, 16 bytes each */
#define PRIME        0x1fffffffffffffff
#define PRINTS_BYTES (FGW_PRINT_PLACES * FGW_MOST_PRINTS * sizeof(struct fgw_print))
#define SCAN_THREADS 256
#define SCAN_BLOCKS  2048
#define TEXT_(x)     #x
#define TEXT(x)      TEXT_(x)

_Static_assert(THREADS * STEPS * 16 == FGW_PRINT_BYTES, "a block of threads reads all of a print");
_Static_assert(THREADS * 24 == 12288, "sums of all threads");

/* clang-format off */

/* %t + %u is %hi, %lo in the field, below 2^61 + 8. */
#define FOLD                                                                                                            \
    "shl.b64 %t, %hi, 3; shr.u64 %u, %lo, 61; or.b64 %t, %t, %u; and.b64 %lo, %lo, %prime; add.u64 %t, %t, %lo;\n"      \
    "shr.u64 %u, %t, 61; and.b64 %t, %t, %prime;\n"

#define MULTIPLY(product, a, b)                                                                                         \
    "mul.lo.u64 %lo, " a ", " b "; mul.hi.u64 %hi, " a ", " b ";\n" FOLD "add.u64 " product ", %t, %u;\n"

/* The powers of a point: its second and third, and that of a step. */
#define POWERS(n)                                                                                                       \
    "ld.param.u64 %r" n "1, [point" n "];\n"                                                                            \
    MULTIPLY("%r" n "2", "%r" n "1", "%r" n "1")                                                                        \
    MULTIPLY("%r" n "3", "%r" n "2", "%r" n "1")                                                                        \
    MULTIPLY("%r" n "4", "%r" n "3", "%r" n "1")                                                                        \
    "mov.u64 %step" n ", %r" n "4; mov.u64 %h" n ", 0;\n"

#define SQUARE_STEP(n) MULTIPLY("%step" n, "%step" n, "%step" n)

#define ABSORB(n)                                                                                                       \
    "mul.lo.u64 %lo, %h" n ", %step" n "; mul.hi.u64 %hi, %h" n ", %step" n ";\n"                                       \
    "mad.lo.cc.u64 %lo, %w1, %r" n "1, %lo; madc.hi.u64 %hi, %w1, %r" n "1, %hi;\n"                                     \
    "mad.lo.cc.u64 %lo, %w2, %r" n "2, %lo; madc.hi.u64 %hi, %w2, %r" n "2, %hi;\n"                                     \
    "mad.lo.cc.u64 %lo, %w3, %r" n "3, %lo; madc.hi.u64 %hi, %w3, %r" n "3, %hi;\n"                                     \
    "add.cc.u64 %lo, %lo, %w0; addc.u64 %hi, %hi, 0;\n"                                                                 \
    FOLD "add.u64 %h" n ", %t, %u;\n"

/* Those of two words that lie in a range. */
#define BOUNDS(k, at, behind)                                                                                                    \
    "ld.param.u64 %low" k ", [ranges+" at "]; ld.param.u64 %size" k ", [ranges+" behind "];\n"

#define FIND(k)                                                                                                         \
    "sub.u64 %x, %w0, %low" k "; setp.lt.u64 %if, %x, %size" k "; @%if st.global.u64 [%to], %w0;\n"                     \
    "sub.u64 %x, %w1, %low" k "; setp.lt.u64 %if, %x, %size" k "; @%if st.global.u64 [%to], %w1;\n"

#define LOAD(k, offset) "ld.global.v4.u32 {%a" k "0, %a" k "1, %a" k "2, %a" k "3}, [%at+" offset "];\n"

#define TAKE(k)                                                                                                         \
    "or.b32 %b0, %a" k "0, %a" k "1; or.b32 %b1, %a" k "2, %a" k "3; or.b32 %b0, %b0, %b1; or.b32 %bits, %bits, %b0;\n" \
    "cvt.u64.u32 %w0, %a" k "0; cvt.u64.u32 %w1, %a" k "1; cvt.u64.u32 %w2, %a" k "2; cvt.u64.u32 %w3, %a" k "3;\n"     \
    ABSORB("0") ABSORB("1")

/* What a neighbour has is added, by the power between them. */
#define ADD_NEIGHBOUR(n, offset)                                                                                        \
    "ld.shared.u64 %x, [%theirs+" offset "];\n"                                                                         \
    MULTIPLY("%x", "%x", "%r" n "4")                                                                                    \
    "add.u64 %h" n ", %h" n ", %x; shr.u64 %u, %h" n ", 61; and.b64 %h" n ", %h" n ", %prime; add.u64 %h" n ", %h" n ", %u;\n"

/* All but the prime itself is as it should be; that is 0. */
#define REDUCE(n)                                                                                                       \
    "shr.u64 %u, %h" n ", 61; and.b64 %h" n ", %h" n ", %prime; add.u64 %h" n ", %h" n ", %u;\n"                        \
    "setp.ge.u64 %if, %h" n ", %prime; @%if sub.u64 %h" n ", %h" n ", %prime;\n"

static const char PTX[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry fgw_print(.param .u64 address, .param .u64 prints, .param .u64 point0, .param .u64 point1)\n"
    ".maxntid " TEXT(THREADS) ", 1, 1\n"
    "{\n"
    ".reg .pred %if;\n"
    ".reg .b32 %thread, %block, %left, %stride, %mask, %bits, %b0, %b1, %mine, %theirs;\n"
    ".reg .b32 %a00, %a01, %a02, %a03, %a10, %a11, %a12, %a13, %a20, %a21, %a22, %a23, %a30, %a31, %a32, %a33;\n"
    ".reg .b64 %at, %to, %prime, %lo, %hi, %t, %u, %x, %w0, %w1, %w2, %w3;\n"
    ".reg .b64 %r01, %r02, %r03, %r04, %step0, %h0, %r11, %r12, %r13, %r14, %step1, %h1;\n"
    ".shared .align 8 .b8 sums[12288];\n"
    "mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u64 %prime, " TEXT(PRIME) ";\n"
    POWERS("0") POWERS("1")
    "mov.u32 %left, 9;\n" /* the power of a step: 4 * 2^9 */
    "square:\n"
    SQUARE_STEP("0") SQUARE_STEP("1")
    "sub.u32 %left, %left, 1; setp.ne.u32 %if, %left, 0; @%if bra square;\n"
    "ld.param.u64 %at, [address]; mul.wide.u32 %x, %block, 2097152; add.u64 %at, %at, %x;\n"
    "mul.wide.u32 %x, %thread, 16; add.u64 %at, %at, %x; cvta.to.global.u64 %at, %at;\n"
    "mov.u32 %bits, 0; mov.u32 %left, " TEXT(STEPS) ";\n"
    "absorb:\n"
    LOAD("0", "0") LOAD("1", "8192") LOAD("2", "16384") LOAD("3", "24576")
    TAKE("0") TAKE("1") TAKE("2") TAKE("3")
    "add.u64 %at, %at, 32768; sub.u32 %left, %left, 4; setp.ne.u32 %if, %left, 0; @%if bra absorb;\n"
    "mov.u32 %mine, sums; mad.lo.u32 %mine, %thread, 24, %mine; mov.u32 %stride, 1;\n"
    "pair:\n"
    "st.shared.u64 [%mine], %h0; st.shared.u64 [%mine+8], %h1; st.shared.u32 [%mine+16], %bits;\n"
    "bar.sync 0;\n"
    "shl.b32 %mask, %stride, 1; sub.u32 %mask, %mask, 1; and.b32 %mask, %mask, %thread; setp.ne.u32 %if, %mask, 0;\n"
    "@%if bra next;\n"
    "mad.lo.u32 %theirs, %stride, 24, %mine;\n"
    ADD_NEIGHBOUR("0", "0") ADD_NEIGHBOUR("1", "8")
    "ld.shared.u32 %b0, [%theirs+16]; or.b32 %bits, %bits, %b0;\n"
    "next:\n"
    "bar.sync 0;\n"
    MULTIPLY("%r04", "%r04", "%r04") MULTIPLY("%r14", "%r14", "%r14")
    "shl.b32 %stride, %stride, 1; setp.ne.u32 %if, %stride, " TEXT(THREADS) "; @%if bra pair;\n"
    "setp.ne.u32 %if, %thread, 0; @%if bra end;\n"
    REDUCE("0") REDUCE("1")
    "ld.param.u64 %to, [prints]; mul.wide.u32 %x, %block, 32; add.u64 %to, %to, %x; cvta.to.global.u64 %to, %to;\n"
    "cvt.u64.u32 %x, %bits;\n"
    "st.global.u64 [%to], %h0; st.global.u64 [%to+8], %h1; st.global.u64 [%to+16], %x;\n"
    "end:\n"
    "ret;\n"
    "}\n"
    ".visible .entry fgw_scan(.param .u64 address, .param .u64 bytes, .param .u64 found, .param .align 8 .b8 ranges[128])\n"
    "{\n"
    ".reg .pred %if;\n"
    ".reg .b32 %thread, %block, %nr, %threads;\n"
    ".reg .b64 %at, %end, %step, %to, %w0, %w1, %x;\n"
    ".reg .b64 %low0, %low1, %low2, %low3, %low4, %low5, %low6, %low7;\n"
    ".reg .b64 %size0, %size1, %size2, %size3, %size4, %size5, %size6, %size7;\n"
    "mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %nr, %nctaid.x; mov.u32 %threads, %ntid.x;\n"
    "ld.param.u64 %at, [address]; ld.param.u64 %end, [bytes]; ld.param.u64 %to, [found];\n"
    BOUNDS("0", "0", "8") BOUNDS("1", "16", "24") BOUNDS("2", "32", "40") BOUNDS("3", "48", "56")
    BOUNDS("4", "64", "72") BOUNDS("5", "80", "88") BOUNDS("6", "96", "104") BOUNDS("7", "112", "120")
    "cvta.to.global.u64 %at, %at; cvta.to.global.u64 %to, %to; add.u64 %end, %at, %end;\n"
    "mad.lo.u32 %block, %block, %threads, %thread; mul.wide.u32 %x, %block, 16; add.u64 %at, %at, %x;\n"
    "mul.lo.u32 %nr, %nr, %threads; mul.wide.u32 %step, %nr, 16;\n"
    "look:\n"
    "setp.ge.u64 %if, %at, %end; @%if bra over;\n"
    "ld.global.v2.u64 {%w0, %w1}, [%at];\n"
    FIND("0") FIND("1") FIND("2") FIND("3") FIND("4") FIND("5") FIND("6") FIND("7")
    "add.u64 %at, %at, %step; bra look;\n"
    "over:\n"
    "ret;\n"
    "}\n";

_Static_assert(sizeof(struct fgw_scanned) == 128, "as the kernel has it");

/* clang-format on */

static uint64_t points[2];
static pthread_once_t drawing = PTHREAD_ONCE_INIT;

static void draw(void)
{
    for (int i = 0; i < 2; i++) {
        do {
            if (getrandom(&points[i], sizeof(points[i]), 0) != sizeof(points[i])) {
                points[i] = 0;
                return;
            }
            points[i] &= PRIME;
        } while (points[i] < 2 || points[i] == PRIME);
    }
}

void fgw_print_points(uint64_t out[2])
{
    pthread_once(&drawing, draw);
    out[0] = points[0];
    out[1] = points[1];
}

const char *fgw_print_ptx(void)
{
    return PTX;
}

void *fgw_printer_compile(const struct fgv_driver *driver)
{
    CUlinkState link;
    void *made = NULL, *code = NULL;
    size_t bytes = 0;
    if (!driver->cuLinkCreate_v2 || !driver->cuLinkAddData_v2 || !driver->cuLinkComplete || !driver->cuLinkDestroy ||
        driver->cuLinkCreate_v2(0, NULL, NULL, &link) != CUDA_SUCCESS) {
        return NULL;
    }
    if (driver->cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)PTX, sizeof(PTX), "fgw_print", 0, NULL, NULL) ==
            CUDA_SUCCESS &&
        driver->cuLinkComplete(link, &made, &bytes) == CUDA_SUCCESS) {
        code = malloc(bytes);
    }
    if (code) {
        memcpy(code, made, bytes);
    }
    driver->cuLinkDestroy(link);
    return code;
}

static bool load(const struct fgv_driver *driver, const void *code, struct fgw_printer *printer)
{
    CUmodule module;
    if (driver->cuModuleLoadData(&module, code ? code : PTX) != CUDA_SUCCESS) {
        return false;
    }
    if (driver->cuModuleGetFunction(&printer->kernel, module, "fgw_print") != CUDA_SUCCESS ||
        driver->cuModuleGetFunction(&printer->scan, module, "fgw_scan") != CUDA_SUCCESS) {
        driver->cuModuleUnload(module);
        return false;
    }
    return true;
}

static bool has_calls(const struct fgv_driver *driver)
{
    return driver->cuModuleLoadData && driver->cuModuleGetFunction && driver->cuModuleUnload &&
           driver->cuLaunchKernel && driver->cuMemHostAlloc && driver->cuMemHostGetDevicePointer_v2 &&
           driver->cuMemFreeHost;
}

bool fgw_printer_make(const struct fgv_driver *driver, const void *code, struct fgw_printer *printer)
{
    uint64_t drawn[2];
    void *prints;
    fgw_print_points(drawn);
    if (drawn[0] == 0 || drawn[1] == 0 || !has_calls(driver) ||
        driver->cuMemHostAlloc(&prints, PRINTS_BYTES + sizeof(*printer->found), CU_MEMHOSTALLOC_DEVICEMAP) !=
            CUDA_SUCCESS) {
        return false;
    }
    printer->prints = prints;
    printer->found = (uint64_t *)(void *)((uint8_t *)prints + PRINTS_BYTES);
    *printer->found = 0;
    if (driver->cuMemHostGetDevicePointer_v2(&printer->to, prints, 0) != CUDA_SUCCESS || !load(driver, code, printer)) {
        fgw_printer_unmake(driver, printer);
        return false;
    }
    return true;
}

void fgw_printer_unmake(const struct fgv_driver *driver, struct fgw_printer *printer)
{
    driver->cuMemFreeHost(printer->prints);
    *printer = (struct fgw_printer){0};
}

CUresult fgw_printer_submit(const struct fgv_driver *driver, const struct fgw_printer *printer, uint64_t address,
                            uint64_t bytes, uint32_t place, CUstream stream)
{
    uint64_t drawn[2];
    CUdeviceptr prints = printer->to + place * FGW_MOST_PRINTS * sizeof(struct fgw_print);
    fgw_print_points(drawn);
    void *parameters[] = {&address, &prints, &drawn[0], &drawn[1]};
    const unsigned int nr = (unsigned int)(bytes / FGW_PRINT_BYTES);
    return driver->cuLaunchKernel(printer->kernel, nr, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

CUresult fgw_printer_scan(const struct fgv_driver *driver, const struct fgw_printer *printer, uint64_t address,
                          uint64_t bytes, const struct fgw_scanned *scanned, CUstream stream)
{
    CUdeviceptr found = printer->to + PRINTS_BYTES;
    struct fgw_scanned ranges = *scanned;
    void *parameters[] = {&address, &bytes, &found, &ranges};
    const uint64_t nr = (bytes / 16 + SCAN_THREADS - 1) / SCAN_THREADS;
    return driver->cuLaunchKernel(printer->scan, (unsigned int)(nr < SCAN_BLOCKS ? nr : SCAN_BLOCKS), 1, 1,
                                  SCAN_THREADS, 1, 1, 0, stream, parameters, NULL);
}
