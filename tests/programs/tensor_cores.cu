/*
 * mma, wmma and ldmatrix, all forms that capability 8.0 has in common with later devices. Elements are small whole
 * numbers, so that no sum is rounded and all devices print the same: a number for each result, made of all its bits.
 */
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "check.h"

using namespace nvcuda;

constexpr int nr_lanes = 32, nr_words = 1024;

/* ---- what goes in and what came out ---- */

static uint32_t state;

static uint32_t any()
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static int small()
{
    return (int)(any() % 17) - 8;
}

enum kind { halves, brains, singles, doubles, bits };

/* Words full of elements of a kind. */
static void fill(uint32_t *words, int nr, kind kind)
{
    for (int i = 0; i < nr; i++) {
        float single = (float)small();
        double wide = small();
        switch (kind) {
        case halves:
            words[i] = __half_as_ushort(__float2half((float)small())) | __half_as_ushort(__float2half(single)) << 16;
            break;
        case brains:
            words[i] = __bfloat16_as_ushort(__float2bfloat16((float)small())) |
                       __bfloat16_as_ushort(__float2bfloat16(single)) << 16;
            break;
        case singles:
            memcpy(&words[i], &single, sizeof(single));
            break;
        case doubles:
            memcpy(&words[i & ~1], &wide, sizeof(wide));
            break;
        case bits:
            words[i] = any() << 16 ^ any();
            break;
        }
    }
}

static uint32_t digest(const uint32_t *words, int nr)
{
    uint32_t sum = 2166136261u;
    for (int i = 0; i < nr; i++) {
        sum = (sum ^ words[i]) * 16777619u;
    }
    return sum;
}

typedef void (*one_warp)(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *d);

static void run(const char *name, one_warp kernel, kind factors, kind addends)
{
    static uint32_t *device, host[4 * nr_words];
    if (!device) {
        CHECK(cudaMalloc(&device, sizeof(host)));
    }
    fill(host, 2 * nr_words, factors);
    fill(host + 2 * nr_words, nr_words, addends);
    memset(host + 3 * nr_words, 0xff, nr_words * sizeof(*host));
    CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
    kernel<<<1, nr_lanes>>>(device, device + nr_words, device + 2 * nr_words, device + 3 * nr_words);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
    std::printf("%-40s %08x\n", name, digest(host + 3 * nr_words, nr_words));
}

/* ---- mma: so many registers of A, B and of C and D ---- */

#define MMA(NAME, TEXT, TYPE, NR_A, NR_B, NR_C, ASM)                                                                   \
    __global__ void NAME(const uint32_t *a_in, const uint32_t *b_in, const uint32_t *c_in, uint32_t *d_out)            \
    {                                                                                                                  \
        const uint32_t *a = a_in + threadIdx.x * NR_A, *b = b_in + threadIdx.x * NR_B;                                 \
        const TYPE *c = (const TYPE *)c_in + threadIdx.x * NR_C;                                                       \
        TYPE *d = (TYPE *)d_out + threadIdx.x * NR_C;                                                                  \
        ASM(TEXT);                                                                                                     \
    }

#define ASM_424(CON, TEXT)                                                                                             \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                 \
                 : "=" CON(d[0]), "=" CON(d[1]), "=" CON(d[2]), "=" CON(d[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), CON(c[0]), CON(c[1]), CON(c[2]),  \
                   CON(c[3]))
#define ASM_214(CON, TEXT)                                                                                             \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"                             \
                 : "=" CON(d[0]), "=" CON(d[1]), "=" CON(d[2]), "=" CON(d[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), CON(c[0]), CON(c[1]), CON(c[2]), CON(c[3]))
#define ASM_422(CON, TEXT)                                                                                             \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"                                 \
                 : "=" CON(d[0]), "=" CON(d[1])                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), CON(c[0]), CON(c[1]))
#define ASM_212(CON, TEXT)                                                                                             \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1}, {%2,%3}, {%4}, {%5,%6};"                                          \
                 : "=" CON(d[0]), "=" CON(d[1])                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), CON(c[0]), CON(c[1]))
#define ASM_112(CON, TEXT)                                                                                             \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1}, {%2}, {%3}, {%4,%5};"                                             \
                 : "=" CON(d[0]), "=" CON(d[1])                                                                        \
                 : "r"(a[0]), "r"(b[0]), CON(c[0]), CON(c[1]))
