"""torch.distributed with one rank on NCCL: DDP, FSDP, and collectives."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.fsdp as sharding
from report import part, say
from torch import nn

os.environ.update(NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
torch.manual_seed(0)
folder = tempfile.TemporaryDirectory()
meeting = f"file://{folder.name}/ranks"
dist.init_process_group("nccl", init_method=meeting, rank=0, world_size=1, device_id=torch.device("cuda:0"))


@part
def ddp() -> None:
    net = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        loss = net(torch.randn(8, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    say("ddp", loss)


@part
def fsdp() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
    for layer in net:
        sharding.fully_shard(layer)
    sharding.fully_shard(net)
    loss = net(torch.randn(8, 64, device="cuda")).square().mean()
    loss.backward()
    say("fsdp", loss)


@part
def collectives() -> None:
    values = torch.arange(10.0, device="cuda")
    dist.all_reduce(values)
    work = dist.all_reduce(values, async_op=True)
    work.wait()
    dist.broadcast(values, 0)
    dist.barrier()
    say("collectives", values)


dist.destroy_process_group()
