"""
Runs kernels of a PTX file on arrays: `python run_kernels.py LIBRARY PTX INPUTS OUTPUTS`, both of the latter .npz files.

An input is named `KERNEL` and holds 32-bit words; the kernel takes (u64 out, u64 in) and runs with one warp. `OUTPUTS` has under the same name
the words of `out`, as many as `WORDS`, all ones before.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

WORDS = 1024


def _check(result: int) -> None:
    if result:
        raise SystemExit(f"CUDA error {result}")


def main() -> None:
    """Entry point."""
    cuda = ctypes.CDLL(sys.argv[1])
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(cuda.cuCtxSetCurrent(context))
    _check(cuda.cuModuleLoadData(ctypes.byref(module), Path(sys.argv[2]).read_bytes() + b"\0"))
    outputs: dict[str, np.ndarray] = {}
    for name, words in np.load(sys.argv[3]).items():
        to, source = ctypes.c_uint64(), ctypes.c_uint64()
        result = np.full(WORDS, 0xFFFFFFFF, np.uint32)
        _check(cuda.cuMemAlloc_v2(ctypes.byref(to), ctypes.c_size_t(result.nbytes)))
        _check(cuda.cuMemAlloc_v2(ctypes.byref(source), ctypes.c_size_t(words.nbytes)))
        _check(cuda.cuMemcpyHtoD_v2(to, ctypes.c_void_p(result.ctypes.data), ctypes.c_size_t(result.nbytes)))
        _check(cuda.cuMemcpyHtoD_v2(source, ctypes.c_void_p(words.ctypes.data), ctypes.c_size_t(words.nbytes)))
        _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in (to, source)))
        _check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, pointers, None))
        _check(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(result.ctypes.data), to, ctypes.c_size_t(result.nbytes)))
        outputs[name] = result
    np.savez(sys.argv[4], **outputs)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
