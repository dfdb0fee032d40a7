"""A kernel of PyTorch that fails by an assertion: the program gets that error, and can use its context no more."""

import torch
from report import part, say

values = torch.ones(10, device="cuda")
beyond = torch.tensor([20], device="cuda")


@part
def assertion() -> None:
    try:
        print(values[beyond].tolist())
    except RuntimeError as error:
        say("assertion", "device-side assert" in str(error))


@part
def afterwards() -> None:
    try:
        torch.cuda.synchronize()
        say("afterwards", "no error")
    except RuntimeError as error:
        say("afterwards", "device-side assert" in str(error))
