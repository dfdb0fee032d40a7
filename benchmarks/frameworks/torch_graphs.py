"""A CUDA graph replayed, a compiled function, and many small operations in a row. `torch_graphs.py STEPS`."""

import sys
import time

import torch

STEPS = int(sys.argv[1])
torch.manual_seed(0)


def timed(name: str, action, result) -> None:
    """The time of one `action`, and what `result` says afterwards."""
    for _ in range(5):
        action()
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for _ in range(STEPS):
        action()
    torch.cuda.synchronize()
    passed_s = time.perf_counter() - begin_s
    print(f"{name}: {result():.9g}")
    print(f"time {name} {passed_s / STEPS:.9f}")


values = torch.linspace(0, 1, 4096, device="cuda")
state = torch.zeros_like(values)


def small() -> None:
    for _ in range(20):
        state.mul_(0.5).add_(values)


graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    small()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    small()
state.zero_()
timed("torch, 40 small operations", small, lambda: state.sum().item())
state.zero_()
timed("torch, a graph of 40", graph.replay, lambda: state.sum().item())
compiled = torch.compile(lambda t: (t.sin() * 2 + t.cos()).sum())
timed("torch, compiled", lambda: compiled(values), lambda: compiled(values).item())
left, right = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
product = torch.empty_like(left)
timed("torch, matrix product", lambda: torch.mm(left, right, out=product), lambda: product.sum().item())
