"""Kernels of Numba: element by element, a reduction in shared memory with an atomic, a cooperative one that waits for its grid."""

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # which releases of Numba want and NumPy has dropped

from numba import cuda, float32
from report import part, say

BLOCK = 128


@cuda.jit
def scale(values, result):
    """Element by element."""
    i = cuda.grid(1)
    if i < values.size:
        result[i] = values[i] * 2 + 1


@cuda.jit
def add_up(values, total):
    """Each block in shared memory, and all of them by an atomic."""
    shared = cuda.shared.array(BLOCK, float32)
    i = cuda.threadIdx.x
    shared[i] = values[cuda.grid(1)]
    cuda.syncthreads()
    width = BLOCK // 2
    while width > 0:
        if i < width:
            shared[i] += shared[i + width]
        cuda.syncthreads()
        width //= 2
    if i == 0:
        cuda.atomic.add(total, 0, shared[0])


@cuda.jit
def mirror(values):
    """The first half gets what the grid wrote to the other one."""
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    values[i] = i
    grid.sync()
    if i < values.size // 2:
        values[i] += values[values.size - 1 - i]


@part
def elements() -> None:
    values = cuda.to_device(np.arange(1000, dtype=np.float32))
    result = cuda.device_array_like(values)
    scale[8, BLOCK](values, result)
    say("elements", result.copy_to_host())


@part
def shared_memory() -> None:
    total = np.zeros(1, dtype=np.float32)
    add_up[8, BLOCK](np.ones(8 * BLOCK, dtype=np.float32), total)
    say("shared", total)


@part
def cooperative() -> None:
    values = cuda.to_device(np.zeros(256, dtype=np.int32))
    mirror[4, 64](values)
    say("cooperative", values.copy_to_host())
