"""CuPy on whatever device there is: its own kernels, its reductions, a kernel of the program's."""

import cupy as cp

SCALE = 'extern "C" __global__ void scale(float *x, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= by; }'


def main() -> None:
    x = cp.arange(1000, dtype="f")
    print("sum", float((2 * x + 1).sum()), float(cp.ones(10, dtype="f").sum()))
    matrix = x.reshape(10, 100)
    print("rows", matrix.sum(axis=1).tolist(), matrix.max(axis=0)[:3].tolist())
    y = cp.where(x % 3 == 0, x, -x)
    print("chosen", float(y.min()), float(y.sum()))
    cp.RawKernel(SCALE, "scale")((8,), (128,), (x, cp.float32(0.5), cp.int32(1000)))
    print("scaled", float(x[999]))


if __name__ == "__main__":
    main()
