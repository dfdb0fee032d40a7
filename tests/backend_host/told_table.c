/* What a client was told of its module variables, by itself, for test_told.py. */
#include <stdlib.h>

#include "client/kernel.h"
#include "client/state.h"

#define AREA UINT64_C(0x500000000000)

static struct fgw_worker worker;

static CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    (void)bytes, (void)alignment, (void)wanted, (void)flags;
    *address = AREA;
    return CUDA_SUCCESS;
}

void begin(bool is_wanted, bool has_area)
{
    while (worker.told.nr > 0) {
        fgw_told_forget(&worker, worker.told.items[0].owner_kind, worker.told.items[0].owner);
    }
    worker = (struct fgw_worker){.driver = {.cuMemAddressReserve = has_area ? reserve : NULL}};
    fgw_told_want(&worker, is_wanted);
}

/* What the client is told; 0: it cannot be told. */
uint64_t tell(uint8_t owner_kind, uint64_t owner, uint64_t context, uint64_t address, uint64_t bytes)
{
    char name[] = "name";
    const struct fgw_told_variable variable = {.now = address,
                                               .bytes = bytes,
                                               .owner_kind = (enum fgv_handle_kind)owner_kind,
                                               .owner = owner,
                                               .context = context,
                                               .name = name};
    uint64_t told;
    return fgw_told_tell(&worker, &variable, &told) ? told : 0;
}

/* The variable that lies at `now` is at `other` on the other device. */
void will_be(uint64_t now, uint64_t other)
{
    for (uint32_t i = 0; i < worker.told.nr; i++) {
        if (worker.told.items[i].now == now) {
            worker.told.items[i].other = other;
            return;
        }
    }
}

void exchange(void)
{
    fgw_told_exchange(&worker);
}

/* ---- a kernel whose parameters have 8 bytes each ---- */

static uint32_t nr_asked, nr_parameters, failing = UINT32_MAX;

static CUresult tell_parameter(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    (void)function;
    nr_asked++;
    if (index == failing) {
        return CUDA_ERROR_UNKNOWN;
    }
    *offset = index * sizeof(uint64_t);
    *bytes = sizeof(uint64_t);
    return index < nr_parameters ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Gives how often the driver was asked, or less than 0 where the launch fails. `fails_at`: this question does. */
int64_t lead(uint64_t *words, uint32_t nr, uint32_t fails_at)
{
    const struct fgw_handle handle = {.kind = FGV_HANDLE_FUNCTION, .number = 1};
    worker.driver.cuFuncGetParamInfo = tell_parameter;
    nr_asked = 0;
    nr_parameters = nr;
    failing = fails_at;
    const CUresult result = fgw_kernel_lead(&worker, &handle, (uint8_t *)words, nr * (uint32_t)sizeof(*words));
    return result == CUDA_SUCCESS ? (int64_t)nr_asked : -(int64_t)result;
}

void forget(uint8_t owner_kind, uint64_t owner)
{
    fgw_told_forget(&worker, (enum fgv_handle_kind)owner_kind, owner);
}

void forget_context(uint64_t context)
{
    fgw_told_forget_context(&worker, context);
}

uint64_t led(uint64_t address)
{
    return fgw_worker_address(&worker, address);
}

uint64_t as_told(uint64_t address)
{
    return fgw_told_as_told(&worker, address);
}

uint64_t pass_on(uint64_t address)
{
    return fgw_told_pass(&worker, address);
}

uint32_t nr_passed(void)
{
    return worker.told.nr_passed;
}

bool hides(uint64_t address, uint64_t bytes)
{
    return fgw_told_hides(&worker, address, bytes);
}

bool is_lost(void)
{
    return worker.told.is_lost;
}

uint32_t nr_told(void)
{
    return worker.told.nr;
}
