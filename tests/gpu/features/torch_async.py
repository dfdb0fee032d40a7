"""PyTorch with memory of cudaMallocAsync: training, memory that streams pass on, a graph."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch
from report import part, say
from steps import replay, train

torch.manual_seed(0)


@part
def allocator() -> None:
    say("allocator", torch.cuda.get_allocator_backend())


@part
def training() -> None:
    say("loss", train(20))


@part
def streams() -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    sums = []
    for i in range(40):
        with torch.cuda.stream(streams[i % 4]):
            values = torch.full((1 << 18,), float(i), device="cuda")
            doubled = values * 2
            values.record_stream(streams[(i + 1) % 4])
            sums.append(doubled.sum())
    torch.cuda.synchronize()
    say("streams", sum(value.item() for value in sums))


@part
def graph() -> None:
    say("graph", replay(512))
