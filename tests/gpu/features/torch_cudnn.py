"""cuDNN in PyTorch: recurrent nets, convolutions in both layouts of memory, and the choice of an algorithm by its time."""

import torch
from report import part, say
from torch import nn

torch.manual_seed(0)


@part
def recurrent() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        net = kind(32, 64, 2, bidirectional=True).cuda()
        result, _ = net(torch.randn(20, 8, 32, device="cuda"))
        result.sum().backward()
        say(kind.__name__, result)


@part
def convolutions() -> None:
    torch.backends.cudnn.deterministic = True
    for layout in (torch.contiguous_format, torch.channels_last):
        net = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, groups=4),
            nn.ConvTranspose2d(64, 16, 4, 2),
            nn.AdaptiveAvgPool2d(4),
        )
        net = net.cuda().to(memory_format=layout)
        result = net(torch.randn(4, 3, 64, 64, device="cuda").to(memory_format=layout))
        result.sum().backward()
        say(f"convolutions, {layout}", result)


@part
def volumes() -> None:
    net = nn.Conv3d(4, 8, 3).cuda()
    say("volumes", net(torch.randn(2, 4, 8, 8, 8, device="cuda")))


@part
def benchmark() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = False
    net = nn.Conv2d(64, 64, 3, padding=1).cuda().half()
    result = net(torch.randn(8, 64, 56, 56, device="cuda").half())
    say("fastest", result.float().mean().round(decimals=3))