#define FLOAT_424(TEXT) ASM_424("f", TEXT)
#define FLOAT_214(TEXT) ASM_214("f", TEXT)
#define WORD_424(TEXT)  ASM_424("r", TEXT)
#define WORD_214(TEXT)  ASM_214("r", TEXT)
#define WORD_422(TEXT)  ASM_422("r", TEXT)
#define WORD_212(TEXT)  ASM_212("r", TEXT)
#define WORD_112(TEXT)  ASM_112("r", TEXT)

MMA(f16_k8, "m16n8k8.row.col.f32.f16.f16.f32", float, 2, 1, 4, FLOAT_214)
MMA(f16_k16, "m16n8k16.row.col.f32.f16.f16.f32", float, 4, 2, 4, FLOAT_424)
MMA(f16_k8_f16, "m16n8k8.row.col.f16.f16.f16.f16", uint32_t, 2, 1, 2, WORD_212)
MMA(f16_k16_f16, "m16n8k16.row.col.f16.f16.f16.f16", uint32_t, 4, 2, 2, WORD_422)
MMA(bf16_k8, "m16n8k8.row.col.f32.bf16.bf16.f32", float, 2, 1, 4, FLOAT_214)
MMA(bf16_k16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, 4, 2, 4, FLOAT_424)
MMA(tf32_k4, "m16n8k4.row.col.f32.tf32.tf32.f32", float, 2, 1, 4, FLOAT_214)
MMA(tf32_k8, "m16n8k8.row.col.f32.tf32.tf32.f32", float, 4, 2, 4, FLOAT_424)
MMA(s8_m8, "m8n8k16.row.col.s32.s8.s8.s32", uint32_t, 1, 1, 2, WORD_112)
MMA(s8_k16, "m16n8k16.row.col.satfinite.s32.s8.u8.s32", uint32_t, 2, 1, 4, WORD_214)
MMA(u8_k32, "m16n8k32.row.col.s32.u8.s8.s32", uint32_t, 4, 2, 4, WORD_424)
MMA(s4_m8, "m8n8k32.row.col.s32.s4.s4.s32", uint32_t, 1, 1, 2, WORD_112)
MMA(s4_k32, "m16n8k32.row.col.s32.s4.u4.s32", uint32_t, 2, 1, 4, WORD_214)
MMA(u4_k64, "m16n8k64.row.col.s32.u4.u4.s32", uint32_t, 4, 2, 4, WORD_424)
MMA(b1_m8, "m8n8k128.row.col.s32.b1.b1.s32.xor.popc", uint32_t, 1, 1, 2, WORD_112)
MMA(b1_k128, "m16n8k128.row.col.s32.b1.b1.s32.and.popc", uint32_t, 2, 1, 4, WORD_214)
MMA(b1_k256, "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", uint32_t, 4, 2, 4, WORD_424)

__global__ void f64_m8(const uint32_t *a_in, const uint32_t *b_in, const uint32_t *c_in, uint32_t *d_out)
{
    double a = ((const double *)a_in)[threadIdx.x], b = ((const double *)b_in)[threadIdx.x];
    const double *c = (const double *)c_in + threadIdx.x * 2;
    double *d = (double *)d_out + threadIdx.x * 2;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=d"(d[0]), "=d"(d[1])
                 : "d"(a), "d"(b), "d"(c[0]), "d"(c[1]));
}

/* ---- wmma: whole matrices ---- */

template <int m, int n, int k, typename in, typename element, typename result, typename a_order, typename b_order>
__global__ void whole(const uint32_t *a_in, const uint32_t *b_in, const uint32_t *c_in, uint32_t *d_out)
{
    constexpr bool a_is_rows = std::is_same<a_order, wmma::row_major>::value,
                   b_is_rows = std::is_same<b_order, wmma::row_major>::value;
    wmma::fragment<wmma::matrix_a, m, n, k, in, a_order> a;
    wmma::fragment<wmma::matrix_b, m, n, k, in, b_order> b;
    wmma::fragment<wmma::accumulator, m, n, k, result> c;
    wmma::load_matrix_sync(a, (const element *)a_in, a_is_rows ? k : m);
    wmma::load_matrix_sync(b, (const element *)b_in, b_is_rows ? n : k);
    wmma::load_matrix_sync(c, (const result *)c_in, n, wmma::mem_row_major);
    wmma::mma_sync(c, a, b, c);
    for (int i = 0; i < c.num_elements; i++) {
        c.x[i] = c.x[i] + c.x[i];
    }
    wmma::store_matrix_sync((result *)d_out, c, m, wmma::mem_col_major);
}

