"""
Launches kernels of a PTX file through the driver: `python launch_kernels.py LIBRARY PTX`, the launches as JSON on standard input.

A launch is `[kernel, block, number]`: the kernel takes (u64 out, u64 in, u32 number) and runs in two blocks of these dimensions. `in` holds
`INPUT`; `out` holds `WORDS` zeros before, and what it holds after is printed in hexadecimal digits, one line for each launch; or the number of
the CUDA error that the launch ended with, which is the last line then.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

WORDS = 8192
INPUT = [(index * 2654435761 + 12345) % (1 << 32) for index in range(WORDS)]
NR_BLOCKS = 2


def _check(result: int) -> None:
    if result:
        raise SystemExit(f"CUDA error {result}")


def main() -> None:
    """Entry point."""
    cuda = ctypes.CDLL(sys.argv[1])
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    to, source = ctypes.c_uint64(), ctypes.c_uint64()
    words = ctypes.c_uint32 * WORDS
    _check(cuda.cuInit(0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(cuda.cuCtxSetCurrent(context))
    _check(cuda.cuModuleLoadData(ctypes.byref(module), Path(sys.argv[2]).read_bytes() + b"\0"))
    _check(cuda.cuMemAlloc_v2(ctypes.byref(to), ctypes.c_size_t(4 * WORDS)))
    _check(cuda.cuMemAlloc_v2(ctypes.byref(source), ctypes.c_size_t(4 * WORDS)))
    _check(cuda.cuMemcpyHtoD_v2(source, words(*INPUT), ctypes.c_size_t(4 * WORDS)))
    for name, block, number in json.load(sys.stdin):
        results = words()
        _check(cuda.cuMemcpyHtoD_v2(to, results, ctypes.c_size_t(4 * WORDS)))
        _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        values = (to, source, ctypes.c_uint32(number))
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        _check(cuda.cuLaunchKernel(function, NR_BLOCKS, 1, 1, *block, 0, None, pointers, None))
        error = cuda.cuCtxSynchronize()
        if error:
            print(error)
            return
        _check(cuda.cuMemcpyDtoH_v2(results, to, ctypes.c_size_t(4 * WORDS)))
        print(bytes(results).hex(), flush=True)


if __name__ == "__main__":
    main()
