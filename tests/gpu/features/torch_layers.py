"""Layers and optimizers of PyTorch with kernels of their own: mixed precision, bags of embeddings, CTC, resampling, fused Adam."""

import torch
from report import part, say
from torch import nn

torch.manual_seed(0)


@part
def mixed_precision() -> None:
    net = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(5):
        inputs = torch.randn(32, 64, device="cuda")
        targets = torch.randint(0, 10, (32,), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(inputs), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    say("loss", loss)
    say("scale", scaler.get_scale())


@part
def embeddings() -> None:
    bag = nn.EmbeddingBag(100, 16, mode="sum").cuda()
    say("bag", bag(torch.randint(0, 100, (8, 5), device="cuda")))


@part
def ctc() -> None:
    scores = torch.randn(50, 4, 20, device="cuda").log_softmax(2)
    targets = torch.randint(1, 20, (4, 10), device="cuda")
    say("ctc", nn.functional.ctc_loss(scores, targets, torch.full((4,), 50), torch.full((4,), 10)))


@part
def resampling() -> None:
    image = torch.randn(1, 3, 8, 8, device="cuda")
    places = torch.rand(1, 5, 5, 2, device="cuda") * 2 - 1
    say("bicubic", nn.functional.interpolate(image, scale_factor=2.0, mode="bicubic"))
    say("grid", nn.functional.grid_sample(image, places, align_corners=False))


@part
def fused_optimizer() -> None:
    parameters = [nn.Parameter(torch.randn(1000, device="cuda")) for _ in range(5)]
    optimizer = torch.optim.Adam(parameters, fused=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    say("fused", parameters[0])
