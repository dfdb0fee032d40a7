"""CuPy on NVIDIA's libraries: products, transforms, random numbers, sparse and dense solvers, a kernel of its own. `cupy_numeric.py STEPS`."""

import sys
import time

import cupy
import cupyx.scipy.sparse

STEPS = int(sys.argv[1])


def timed(name: str, action) -> None:
    """The time of one `action`, and the sum of what it gives."""
    for _ in range(3):
        found = action()
    cupy.cuda.Device().synchronize()
    begin_s = time.perf_counter()
    for _ in range(STEPS):
        found = action()
    cupy.cuda.Device().synchronize()
    passed_s = time.perf_counter() - begin_s
    print(f"{name}: {abs(complex(found.sum())):.12g}")
    print(f"time {name} {passed_s / STEPS:.9f}")


ones = cupy.ones((512, 512))
matrix = cupy.eye(512) * 600 + ones
signal = cupy.arange(1 << 20, dtype=cupy.complex64)
sparse = cupyx.scipy.sparse.eye(100_000, format="csr") * 2.0
vector = cupy.ones(100_000)
kernel = cupy.RawKernel(
    'extern "C" __global__ void twice(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }', "twice"
)
buffer = cupy.zeros(1 << 16, dtype=cupy.float32)


def own_kernel() -> cupy.ndarray:
    kernel((256,), (256,), (buffer,))
    return buffer


cupy.random.seed(1)
timed("cupy, elementwise and sum", lambda: (ones * 2 + 1).sum(axis=0))
timed("cupy, cuBLAS", lambda: ones @ matrix)
timed("cupy, cuFFT", lambda: cupy.fft.fft(signal)[1:2])
timed("cupy, cuRAND", lambda: cupy.random.rand(1000))
timed("cupy, cuSPARSE", lambda: sparse @ vector)
timed("cupy, cuSOLVER", lambda: cupy.linalg.solve(matrix, ones[0]))
timed("cupy, own kernel", own_kernel)
