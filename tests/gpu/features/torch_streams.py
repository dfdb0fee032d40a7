"""Streams of PyTorch: events, pinned memory, priorities, and a stream for each of eight threads."""

import threading

import torch
from report import part, say

torch.manual_seed(0)


@part
def events() -> None:
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    matrix = torch.randn(2000, 2000, device="cuda")
    product = matrix @ matrix
    end.record()
    end.synchronize()
    say("time passed", begin.elapsed_time(end) > 0)
    say("ended", end.query())
    say("finite", bool(product.isfinite().all()))


@part
def pinned_memory() -> None:
    there = torch.randn(1 << 20).pin_memory()
    back = torch.empty_like(there).pin_memory()
    back.copy_(there.to("cuda", non_blocking=True) * 2, non_blocking=True)
    torch.cuda.synchronize()
    say("pinned", bool((back == there * 2).all()))


@part
def priorities() -> None:
    say("priorities", torch.cuda.Stream.priority_range())
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        say("high", torch.arange(1000, device="cuda").sum())


@part
def threads() -> None:
    side = 300
    sums = [""] * 8

    def multiply(i: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            matrix = torch.full((side, side), i + 1.0, device="cuda")
            for _ in range(20):
                matrix = matrix @ matrix / (side * matrix.mean())  # stays what it is
            stream.synchronize()
            sums[i] = f"{matrix.sum().item():.4g}"

    workers = [threading.Thread(target=multiply, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    say("threads", sums)
