"""Kernels that CuPy compiles by NVRTC: raw ones, modules with templates, element by element, reductions, fused ones."""

import cupy
from report import part, say

DOUBLED = """
extern "C" __global__ void doubled(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i * 2.0f;
}
"""
INCREMENT = """
template <typename T> __global__ void increment(T *x) { x[threadIdx.x] += T(1) + T(offsets[threadIdx.x % 4]); }
"""
matrix = cupy.linspace(0, 1, 256 * 256).reshape(256, 256)


@part
def raw_kernel() -> None:
    values = cupy.zeros(1000, dtype=cupy.float32)
    cupy.RawKernel(DOUBLED, "doubled")((4,), (256,), (values, 1000))
    say("raw", values)


@part
def module() -> None:
    names = ["increment<float>", "increment<double>"]
    code = "__constant__ float offsets[4];" + INCREMENT
    compiled = cupy.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
    offsets = cupy.ndarray(4, cupy.float32, compiled.get_global("offsets"))
    offsets[:] = cupy.arange(4, dtype=cupy.float32)
    for name, dtype in zip(names, (cupy.float32, cupy.float64), strict=True):
        values = cupy.zeros(32, dtype=dtype)
        compiled.get_function(name)((1,), (32,), (values,))
        say(name, values)


@part
def elementwise() -> None:
    product = cupy.ElementwiseKernel("T x, T y", "T z", "z = x * y + 1", "product")
    say("elementwise", product(matrix, matrix))


@part
def reduction() -> None:
    root = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "root_of_squares")
    say("reduction", root(matrix))


@part
def fusion() -> None:
    @cupy.fuse()
    def length(x, y):
        return cupy.sqrt(x * x + y * y)

    say("fused", length(matrix, matrix))
