# mypy: ignore-errors
"""Kernels for Triton, which the project does not depend on: only `make_samples` imports this."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, size, side: tl.constexpr, depth: tl.constexpr):
    rows = tl.program_id(0) * side + tl.arange(0, side)
    columns = tl.program_id(1) * side + tl.arange(0, side)
    inner = tl.arange(0, depth)
    total = tl.zeros((side, side), dtype=tl.float32)
    for start in range(0, size, depth):
        left = tl.load(a + rows[:, None] * size + inner + start, mask=inner[None, :] < size - start, other=0.0)
        right = tl.load(b + (inner + start)[:, None] * size + columns, mask=inner[:, None] < size - start, other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * size + columns, total.to(c.dtype.element_ty), mask=columns[None, :] < size)


@triton.jit
def softmax(out, values, size, width: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, width)
    value = tl.load(values + row * size + column, mask=column < size, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * size + column, value / tl.sum(value, axis=0), mask=column < size)


@triton.jit
def reduce(values, out, size, width: tl.constexpr):
    column = tl.program_id(0) * width + tl.arange(0, width)
    value = tl.load(values + column, mask=column < size, other=0)
    tl.atomic_add(out, tl.sum(value, 0))
    tl.atomic_max(out + 1, tl.max(value, 0))
    tl.atomic_cas(out + 2, 0, 1)
    tl.store(out + 3 + column, tl.cumsum(value, 0), mask=column < size)


@triton.jit
def fp8(values, out, width: tl.constexpr):
    column = tl.arange(0, width)
    value = tl.load(values + column).to(tl.float32)
    tl.store(out + column, (value * 2 + tl.rand(1, column)).to(tl.float8e4nv))
    tl.device_print("value", value)
    tl.device_assert(column < 10000)


# Name of the sample, kernel, types of its parameters, constants, compute capability.
SAMPLES = [
    ("matmul_80", matmul, ("*fp16", "*fp16", "*fp16", "i32"), {"side": 32, "depth": 32}, 80),
    ("matmul_90", matmul, ("*fp16", "*fp16", "*fp16", "i32"), {"side": 64, "depth": 32}, 90),
    ("softmax_75", softmax, ("*fp32", "*fp32", "i32"), {"width": 512}, 75),
    ("reduce_80", reduce, ("*i32", "*i32", "i32"), {"width": 256}, 80),
    ("fp8_89", fp8, ("*fp8e4nv", "*fp8e4nv"), {"width": 128}, 89),
]


def compiled():
    """Name and PTX text of each sample. No GPU is needed."""
    for name, kernel, types, constants, capability in SAMPLES:
        signature = dict(zip(kernel.arg_names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
        aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(types))}
        source = ASTSource(kernel, signature, constants, aligned)
        yield name, triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
