/* See asking.h. */
#include "memory/asking.h"

#include <pthread.h>
#include <time.h>

#define NAP_NS  500000
#define NR_NAPS 20000u /* ten seconds: there is no daemon, or one that hangs */

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

void fgv_asking_begin(void)
{
    pthread_mutex_lock(&asking);
}

void fgv_asking_end(void)
{
    pthread_mutex_unlock(&asking);
}

bool fgv_asking_again(CUresult result, uint32_t *nr_naps)
{
    if (result != CUDA_ERROR_NOT_READY || (*nr_naps)++ == NR_NAPS) {
        return false;
    }
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL); /* a signal cuts one short */
    return true;
}

CUresult fgv_asking_settled(CUresult result)
{
    return result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OPERATING_SYSTEM : result;
}
