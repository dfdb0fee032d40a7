"""Takes fingerprints in a process of its own: `python -m tests.backend_host.print_player LIBRARY POINT POINT`; the input is the memory."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from typing import Any

from backend_host.worker._worker import ffi, lib

THREADS = 512
PRINT_BYTES = 2 << 20


class Device:
    """The first one of a library, with a context."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} gives {result}")

    def memory(self, content: bytes) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(content)))
        self.call("cuMemcpyHtoD_v2", address, content, ctypes.c_size_t(len(content)))
        return address

    def read(self, address: ctypes.c_uint64, nbytes: int) -> bytes:
        content = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", content, address, ctypes.c_size_t(nbytes))
        return content.raw

    def kernel(self) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ffi.string(lib.fgw_print_ptx()) + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"fgw_print")
        return function

    def launch(self, kernel: ctypes.c_void_p, nr_blocks: int, parameters: list[ctypes.c_uint64]) -> None:
        array = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(each) for each in parameters))
        self.call("cuLaunchKernel", kernel, nr_blocks, 1, 1, THREADS, 1, 1, 0, None, array, None)


def take(path: str, content: bytes, points: tuple[int, int]) -> list[tuple[int, ...]]:
    """Two values and the bits of each print of the memory."""
    device = Device(path)
    nr = len(content) // PRINT_BYTES
    address, prints = device.memory(content), device.memory(bytes(32 * nr))
    device.launch(device.kernel(), nr, [address, prints, *map(ctypes.c_uint64, points)])
    raw = device.read(prints, 32 * nr)
    return [struct.unpack_from("<3Q", raw, 32 * i) for i in range(nr)]


if __name__ == "__main__":
    print(json.dumps(take(sys.argv[1], sys.stdin.buffer.read(), (int(sys.argv[2]), int(sys.argv[3])))))
