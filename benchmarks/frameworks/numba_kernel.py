"""Kernels of Numba: one over a grid, a reduction in shared memory with atomics, one on a stream of its own. `numba_kernel.py STEPS`."""

import sys
import time

import numpy as np
from numba import cuda, float32

STEPS = int(sys.argv[1])
COUNT, BLOCK = 1 << 20, 256


@cuda.jit
def saxpy(scale, x, y):  # type: ignore[no-untyped-def]
    """y += scale * x, by strides of the grid."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] += scale * x[i]


@cuda.jit
def largest(x, result):  # type: ignore[no-untyped-def]
    """The largest of each block in shared memory, and of all of them by an atomic."""
    shared = cuda.shared.array(BLOCK, float32)
    place, i = cuda.threadIdx.x, cuda.grid(1)
    shared[place] = x[i] if i < x.size else -1.0
    cuda.syncthreads()
    width = BLOCK // 2
    while width > 0:
        if place < width:
            shared[place] = max(shared[place], shared[place + width])
        cuda.syncthreads()
        width //= 2
    if place == 0:
        cuda.atomic.max(result, 0, shared[0])


stream = cuda.stream()
x = cuda.to_device(np.random.default_rng(0).random(COUNT, dtype=np.float32), stream=stream)
y = cuda.to_device(np.zeros(COUNT, dtype=np.float32), stream=stream)
result = cuda.to_device(np.zeros(1, dtype=np.float32), stream=stream)


def step() -> None:
    saxpy[64, BLOCK, stream](np.float32(0.5), x, y)
    largest[COUNT // BLOCK, BLOCK, stream](y, result)


for _ in range(5):
    step()
stream.synchronize()
begin_s = time.perf_counter()
for _ in range(STEPS):
    step()
stream.synchronize()
passed_s = time.perf_counter() - begin_s
print(f"numba: {result.copy_to_host()[0]:.9g} {y.copy_to_host().sum(dtype=np.float64):.12g}")
print(f"time numba {passed_s / STEPS:.9f}")
