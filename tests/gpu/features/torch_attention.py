"""Scaled dot product attention of PyTorch, forward and backward, by each of its back ends."""

import torch
from report import say, say_each
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACK_ENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")


def attention(back_end: str, dtype: torch.dtype) -> torch.Tensor:
    """What it gives; says the size of a gradient, rounded as some back ends add in any order."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 8, 256, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, back_end)):
        result = scaled_dot_product_attention(query, key, value, is_causal=True)
        result.float().square().sum().backward()
    say("gradient", query.grad.float().abs().sum().round(decimals=-2))
    return result


say_each(
    {
        f"{back_end} {dtype}": lambda back_end=back_end, dtype=dtype: attention(back_end, dtype)
        for back_end in BACK_ENDS
        for dtype in (torch.float16, torch.bfloat16)
    }
)
