"""torch.compile in three modes: as it is, with CUDA graphs, and choosing kernels by their times."""

import torch
from report import part, say
from torch import nn

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")


class Encoder(nn.Module):
    """A layer of a transformer, and operations that fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs).softmax(-1).cumsum(-1)


def is_near(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether they differ by a hundredth of the largest at most."""
    return bool((result - expected).abs().max() <= 0.01 * expected.abs().max())


model = Encoder().cuda()
inputs = torch.randn(4, 64, 128, device="cuda")


@part
def default() -> None:
    result = torch.compile(model)(inputs)
    result.sum().backward()
    say("default is near", is_near(result, model(inputs)))
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(inputs).sum().backward()
    largest = max(parameter.grad.abs().max() for parameter in model.parameters())
    differences = [
        (mine - parameter.grad).abs().max() for mine, parameter in zip(found, model.parameters(), strict=True)
    ]
    say("gradients are near", bool(max(differences) <= 0.01 * largest))


@part
def reduce_overhead() -> None:
    def products(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.transpose(-1, -2)).relu().sum(-1)

    compiled = torch.compile(products, mode="reduce-overhead")
    for _ in range(4):
        result = compiled(inputs)
    say("with graphs is near", is_near(result, products(inputs)))


@part
def max_autotune() -> None:
    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(left @ right)

    matrix = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    compiled = torch.compile(product, mode="max-autotune-no-cudagraphs")
    say("autotuned is near", is_near(compiled(matrix, matrix), product(matrix, matrix)))
