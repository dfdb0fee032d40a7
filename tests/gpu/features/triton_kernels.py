"""Kernels of Triton: a product of matrices that is tuned, a softmax, atomics, and Triton's own benchmark."""

import torch
import triton
import triton.language as tl
from report import part, say

torch.manual_seed(0)
CONFIGS = [
    triton.Config({"rows": 64, "columns": 64, "depth": 32}, num_warps=4, num_stages=3),
    triton.Config({"rows": 128, "columns": 64, "depth": 32}, num_warps=8, num_stages=2),
]


@triton.autotune(CONFIGS, key=["side"])
@triton.jit
def multiply(left, right, result, side, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    """A tile of a product of square matrices."""
    i = (tl.program_id(0) * rows + tl.arange(0, rows))[:, None]
    j = (tl.program_id(1) * columns + tl.arange(0, columns))[None, :]
    inner = tl.arange(0, depth)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for begin in range(0, side, depth):
        k = begin + inner
        total += tl.dot(tl.load(left + i * side + k[None, :]), tl.load(right + k[:, None] * side + j))
    tl.store(result + i * side + j, total.to(tl.float16))


@triton.jit
def softmax_row(values, result, length, block: tl.constexpr):
    """One row."""
    row = tl.program_id(0) * length
    i = tl.arange(0, block)
    exponents = tl.load(values + row + i, mask=i < length, other=-float("inf"))
    powers = tl.exp(exponents - tl.max(exponents, 0))
    tl.store(result + row + i, powers / tl.sum(powers, 0), mask=i < length)


@triton.jit
def count(values, counts, length, block: tl.constexpr):
    """A histogram by atomics."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(counts + tl.load(values + i, mask=i < length, other=0), 1, mask=i < length)


@part
def autotune() -> None:
    matrix = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    result = torch.empty_like(matrix)
    multiply[lambda config: (512 // config["rows"], 512 // config["columns"])](matrix, matrix, result, 512)
    say("product", torch.allclose(result.float(), (matrix @ matrix).float(), atol=0.5, rtol=1e-2))


@part
def softmax() -> None:
    values = torch.randn(100, 1000, device="cuda")
    result = torch.empty_like(values)
    softmax_row[(100,)](values, result, 1000, block=1024)
    say("softmax", torch.allclose(result, values.softmax(-1), atol=1e-6))


@part
def atomics() -> None:
    values = torch.randint(0, 100, (100_000,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(100, device="cuda", dtype=torch.int32)
    count[(98,)](values, counts, 100_000, block=1024)
    say("histogram", counts)


@part
def benchmark() -> None:
    took_ms = triton.testing.do_bench(lambda: torch.ones(1000, device="cuda"), warmup=2, rep=5)
    say("time passed", took_ms > 0)
