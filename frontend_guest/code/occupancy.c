/*
 * Occupancy. How many blocks fit is the host's driver's to say, and it says the same every time, so each function keeps
 * its last answers.
 */
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/current.h"
#include "call/device.h"
#include "code/function.h"
#include "cuda_api/prototypes.h"

static bool answer_known(struct fgv_function *function, uint16_t call, const uint64_t question[3], uint64_t *answer)
{
    bool is_known = false;
    pthread_mutex_lock(&fgv_code_lock);
    for (uint32_t i = 0; i < FGV_NR_OCCUPANCIES && !is_known; i++) {
        const struct fgv_occupancy *kept = &function->occupancies[i];
        is_known = kept->call == call && memcmp(kept->question, question, sizeof(kept->question)) == 0;
        if (is_known) {
            *answer = kept->answer;
        }
    }
    pthread_mutex_unlock(&fgv_code_lock);
    return is_known;
}

static void answer_keep(struct fgv_function *function, uint16_t call, const uint64_t question[3], uint64_t answer)
{
    pthread_mutex_lock(&fgv_code_lock);
    struct fgv_occupancy *kept = &function->occupancies[function->next_occupancy++ % FGV_NR_OCCUPANCIES];
    *kept = (struct fgv_occupancy){.question = {question[0], question[1], question[2]}, .answer = answer, .call = call};
    pthread_mutex_unlock(&fgv_code_lock);
}

