/* How many blocks a multiprocessor of capability 8.0 would hold. The device runs blocks one per core; programs size
 * their grids by this. */

#include "code/function.h"
#include "cuda_api/prototypes.h"
#include "device/current.h"

#define MAX_BLOCKS            32u
#define MAX_THREADS           2048u
#define NR_REGISTERS          65536u
#define REGISTER_UNIT         256u /* per warp */
#define SHARED_BYTES          167936u
#define RESERVED_SHARED_BYTES 1024u
#define SHARED_UNIT           128u

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

int sgp_blocks_per_multiprocessor(const struct sgp_kernel *kernel, uint32_t block_threads,
                                  uint64_t dynamic_shared_bytes)
{
    uint32_t nr_warps = (block_threads + SGP_WARP_THREADS - 1) / SGP_WARP_THREADS;
    uint32_t per_warp = (kernel->nr_registers * SGP_WARP_THREADS + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    uint64_t shared = kernel->static_shared_bytes + dynamic_shared_bytes + RESERVED_SHARED_BYTES;
    uint32_t nr = least(MAX_BLOCKS, MAX_THREADS / (nr_warps * SGP_WARP_THREADS));

    if (per_warp) {
        nr = least(nr, NR_REGISTERS / per_warp / nr_warps);
    }
    shared = (shared + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
    if (shared > SHARED_BYTES) {
        return 0;
    }
    nr = least(nr, (uint32_t)(SHARED_BYTES / shared));
    /* The registers are an estimate: a block that can be launched at all fits. */
    return (int)(nr ? nr : 1);
}

static CUresult enter_function(CUfunction handle, const struct sgp_kernel **kernel,
                               struct sgp_function_settings **settings)
{
    struct CUctx_st *context;
    struct CUfunc_st *function;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    result = sgp_function_resolve(context, handle, &function, settings);
    if (result) {
        return sgp_leave(result);
    }
    *kernel = function->kernel;
    return CUDA_SUCCESS;
}

static uint32_t max_threads_of(const struct sgp_kernel *kernel)
{
    return kernel->max_threads ? least(kernel->max_threads, SGP_MAX_BLOCK_THREADS) : SGP_MAX_BLOCK_THREADS;
}

SGP_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                         size_t dynamicSMemSize, unsigned int flags)
{
    const struct sgp_kernel *kernel;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(func, &kernel, &settings);

    if (result) {
        return result;
    }
    if (!numBlocks || blockSize <= 0 || (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *numBlocks = 0;
    /* As NVIDIA's: a kernel's own bound is not looked at, and its launch says so. */
    if ((uint32_t)blockSize <= SGP_MAX_BLOCK_THREADS && dynamicSMemSize <= (size_t)settings->max_dynamic_shared_bytes) {
        *numBlocks = sgp_blocks_per_multiprocessor(kernel, (uint32_t)blockSize, dynamicSMemSize);
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                                size_t dynamicSMemSize)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize,
                                                                CU_OCCUPANCY_DEFAULT);
}

SGP_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                            int blockSize)
{
    const struct sgp_kernel *kernel;
    struct sgp_function_settings *settings;
    uint64_t available;
    CUresult result = enter_function(func, &kernel, &settings);

    if (result) {
        return result;
    }
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0 || (uint32_t)blockSize > max_threads_of(kernel)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    available = SHARED_BYTES / (uint32_t)numBlocks / SHARED_UNIT * SHARED_UNIT;
    available = available > RESERVED_SHARED_BYTES + kernel->static_shared_bytes
                    ? available - RESERVED_SHARED_BYTES - kernel->static_shared_bytes
                    : 0;
    *dynamicSmemSize = available < (uint64_t)settings->max_dynamic_shared_bytes
                           ? available
                           : (uint64_t)settings->max_dynamic_shared_bytes;
    return sgp_leave(CUDA_SUCCESS);
}

/* What is known of a kernel, copied so that the program's function can be called without the lock. */
struct block_question {
    struct sgp_kernel kernel;
    uint32_t limit;
    size_t max_dynamic_shared_bytes;
};

static CUresult block_question(CUfunction func, int limit, struct block_question *question)
{
    const struct sgp_kernel *kernel;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(func, &kernel, &settings);

    if (result) {
        return result;
    }
    question->kernel = *kernel;
    question->limit = limit ? least(max_threads_of(kernel), (uint32_t)limit) : max_threads_of(kernel);
    question->max_dynamic_shared_bytes = (size_t)settings->max_dynamic_shared_bytes;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                              CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                              size_t dynamicSMemSize, int blockSizeLimit,
                                                              unsigned int flags)
{
    struct block_question question;
    uint32_t best_threads = 0;
    int best = 0, best_block = 0;
    CUresult result;

    if (!minGridSize || !blockSize || blockSizeLimit < 0 ||
        (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = block_question(func, blockSizeLimit, &question);
    if (result) {
        return result;
    }
    for (uint32_t threads = (question.limit + 31) / 32 * 32; threads; threads -= SGP_WARP_THREADS) {
        uint32_t block = least(threads, question.limit);
        size_t shared = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize((int)block) : dynamicSMemSize;
        int nr = shared <= question.max_dynamic_shared_bytes
                     ? sgp_blocks_per_multiprocessor(&question.kernel, block, shared)
                     : 0;

        if ((uint32_t)nr * block > best_threads) {
            best_threads = (uint32_t)nr * block;
            best = nr;
            best_block = (int)block;
        }
    }
    *blockSize = best_block;
    *minGridSize = best * SGP_NR_MULTIPROCESSORS;
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                                     CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                     size_t dynamicSMemSize, int blockSizeLimit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                     dynamicSMemSize, blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

/* Clusters came with capability 9.0. */
SGP_EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
    const struct sgp_kernel *kernel;
    struct sgp_function_settings *settings;
    CUresult result = enter_function(func, &kernel, &settings);

    if (result) {
        return result;
    }
    return sgp_leave(clusterSize && config ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
}

SGP_EXPORT CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
    return cuOccupancyMaxPotentialClusterSize(numClusters, func, config);
}
