"""NCCL with one rank: all collectives that torch.distributed has for it. `torch_nccl.py STEPS`."""

import os
import sys
import tempfile
import time

import torch
from torch import distributed

STEPS = int(sys.argv[1])
COUNT = 1 << 18

os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
with tempfile.TemporaryDirectory() as folder:
    distributed.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    values = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    gathered, scattered = torch.empty_like(values), torch.empty_like(values)

    def step() -> None:
        distributed.all_reduce(values)
        distributed.all_gather_into_tensor(gathered, values)
        distributed.reduce_scatter_tensor(scattered, gathered)
        distributed.broadcast(values, 0)
        distributed.all_to_all_single(gathered, scattered)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    passed_s = time.perf_counter() - begin_s
    distributed.barrier()
    print(f"torch, NCCL: {gathered.sum().item():.9g} {scattered.sum().item():.9g}")
    print(f"time torch, NCCL {passed_s / STEPS:.9f}")
    distributed.destroy_process_group()
