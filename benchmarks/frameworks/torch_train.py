"""A convolutional net and a small transformer under mixed precision, trained with Adam: forward, backward, step. `torch_train.py STEPS`."""

import sys
import time

import torch
from torch import nn

STEPS = int(sys.argv[1])
torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)


def train(name: str, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, is_mixed: bool) -> None:
    """The loss of each tenth of the steps, and the time of a step."""
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    inputs, targets = inputs.pin_memory().cuda(non_blocking=True), targets.cuda()
    losses = []

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed):
            loss = nn.functional.cross_entropy(model(inputs).float(), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for i in range(STEPS):
        loss = step()
        if i % (STEPS // 10) == 0:
            losses.append(loss.item())
    torch.cuda.synchronize()
    passed_s = time.perf_counter() - begin_s
    print(f"{name}: {' '.join(f'{loss:.9g}' for loss in losses)}")
    print(f"time {name} {passed_s / STEPS:.9f}")


class Classifier(nn.Module):
    """Two encoder layers and a linear one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(256, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.encoder(inputs).mean(1))


convolutions = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(64 * 16 * 16, 10)),
)
labels = torch.randint(0, 10, (64,))
train("torch, convolutions", convolutions, torch.randn(64, 3, 32, 32), labels, is_mixed=False)
train("torch, transformer, bfloat16", Classifier(), torch.randn(64, 64, 256), labels, is_mixed=True)
