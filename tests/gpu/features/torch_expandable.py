"""PyTorch's allocator with segments that grow: mapped and unmapped memory, training, a graph, and a refusal."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"

import torch
from report import part, say
from steps import replay, train

torch.manual_seed(0)


@part
def growing() -> None:
    tensors = []
    for i in range(60):
        tensors.append(torch.full((1 << 20, i % 7 + 1), float(i), device="cuda"))
        if i % 3 == 2:
            tensors.pop(0)
    say("sum", sum(tensor.sum().double() for tensor in tensors).item())
    tensors.clear()
    torch.cuda.empty_cache()
    say("reserved", torch.cuda.memory_reserved())


@part
def training() -> None:
    say("loss", train(10))


@part
def graph() -> None:
    say("graph", replay(1024))


@part
def refusal() -> None:
    try:
        torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
        say("too much", "given")
    except torch.OutOfMemoryError:
        say("too much", "refused")
    say("after it", torch.ones(10, device="cuda").sum())
