"""Numba's kernels on whatever device there is: element by element, with shared memory and a barrier, with an atomic, with a reduction."""

import warnings

import numpy as np
from numba import cuda, float32

warnings.simplefilter("ignore")  # of small grids, and of what links: neither is wrong here
BLOCK = 128


@cuda.jit
def scaled_sum(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * a[i] + b[i]


@cuda.jit
def reversed_blocks(values, out):
    tile = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = values[i]
    cuda.syncthreads()
    out[i] = tile[BLOCK - 1 - cuda.threadIdx.x]


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i] % counts.size, 1)


@cuda.reduce
def total(a, b):
    return a + b


def main() -> None:
    a = np.arange(1024, dtype=np.float32)
    out = cuda.device_array_like(a)
    scaled_sum[8, BLOCK](cuda.to_device(a), cuda.to_device(a + 1), out)
    print("sum", np.array_equal(out.copy_to_host(), 3 * a + 1))
    reversed_blocks[8, BLOCK](cuda.to_device(a), out)
    print("reversed", np.array_equal(out.copy_to_host(), a.reshape(8, BLOCK)[:, ::-1].ravel()))
    counts = cuda.to_device(np.zeros(10, np.int32))
    histogram[8, BLOCK](cuda.to_device(np.arange(1000, dtype=np.int32)), counts)
    print("histogram", counts.copy_to_host().tolist())
    print("total", float(total(a)))


if __name__ == "__main__":
    main()
