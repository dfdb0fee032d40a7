/*
 * What FairGV's libcuda.so.1 has beside CUDA's calls (docs/yield.md).
 *
 * Nothing is linked for it: a program looks the names up, and does without where they are not, as under NVIDIA's own
 * libcuda.so.1.
 *
 *     void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
 *     auto attach = (decltype(&fairgv_yield_attach))dlsym(cuda, "fairgv_yield_attach");
 */
#ifndef FAIRGV_H
#define FAIRGV_H

#ifndef CUDA_API_TYPES_H /* FairGV's own names for the types of cuda.h */
#include <cuda.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Attaches a word of 32 bits, in device memory of the current context, by which its kernels are asked to give way.
 * Zero: go on. Anything else: end soon, with what was done so far kept; test for zero only. It is zero again before
 * anything of the next turn begins, and before the first launch behind this call.
 *
 * A context has one word: the last one counts. It ends with its memory, and with its context. CUDA_ERROR_INVALID_VALUE:
 * it is not aligned, or does not lie in memory that was allocated on the device in the current context and is there,
 * or that was mapped (cuMemMap); pinned, managed and imported memory and variables are not taken.
 */
__attribute__((visibility("default"))) CUresult fairgv_yield_attach(CUdeviceptr word);

/*
 * The context has no word any more. Nothing is written there once this has returned, and what is there stays. Wrong
 * when a write waits for more than 10 ms behind another kernel, in a queue of the device that both share, as in
 * programs with many streams: it comes when that kernel has ended.
 */
__attribute__((visibility("default"))) CUresult fairgv_yield_detach(void);

#ifdef __cplusplus
}
#endif

#endif
