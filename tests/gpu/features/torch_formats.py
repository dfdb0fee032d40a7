"""Products of matrices in PyTorch whose numbers have eight bits."""

import torch
from report import part, say

torch.manual_seed(0)


@part
def fp8() -> None:
    rows = torch.randn(256, 256, device="cuda").to(torch.float8_e4m3fn)
    columns = torch.randn(256, 256, device="cuda").to(torch.float8_e4m3fn).t().contiguous().t()
    one = torch.tensor(1.0, device="cuda")
    say("fp8", torch._scaled_mm(rows, columns, one, one, out_dtype=torch.bfloat16))


@part
def int8() -> None:
    matrix = torch.randint(-128, 127, (256, 256), device="cuda", dtype=torch.int8)
    say("int8", torch._int_mm(matrix, matrix))
