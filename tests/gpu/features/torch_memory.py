"""What PyTorch tells of its memory, how it limits it, and a pool of a program's own."""

import torch
from report import part, say


@part
def sizes() -> None:
    free, total = torch.cuda.mem_get_info()
    say("free is part of all", 0 < free <= total)


@part
def history() -> None:
    torch.cuda.memory._record_memory_history()
    kept = torch.ones(1 << 20, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    say("segments", len(snapshot["segments"]) > 0)
    say("kept", kept.sum())


@part
def fraction() -> None:
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        torch.empty(int(total * 0.05), dtype=torch.uint8, device="cuda")
        say("beyond its fraction", "given")
    except torch.OutOfMemoryError:
        say("beyond its fraction", "refused")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@part
def own_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        values = torch.ones(1 << 20, device="cuda")
    say("pool", values.sum())
