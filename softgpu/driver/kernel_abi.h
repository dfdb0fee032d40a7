/*
 * What softgpu's compiler (Python, llvmlite) and its driver (C) agree on.
 *
 * The compiler turns one PTX module into one shared object. The driver opens it with dlopen, finds `sgp_module`, copies
 * the image of the globals into device memory for every load, and calls a kernel once for each block. The object refers
 * to no symbol of anybody: whatever it needs at run time (barriers, printf, faults) it calls through `struct
 * sgp_runtime`. Bump SGP_ABI_VERSION with any change here; it is part of the cache key, so that an object of another
 * version is never loaded.
 */
#ifndef SOFTGPU_KERNEL_ABI_H
#define SOFTGPU_KERNEL_ABI_H

#include <stdint.h>

#define SGP_ABI_VERSION   10u
#define SGP_MODULE_SYMBOL "sgp_module"

/* Addresses that kernels may use lie in this range, their reach: its size is a power of two, its address a multiple of
 * that. */
#define SGP_REACH_ADDRESS UINT64_C(0x680000000000)
#define SGP_REACH_BYTES   (UINT64_C(1) << 43)
/* The largest alignment that an access can ask for is 32 bytes. */
#define SGP_MISALIGNED_BITS UINT64_C(31)

struct sgp_thread; /* the runtime's own: one CUDA thread of the running block */

/* What compiled code may call. Every function may be called from any thread of a block; `self` is the calling CUDA
 * thread. */
struct sgp_runtime {
    uint32_t abi_version;
    uint32_t reserved;
    /* bar.sync id, count: returns when `nr_threads` threads (0: all of the block still alive) arrived at `barrier`. */
    void (*barrier)(struct sgp_thread *self, uint32_t barrier, uint32_t nr_threads);
    /* barrier.red: as barrier; returns the and (0), or (1) or popc (2) over the arrived threads' predicates. */
    uint32_t (*barrier_reduce)(struct sgp_thread *self, uint32_t barrier, uint32_t nr_threads, uint32_t operation,
                               uint32_t predicate);
    /* bar.warp.sync, and the rendezvous of vote, shfl, match: all threads of `member_mask` in this warp exchange 64
     * bits. `values[lane]` is filled for each member lane; returns the mask of lanes that took part. */
    uint32_t (*warp_exchange)(struct sgp_thread *self, uint32_t member_mask, uint64_t value, uint64_t values[32]);
    /* vprintf(format, arguments): arguments packed as CUDA packs them (each aligned to its size). Returns the number of
     * arguments or -1. */
    int32_t (*vprintf)(struct sgp_thread *self, const char *format, const void *arguments);
    /* __assertfail of thread (x, y, z): prints what CUDA prints, ends the launch with CUDA_ERROR_ASSERT. Does not
     * return. */
    void (*assert_fail)(struct sgp_thread *self, const char *message, const char *file, uint32_t line,
                        const char *function, uint32_t x, uint32_t y, uint32_t z);
    /* trap: ends the launch with CUDA_ERROR_LAUNCH_FAILED. Does not return. */
    void (*trap)(struct sgp_thread *self);
    void *(*device_malloc)(struct sgp_thread *self, uint64_t size_bytes);
    void (*device_free)(struct sgp_thread *self, void *pointer);
    uint64_t (*clock64)(void);         /* a cycle counter of the host */
    uint64_t (*global_timer_ns)(void); /* CLOCK_REALTIME in ns, as %globaltimer */
    /* bar.arrive: as barrier, and returns at once. */
    void (*barrier_arrive)(struct sgp_thread *self, uint32_t barrier, uint32_t nr_threads);
    /* A turn of a loop that waits for what another thread writes: the others go on. Only from kernels that `spin`. */
    void (*yield)(struct sgp_thread *self);
    /* activemask: the lanes of the warp that came to this call together. */
    uint32_t (*active_mask)(struct sgp_thread *self);
    /* Called at the end of a thread or block that used addresses that are misaligned, or out of reach: `bits` are
     * the low bits that were set though they must not, and the high bits that were not those of their reach. Ends
     * the launch with CUDA_ERROR_MISALIGNED_ADDRESS or CUDA_ERROR_ILLEGAL_ADDRESS; or returns, when memory for kernels
     * lies out of reach. */
    void (*bad_address)(struct sgp_thread *self, uint64_t bits);
    /* tex, tld4: reads the texture object `value`; `form` is SGP_TEX_*; the four channels as bits. */
    void (*texture_fetch)(struct sgp_thread *self, uint64_t value, uint32_t form, const uint32_t *operands,
                          uint32_t *channels);
    /* suld, sust, sured: where these bytes of the surface object are; NULL: outside, and the access does nothing. */
    void *(*surface_address)(struct sgp_thread *self, uint64_t value, uint32_t form, const int32_t *operands,
                             uint32_t nr_bytes);
    /* txq, suq: SGP_QUERY_*; of level `level`. */
    uint32_t (*texture_query)(struct sgp_thread *self, uint64_t value, uint32_t query, uint32_t level);
    /* mma, wmma.mma, by all threads of the warp: `registers` hold the thread's elements of A, B and C, one after
     * another, and then those of D. `form` is SGP_MATRIX_*. */
    void (*matrix_multiply)(struct sgp_thread *self, uint64_t form, uint32_t *registers);
    /* ldmatrix, stmatrix, movmatrix, by all threads of the warp: `row` is the thread's address, `form` SGP_MOVE_*. */
    void (*matrix_move)(struct sgp_thread *self, uint32_t form, void *row, uint32_t *registers);
    /* nanosleep, before the next turn of a loop that waits: the CPU may go to other processes for as long. Only from
     * functions that have such a loop. */
    void (*nap)(struct sgp_thread *self, uint32_t ns);
    /* %current_graph_exec: the graph that the kernel runs in, if kernels may launch that; else 0. */
    uint64_t (*current_graph)(struct sgp_thread *self);
    /* cudaGraphLaunch in a kernel: orders a graph; the CUresult is the cudaError_t. */
    uint32_t (*graph_launch)(struct sgp_thread *self, uint64_t graph, uint64_t stream);
};

