"""
PTX to native code: one PTX module in, one shared object out, as `softgpu/driver/kernel_abi.h` describes it.

The way through: `cuda_api.ptx` parses; `layout` gives every variable its place; `analysis` flattens each function and finds out who calls whom
and who waits for whom; `function` turns a function into LLVM's text form with one lowering module for each family of instructions; `tables`
writes what the driver reads; `native` optimises, emits and links. Floating point means what PTX says, so nothing is ever compiled
with fast-math.
"""

import sys


def main() -> int:
    """The console entry `softgpu-compile`."""
    from softgpu.compiler.command import run  # noqa: PLC0415 - the command's imports are the first launch's latency

    return run(sys.argv[1:])
