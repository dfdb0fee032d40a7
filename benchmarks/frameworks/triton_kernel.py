"""A masked kernel in Triton. `triton_kernel.py STEPS`."""

import sys
import time

import torch
import triton
import triton.language as tl

STEPS = int(sys.argv[1])


@triton.jit
def scale(source, target, count, BLOCK: tl.constexpr):  # noqa: N803
    """Doubles what lies below `count`."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    tl.store(target + places, tl.load(source + places, mask=mask) * 2, mask=mask)


values = torch.arange(100_000.0, device="cuda")
target = torch.zeros_like(values)
for _ in range(5):
    scale[(98,)](values, target, 99_999, BLOCK=1024)
torch.cuda.synchronize()
begin_s = time.perf_counter()
for _ in range(STEPS):
    scale[(98,)](values, target, 99_999, BLOCK=1024)
torch.cuda.synchronize()
passed_s = time.perf_counter() - begin_s
print(f"triton: {target.sum().item():.9g}")
print(f"time triton {passed_s / STEPS:.9f}")
