"""
PTX to native code: one PTX module in, one shared object out, as `softgpu/driver/kernel_abi.h` describes it.

The way through, by folders from the bottom: `cuda_api.ptx` parses; `base` gives every variable its place; `flow` flattens each function and
finds out who calls whom and who waits for whom; `text` holds LLVM's text form in the making, which `lower` writes, family by family; `module`
makes functions, kernels and the tables that the driver reads; `native` optimises, emits and links. Floating point means what PTX says, so
nothing is ever compiled with fast-math.
"""

import sys


def main() -> int:
    """The console entry `softgpu-compile`."""
    from softgpu.compiler.command import run  # noqa: PLC0415 - the command's imports are the first launch's latency

    return run(sys.argv[1:])
