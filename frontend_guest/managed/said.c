/* What the program said about its managed memory: see said.h. */
#include "managed/said.h"

#include <pthread.h>

#include "cuda_api/advice.h"
#include "memory/ranges.h"
#include "region/client.h"

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct fgv_advice advice;

CUresult fgv_said_advise(uint64_t address, uint64_t bytes, CUmem_advise what, CUmemLocation location)
{
    pthread_mutex_lock(&books);
    const CUresult result = fgv_advice_set(&advice, address, bytes, what, location, (int)fgv_guest.nr_devices);
    pthread_mutex_unlock(&books);
    return result;
}

CUresult fgv_said_prefetch(uint64_t address, uint64_t bytes, CUmemLocation location)
{
    pthread_mutex_lock(&books);
    const CUresult result = fgv_advice_prefetched(&advice, address, bytes, location, (int)fgv_guest.nr_devices);
    pthread_mutex_unlock(&books);
    return result;
}

CUresult fgv_said_get(uint64_t address, uint64_t bytes, CUmem_range_attribute attribute, void *data,
                      uint64_t data_bytes)
{
    pthread_mutex_lock(&books);
    const CUresult result = fgv_advice_get(&advice, address, bytes, attribute, data, data_bytes);
    pthread_mutex_unlock(&books);
    return result;
}

uint64_t fgv_said_host_bytes(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&books);
    const uint64_t nr = fgv_advice_host_bytes(&advice, address, bytes);
    pthread_mutex_unlock(&books);
    return nr;
}

void fgv_said_forget(const struct fgv_range *range)
{
    pthread_mutex_lock(&books);
    fgv_advice_forget(&advice, range->address, range->bytes);
    pthread_mutex_unlock(&books);
}
