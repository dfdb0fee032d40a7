"""Copies of tiles in Triton by TMA, with descriptors made by the host and by the kernel."""

import torch
import triton
import triton.language as tl
from report import part, say

SIDE, TILE = 256, 64
torch.manual_seed(0)


@triton.jit
def double_tile(source, target, tile: tl.constexpr):
    """By descriptors that the kernel is given."""
    i = tl.program_id(0) * tile
    j = tl.program_id(1) * tile
    target.store([i, j], source.load([i, j]) * 2)


@triton.jit
def increase_tile(values, result, side, tile: tl.constexpr):
    """By descriptors of its own."""
    source = tl.make_tensor_descriptor(values, [side, side], [side, 1], [tile, tile])
    target = tl.make_tensor_descriptor(result, [side, side], [side, 1], [tile, tile])
    i = tl.program_id(0) * tile
    j = tl.program_id(1) * tile
    target.store([i, j], source.load([i, j]) + 1)


def room(nr_bytes: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory for the descriptors that a kernel makes."""
    return torch.empty(nr_bytes, device="cuda", dtype=torch.int8)


values = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16)
grid = (SIDE // TILE, SIDE // TILE)


@part
def by_the_host() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415 - older ones lack it

    result = torch.empty_like(values)
    source = TensorDescriptor.from_tensor(values, [TILE, TILE])
    target = TensorDescriptor.from_tensor(result, [TILE, TILE])
    double_tile[grid](source, target, tile=TILE)
    say("by the host", torch.equal(result, values * 2))


@part
def by_the_kernel() -> None:
    triton.set_allocator(room)
    result = torch.empty_like(values)
    increase_tile[grid](values, result, SIDE, tile=TILE)
    say("by the kernel", torch.equal(result, values + 1))