static CUresult function_get(CUfunction func, struct fgv_function **function)
{
    CUresult result = fgv_call_allowed();
    return result != CUDA_SUCCESS ? result : fgv_function_of_either(func, function);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags)
{
    struct fgv_function *function;
    CUresult result = function_get(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!numBlocks || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint16_t number = FGV_CALL_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
    const uint64_t question[3] = {(uint64_t)blockSize, dynamicSMemSize, flags};
    uint64_t answer;
    if (!answer_known(function, number, question, &answer)) {
        struct fgv_call call;
        struct fgv_request_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags *request =
            fgv_call_begin(&call, number, sizeof(*request), 0);
        if (!request) {
            return call.error;
        }
        *request = (struct fgv_request_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags){
            .func = function->handle, .blockSize = blockSize, .dynamicSMemSize = dynamicSMemSize, .flags = flags};
        struct fgv_reply_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags reply;
        result = fgv_call_wait(&call, &reply, sizeof(reply));
        if (result != CUDA_SUCCESS) {
            return result;
        }
        answer = (uint64_t)(uint32_t)reply.numBlocks;
        answer_keep(function, number, question, answer);
    }
    *numBlocks = (int)answer;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize,
                                                                CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize)
{
    struct fgv_function *function;
    CUresult result = function_get(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!dynamicSmemSize) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint16_t number = FGV_CALL_cuOccupancyAvailableDynamicSMemPerBlock;
    const uint64_t question[3] = {(uint64_t)numBlocks, (uint64_t)blockSize, 0};
    uint64_t answer;
    if (!answer_known(function, number, question, &answer)) {
        struct fgv_call call;
        struct fgv_request_cuOccupancyAvailableDynamicSMemPerBlock *request =
            fgv_call_begin(&call, number, sizeof(*request), 0);
        if (!request) {
            return call.error;
        }
        *request = (struct fgv_request_cuOccupancyAvailableDynamicSMemPerBlock){
            .func = function->handle, .numBlocks = numBlocks, .blockSize = blockSize};
        struct fgv_reply_cuOccupancyAvailableDynamicSMemPerBlock reply;
        result = fgv_call_wait(&call, &reply, sizeof(reply));
        if (result != CUDA_SUCCESS) {
            return result;
        }
        answer = reply.dynamicSmemSize;
        answer_keep(function, number, question, answer);
    }
    *dynamicSmemSize = answer;
    return CUDA_SUCCESS;
}

/* The block size, a multiple of the warp, with which the most threads run at a time; of two that are alike, the larger.
 */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
    struct fgv_function *function;
    CUresult result = function_get(func, &function);
    if (result == CUDA_SUCCESS) {
        result = fgv_function_know(function);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!minGridSize || !blockSize || blockSizeLimit < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int32_t *device = fgv_device_facts(fgv_thread.context->ordinal)->attributes;
    const int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE] > 0 ? device[CU_DEVICE_ATTRIBUTE_WARP_SIZE] : 32;
    const int most_threads = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
    int largest = function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    if (blockSizeLimit > 0 && blockSizeLimit < largest) {
        largest = blockSizeLimit;
    }
    int best_threads = 0;
    *blockSize = *minGridSize = 0;
    for (int size = (largest + warp - 1) / warp * warp; size > 0 && best_threads < most_threads; size -= warp) {
        int tried = size < largest ? size : largest;
        size_t shared_bytes = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(tried) : dynamicSMemSize;
        int nr_blocks;
        result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&nr_blocks, func, tried, shared_bytes, flags);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (nr_blocks * tried <= best_threads) {
            continue;
        }
        best_threads = nr_blocks * tried;
        *blockSize = tried;
        *minGridSize = nr_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                          int blockSizeLimit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                     dynamicSMemSize, blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

/* ---- clusters ---- */

_Static_assert(sizeof(struct fgv_request_cuOccupancyMaxActiveClusters) ==
                   sizeof(struct fgv_request_cuOccupancyMaxPotentialClusterSize),
               "same");
_Static_assert(sizeof(struct fgv_reply_cuOccupancyMaxActiveClusters) ==
                   sizeof(struct fgv_reply_cuOccupancyMaxPotentialClusterSize),
               "same");

static uint64_t mix(uint64_t sum, const void *bytes, size_t nr_bytes)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < nr_bytes; i++) {
        sum = (sum ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* A question of this kind is a whole configuration; two sums of it stand for it, the chance that another has the same
 * is 2^-128. */
static void clusters_question(const CUlaunchConfig *config, uint64_t question[3])
{
    const uint64_t starts[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t sum = mix(starts[i], config, offsetof(CUlaunchConfig, hStream));
        question[i] = mix(sum, config->attrs, config->numAttrs * sizeof(*config->attrs));
    }
    question[2] = config->numAttrs;
}

static CUresult clusters(uint16_t number, int *value, CUfunction func, const CUlaunchConfig *config)
{
    struct fgv_function *function;
    CUresult result = function_get(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!value || !config || config->numAttrs > FGV_MAX_LAUNCH_ATTRIBUTES || (config->numAttrs > 0 && !config->attrs)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t question[3], answer;
    clusters_question(config, question);
    if (!answer_known(function, number, question, &answer)) {
        const uint32_t attribute_bytes = config->numAttrs * (uint32_t)sizeof(CUlaunchAttribute);
        struct fgv_call call;
        struct fgv_request_cuOccupancyMaxActiveClusters *request =
            fgv_call_begin(&call, number, sizeof(*request), attribute_bytes);
        if (!request) {
            return call.error;
        }
        *request = (struct fgv_request_cuOccupancyMaxActiveClusters){
            .function = function->handle,
            .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
            .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
            .shared_bytes = config->sharedMemBytes,
            .nr_attributes = config->numAttrs,
        };
        if (attribute_bytes != 0) {
            memcpy(call.payload, config->attrs, attribute_bytes);
        }
        struct fgv_reply_cuOccupancyMaxActiveClusters reply;
        result = fgv_call_wait(&call, &reply, sizeof(reply));
        if (result != CUDA_SUCCESS) {
            return result;
        }
        answer = (uint64_t)(uint32_t)reply.value;
        answer_keep(function, number, question, answer);
    }
    *value = (int)answer;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
    return clusters(FGV_CALL_cuOccupancyMaxPotentialClusterSize, clusterSize, func, config);
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
    return clusters(FGV_CALL_cuOccupancyMaxActiveClusters, numClusters, func, config);
}
