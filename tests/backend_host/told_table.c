/* What a client was told of its module variables, by itself, for test_told.py. */
#include <stdlib.h>

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