/* Matrices that a warp multiplies: where the numbers of rows and columns (A is m by k, B k by n), and the elements of
 * A, B, C and D, stand in the form. */
enum {
    SGP_MATRIX_M_SHIFT = 0,
    SGP_MATRIX_N_SHIFT = 8,
    SGP_MATRIX_K_SHIFT = 16,
    SGP_MATRIX_ELEMENTS_SHIFT = 32, /* four bits each */
    SGP_MATRIX_FLAGS_SHIFT = 48,
    SGP_MATRIX_DEALT = 1
        << 0, /* wmma: lane after lane has the next elements of the rows of A, C, D, the columns of B */
    SGP_MATRIX_SATURATES = 1 << 1,
    SGP_MATRIX_AND = 1 << 2, /* single bits: and in place of xor */
};

enum {
    SGP_ELEMENT_F16,
    SGP_ELEMENT_BF16,
    SGP_ELEMENT_TF32,
    SGP_ELEMENT_F32,
    SGP_ELEMENT_F64,
    SGP_ELEMENT_S32,
    SGP_ELEMENT_S8,
    SGP_ELEMENT_U8,
    SGP_ELEMENT_S4,
    SGP_ELEMENT_U4,
    SGP_ELEMENT_B1,
};

/* Of wmma a thread has 16 elements of A or B in f16, whatever the shape: where that is too many, some twice. */
#define SGP_DEALT_HALVES 16u

/* 8 by 8 matrices of 16 bits: low bits how many (1, 2, 4), a register of each thread for each. */
enum {
    SGP_MOVE_NUMBER = 7,
    SGP_MOVE_FROM_MEMORY = 1 << 3,
    SGP_MOVE_TO_MEMORY = 1 << 4,
    SGP_MOVE_TRANSPOSES = 1 << 5,
};

/* How a texture or surface is read: low bits the number of coordinates, SGP_TEX_CUBE for three that name a direction.
 * Operands have fixed places, whatever the form. */
enum {
    SGP_TEX_AXES = 3,
    SGP_TEX_CUBE = 1 << 2,
    SGP_TEX_LAYERED = 1 << 3,
    SGP_TEX_WHOLE = 1 << 4, /* coordinates are whole numbers */
    SGP_TEX_LEVEL = 1 << 5,
    SGP_TEX_GRADIENT = 1 << 6,
    SGP_TEX_GATHER = 1 << 7, /* of the channel at SGP_TEX_CHANNEL_SHIFT */
    SGP_TEX_CHANNEL_SHIFT = 8,
    SGP_TEX_CLAMP = 1 << 10, /* surfaces: outside is the nearest place inside */
    SGP_TEX_ZERO = 1 << 11,  /* surfaces: outside is zero; neither: a trap */
    SGP_TEX_SURFACE = 1 << 12,
};

