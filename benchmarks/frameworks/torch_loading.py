"""Batches from worker processes, through pinned memory and a stream of their own, beside the computation. `torch_loading.py STEPS`."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

STEPS = int(sys.argv[1])
BATCH, WIDTH = 128, 4096


class Numbers(Dataset[torch.Tensor]):
    """Rows that follow from their index."""

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + WIDTH, dtype=torch.float32).remainder_(97)


def main() -> None:
    copies = torch.cuda.Stream()
    weights = torch.linspace(-1, 1, WIDTH, device="cuda").outer(torch.linspace(-1, 1, 64, device="cuda"))
    total = torch.zeros(64, dtype=torch.float64, device="cuda")
    loader = DataLoader(Numbers(), BATCH, num_workers=2, pin_memory=True, persistent_workers=False)

    def add(batch: torch.Tensor) -> None:
        with torch.cuda.stream(copies):
            rows = batch.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        rows.record_stream(torch.cuda.current_stream())
        total.add_((rows.double() @ weights.double()).sum(0))

    add(torch.zeros(BATCH, WIDTH).pin_memory())  # kernels are loaded when they are first launched
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for batch in loader:
        add(batch)
    torch.cuda.synchronize()
    passed_s = time.perf_counter() - begin_s
    print(f"torch, loading: {total.abs().sum().item():.12g}")
    print(f"time torch, loading {passed_s / STEPS:.9f}")


if __name__ == "__main__":
    main()
