"""Numba's streams, and its pinned, mapped and managed memory, which a kernel and the host read and write in turn."""

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # which releases of Numba want and NumPy has dropped

from numba import cuda
from report import part, say


@cuda.jit
def increase(values):
    """By one."""
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1


@part
def stream() -> None:
    stream = cuda.stream()
    pinned = cuda.pinned_array(1000)
    pinned[:] = 3
    with stream.auto_synchronize():
        there = cuda.to_device(pinned, stream=stream)
        increase[8, 128, stream](there)
        there.copy_to_host(pinned, stream=stream)
    say("stream", pinned)


@part
def mapped_memory() -> None:
    values = cuda.mapped_array(100)
    values[:] = 1
    increase[1, 128](values)
    cuda.synchronize()
    say("mapped", values)


@part
def managed_memory() -> None:
    values = cuda.managed_array(100)
    values[:] = 2
    increase[1, 128](values)
    cuda.synchronize()
    say("managed", values)