enum {
    SGP_OPERAND_LAYER = 0,
    SGP_OPERAND_COORDINATES = 1,
    SGP_OPERAND_LEVEL = 4,
    SGP_OPERAND_GRADIENT_X = 5,
    SGP_OPERAND_GRADIENT_Y = 8,
    SGP_OPERAND_OFFSETS = 11,
    SGP_NR_OPERANDS = 14,
};

enum {
    SGP_QUERY_WIDTH,
    SGP_QUERY_HEIGHT,
    SGP_QUERY_DEPTH,
    SGP_QUERY_CHANNEL_TYPE,
    SGP_QUERY_CHANNEL_ORDER,
    SGP_QUERY_NORMALIZED,
    SGP_QUERY_LAYERS,
    SGP_QUERY_LEVELS,
    SGP_QUERY_SAMPLES,
    SGP_QUERY_SURFACE = 1 << 8,
};

/* One block to run. The driver fills it; the code reads it. */
struct sgp_block {
    const struct sgp_runtime *runtime;
    const void *parameters; /* the kernel's parameter buffer, laid out as in sgp_parameter */
    uint8_t *globals;       /* this load's copy of the module's globals and constants */
    uint8_t *shared;        /* static_shared_bytes followed by the launch's dynamic bytes */
    uint32_t grid[3];
    uint32_t block_dim[3];
    uint32_t block_index[3];
    uint32_t dynamic_shared_bytes;
    uint32_t multiprocessor;     /* %smid */
    uint32_t nr_multiprocessors; /* %nsmid */
    const void *grid_workspace;  /* %envreg1 (its high half) and %envreg2; NULL unless the launch is cooperative */
    void *context;               /* context_bytes for each thread of the block; what it held before is of no matter */
};

/* One thread of a block: `self` is what the runtime's functions take. Linear index, x fastest. */
typedef void (*sgp_thread_fn)(const struct sgp_block *block, struct sgp_thread *self, uint32_t thread_index);
/* A whole block in one call, for kernels whose threads never wait for each other, or at barriers of the whole block
 * alone (needs_threads == 0). `self` is a scratch thread. */
typedef void (*sgp_block_fn)(const struct sgp_block *block, struct sgp_thread *self);

struct sgp_parameter {
    uint32_t offset_bytes;
    uint32_t size_bytes;
};

struct sgp_kernel {
    const char *name;
    sgp_thread_fn run_thread; /* NULL when context_bytes */
    sgp_block_fn run_block;   /* NULL when needs_threads */
    const struct sgp_parameter *parameters;
    uint32_t nr_parameters;
    uint32_t parameters_bytes;
    uint32_t static_shared_bytes;
    uint32_t local_bytes;         /* per thread, for the function attribute */
    uint32_t stack_bytes;         /* at least this much stack for a fiber of this kernel */
    uint32_t needs_threads;       /* threads wait for each other: run every thread as a fiber */
    uint32_t max_threads;         /* .maxntid product, or 1024 */
    uint32_t required_threads[3]; /* .reqntid, or zeros */
    uint32_t nr_registers;        /* an estimate, for occupancy and the function attribute, at most 255 */
    uint32_t spins;               /* has loops that wait for what other threads write; implies needs_threads */
    uint32_t context_bytes;       /* per thread: what it keeps across barriers where run_block sees to those; or 0 */
    uint32_t knows_graphs;        /* may order graphs, or ask for its own */
};

struct sgp_global {
    const char *name;
    uint64_t offset_bytes; /* within the globals image */
    uint64_t size_bytes;
    uint32_t is_constant; /* .const */
    uint32_t is_managed;  /* the program reaches it too, at the same address */
};

/* A global whose initial value is the address of another: *(u64 *)(globals + at) = globals + target. */
struct sgp_relocation {
    uint64_t at_bytes;
    uint64_t target_bytes;
};

struct sgp_module {
    uint32_t abi_version;
    uint32_t ptx_version; /* 10 * major + minor, for CU_FUNC_ATTRIBUTE_PTX_VERSION */
    uint32_t target;      /* 75 for sm_75 */
    uint32_t nr_kernels;
    const struct sgp_kernel *kernels;
    const struct sgp_global *globals;
    const struct sgp_relocation *relocations;
    const uint8_t *globals_image; /* how they begin; the rest is zeros */
    uint64_t image_bytes;
    uint64_t globals_bytes;
    uint32_t nr_globals;
    uint32_t nr_relocations;
};

#endif
