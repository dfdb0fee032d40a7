"""Steps that scripts of this folder make with each of PyTorch's allocators."""

import torch  # type: ignore[import-not-found, unused-ignore]
from torch import nn


def train(nr_steps: int) -> torch.Tensor:
    """The last loss of a net whose batches grow with each step."""
    net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for i in range(nr_steps):
        inputs = torch.randn(64 * (i + 1), 256, device="cuda")
        loss = net(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def replay(side: int) -> torch.Tensor:
    """What a captured product of matrices leaves when it is replayed."""
    matrix = torch.randn(side, side, device="cuda")
    warming = torch.cuda.Stream()
    warming.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warming):
        for _ in range(3):
            result = (matrix @ matrix).relu().sum(0)
    torch.cuda.current_stream().wait_stream(warming)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (matrix @ matrix).relu().sum(0)
    graph.replay()
    torch.cuda.synchronize()
    return result.clone()
