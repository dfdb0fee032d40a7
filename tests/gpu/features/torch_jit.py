"""Kernels that PyTorch makes while it runs (jiterator, TorchScript), layers as graphs, and the profiler of the CPU."""

import torch
from report import part, say, say_each
from torch import nn
from torch.profiler import ProfilerActivity, profile

AXPY = "template <typename T> T axpy(T x, T y, T a) { return a * x + y; }"
torch.manual_seed(0)


@part
def jiterator() -> None:
    axpy = torch.cuda.jiterator._create_jit_fn(AXPY, a=2.0)
    ones = torch.ones(1000, device="cuda")
    say("jiterator", axpy(ones, torch.arange(1000, device="cuda", dtype=torch.float32)))


def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What TorchScript makes one kernel of."""
    return (x * y + x).tanh() * 0.5 + y.sigmoid()


@part
def torch_script() -> None:
    script = torch.jit.script(fused)
    values = torch.randn(1000, device="cuda")
    for _ in range(4):
        result = script(values, values)
    say("script", result.sum().round(decimals=3))


values = torch.rand(1000, device="cuda") + 0.5
say_each(
    {
        "i1e": lambda: torch.special.i1e(values),
        "zeta": lambda: torch.special.zeta(values + 1, values),
        "airy": lambda: torch.special.airy_ai(values),
        "complex": lambda: torch.exp(torch.complex(values, values)).abs(),
    }
)


@part
def graphed_callables() -> None:
    inputs = torch.randn(8, 64, device="cuda")
    graphed = torch.cuda.make_graphed_callables(nn.Linear(64, 64).cuda(), (inputs,))
    result = graphed(inputs)
    result.sum().backward()
    say("graphed", result)


@part
def profiler() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        torch.ones(100, device="cuda").sum()
    say("profiled", len(profiled.key_averages()) > 0)