template <int m, int n, int k, typename in, typename element, typename result>
static void run_whole(const char *name, kind factors, kind addends)
{
    run(name, whole<m, n, k, in, element, result, wmma::row_major, wmma::row_major>, factors, addends);
    run(name, whole<m, n, k, in, element, result, wmma::row_major, wmma::col_major>, factors, addends);
    run(name, whole<m, n, k, in, element, result, wmma::col_major, wmma::row_major>, factors, addends);
    run(name, whole<m, n, k, in, element, result, wmma::col_major, wmma::col_major>, factors, addends);
}

template <typename in, typename result> static void run_shapes(const char *name, kind factors, kind addends)
{
    run_whole<16, 16, 16, in, in, result>(name, factors, addends);
    run_whole<32, 8, 16, in, in, result>(name, factors, addends);
    run_whole<8, 32, 16, in, in, result>(name, factors, addends);
}

/* ---- rows in shared memory ---- */

template <bool transposes> __global__ void rows(const uint32_t *in, const uint32_t *, const uint32_t *, uint32_t *out)
{
    __shared__ alignas(16) uint32_t tile[nr_lanes * 4];
    uint32_t address = (uint32_t)__cvta_generic_to_shared(tile + threadIdx.x * 4), *r = out + threadIdx.x * 4;
    for (int i = 0; i < 4; i++) {
        tile[threadIdx.x * 4 + i] = in[threadIdx.x * 4 + i];
    }
    __syncwarp();
    if (transposes) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    }
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out[nr_lanes * 4 + threadIdx.x]) : "r"(r[1]));
}

int main()
{
    run("mma m16n8k8 f16, f32", f16_k8, halves, singles);
    run("mma m16n8k16 f16, f32", f16_k16, halves, singles);
    run("mma m16n8k8 f16, f16", f16_k8_f16, halves, halves);
    run("mma m16n8k16 f16, f16", f16_k16_f16, halves, halves);
    run("mma m16n8k8 bf16", bf16_k8, brains, singles);
    run("mma m16n8k16 bf16", bf16_k16, brains, singles);
    run("mma m16n8k4 tf32", tf32_k4, singles, singles);
    run("mma m16n8k8 tf32", tf32_k8, singles, singles);
    run("mma m8n8k4 f64", f64_m8, doubles, doubles);
    run("mma m8n8k16 s8", s8_m8, bits, bits);
    run("mma m16n8k16 s8, u8, saturated", s8_k16, bits, bits);
    run("mma m16n8k32 u8, s8", u8_k32, bits, bits);
    run("mma m8n8k32 s4", s4_m8, bits, bits);
    run("mma m16n8k32 s4, u4", s4_k32, bits, bits);
    run("mma m16n8k64 u4", u4_k64, bits, bits);
    run("mma m8n8k128 b1", b1_m8, bits, bits);
    run("mma m16n8k128 b1, and", b1_k128, bits, bits);
    run("mma m16n8k256 b1", b1_k256, bits, bits);
    run_shapes<half, float>("wmma f16, f32", halves, singles);
    run_shapes<half, half>("wmma f16, f16", halves, halves);
    run_shapes<__nv_bfloat16, float>("wmma bf16", brains, singles);
    run_shapes<signed char, int>("wmma s8", bits, bits);
    run_shapes<unsigned char, int>("wmma u8", bits, bits);
    run_whole<16, 16, 8, wmma::precision::tf32, float, float>("wmma tf32", singles, singles);
    run_whole<8, 8, 4, double, double, double>("wmma f64", doubles, doubles);
    run("ldmatrix", rows<false>, bits, bits);
    run("ldmatrix, transposed", rows<true>, bits, bits);
    return verdict(true);
}
