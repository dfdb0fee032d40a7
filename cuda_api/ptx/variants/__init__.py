"""
Kernels that run a part of their grid at a time, made from a kernel's PTX.

`slice_kernel` gives the variant that runs a box of the grid, `persist_kernel` the one whose blocks take their numbers from a counter until
they are told to stop. What a variant is told of the launch stands in one parameter behind the kernel's own, by value: each part has its own
copy, so nothing in memory has to be written, kept and ordered between parts, and a thread reads it as it reads any parameter.

A variant is a module by itself, with one entry of the kernel's name, made for an original that is loaded already. Variables of the original
are reached by address, so both see the same ones; the original's module stays as its program loaded it, machine code included, and nothing is
compiled for kernels that never need it. `RunsWholeError` says why a kernel has no variant.

Wrong when: a kernel waits for blocks that are not running yet in a way that `waiting` does not see. It then waits for ever, as it might
natively on a smaller device.
"""

from cuda_api.generated.values import Whole
from cuda_api.ptx.variants.part import RunsWholeError
from cuda_api.ptx.variants.persistent import persist_kernel
from cuda_api.ptx.variants.sliced import slice_kernel
from cuda_api.ptx.variants.used import Used, used_by

__all__ = ["RunsWholeError", "Used", "Whole", "persist_kernel", "slice_kernel", "used_by"]
