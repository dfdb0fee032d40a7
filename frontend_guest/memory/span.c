#include "memory/span.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "call/call.h"
#include "call/device.h"
#include "memory/guard.h"

/* Below what kernels give a process that asks for no address, above its program. NVIDIA's driver takes it, and softgpu
 * tells strays from here. */
#define FIRST_ADDRESS UINT64_C(0x690000000000)
#define STEP_BYTES    (UINT64_C(1) << 40)
#define MAX_TRIES     16u
/* Memory that comes and goes leaves holes; addresses cost nothing. */
#define TIMES_MEMORY 4u
#define ALIGNMENT    (UINT64_C(1) << 28)

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_settled; /* the host has it, or takes none */
static _Atomic uint64_t first, end;

static CUresult propose(uint64_t address, uint64_t bytes)
{
    struct fgv_call call;
    struct fgv_request_span_open *request = fgv_call_begin_anywhere(&call, FGV_CALL_span_open, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_span_open){.address = address, .bytes = bytes};
    return fgv_call_wait(&call, NULL, 0);
}

static uint64_t wanted_bytes(void)
{
    const uint64_t memory_bytes = fgv_device_facts(0)->total_bytes;
    if (memory_bytes > STEP_BYTES / TIMES_MEMORY) {
        return STEP_BYTES;
    }
    return (memory_bytes * TIMES_MEMORY + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* CUDA_ERROR_MAP_FAILED: all tries met something, here or there. */
static CUresult open_somewhere(uint64_t bytes)
{
    for (uint64_t try = 0; try < MAX_TRIES; try++) {
        const uint64_t address = FIRST_ADDRESS + try * STEP_BYTES;
        const enum fgv_guard found = fgv_guard(address, bytes);
        if (found == FGV_TAKEN) {
            continue;
        }
        const CUresult result = propose(address, bytes);
        if (result != CUDA_SUCCESS && found == FGV_GUARDED) {
            munmap((void *)(uintptr_t)address, bytes);
        }
        if (result == CUDA_SUCCESS) {
            atomic_store_explicit(&end, address + bytes, memory_order_relaxed);
            atomic_store_explicit(&first, address, memory_order_relaxed);
        }
        if (result != CUDA_ERROR_MAP_FAILED) {
            return result;
        }
    }
    return CUDA_ERROR_MAP_FAILED;
}

CUresult fgv_span_open(void)
{
    if (__builtin_expect(atomic_load_explicit(&is_settled, memory_order_acquire), 1)) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books);
    if (!atomic_load_explicit(&is_settled, memory_order_relaxed)) {
        result = open_somewhere(wanted_bytes());
        const bool is_refused = result == CUDA_ERROR_MAP_FAILED || result == CUDA_ERROR_NOT_SUPPORTED;
        if (result == CUDA_SUCCESS || is_refused) {
            atomic_store_explicit(&is_settled, true, memory_order_release);
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&books);
    return result;
}

bool fgv_span_has(uint64_t address)
{
    return address < atomic_load_explicit(&end, memory_order_relaxed) &&
           address >= atomic_load_explicit(&first, memory_order_relaxed);
}
