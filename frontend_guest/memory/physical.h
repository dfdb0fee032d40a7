/* Physical memory of the device, by the number that the worker knows it by: what cuMemCreate makes. */
#ifndef FRONTEND_GUEST_PHYSICAL_H
#define FRONTEND_GUEST_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* What it was made with; false: the program does not hold it. */
bool fgv_physical_has(uint64_t handle, CUmemAllocationProp *properties);
/* The same of what is mapped, whether the program holds it or not. */
bool fgv_physical_of_mapping(uint64_t handle, CUmemAllocationProp *properties);
/* A number for what the program is to hold, before the worker knows it; and no more, if the worker will not. */
CUresult fgv_physical_new(const CUmemAllocationProp *properties, uint64_t *handle);
void fgv_physical_give_up(uint64_t handle);
/* Has the worker make it, where there is no room after what is kept for pools was given back; and let go of it. */
CUresult fgv_physical_create(uint64_t handle, uint64_t bytes, const CUmemAllocationProp *properties);
CUresult fgv_physical_release(uint64_t handle);
/* It is mapped once more, or once less: it is known for as long. */
void fgv_physical_mapped(uint64_t handle);
void fgv_physical_unmapped(uint64_t handle);

#endif
