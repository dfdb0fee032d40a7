"""Memory that CuPy and PyTorch share by DLPack, both ways."""

import cupy
from report import part, say


@part
def dlpack() -> None:
    import torch  # noqa: PLC0415 - CuPy may be there without it

    array = cupy.arange(100, dtype=cupy.float32)
    tensor = torch.from_dlpack(array)
    tensor += 1
    torch.cuda.synchronize()
    say("there", array)
    say("back", cupy.from_dlpack(tensor * 2))
