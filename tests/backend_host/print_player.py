"""Takes fingerprints in a process of its own: `python -m tests.backend_host.print_player LIBRARY POINT POINT`; the input is the memory.
With an argument more it looks for words in 8 ranges instead: `LIBRARY scan ADDRESS BYTES ADDRESS ...`."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Sequence
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

    def kernel(self, name: bytes = b"fgw_print") -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ffi.string(lib.fgw_print_ptx()) + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def launch(
        self, kernel: ctypes.c_void_p, nr_blocks: int, parameters: Sequence[Any], nr_threads: int = THREADS
    ) -> None:
        array = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(each) for each in parameters))
        self.call("cuLaunchKernel", kernel, nr_blocks, 1, 1, nr_threads, 1, 1, 0, None, array, None)


def take(path: str, content: bytes, points: tuple[int, int]) -> list[tuple[int, ...]]:
    """Two values and the bits of each print of the memory."""
    device = Device(path)
    nr = len(content) // PRINT_BYTES
    address, prints = device.memory(content), device.memory(bytes(32 * nr))
    device.launch(device.kernel(), nr, [address, prints, *map(ctypes.c_uint64, points)])
    raw = device.read(prints, 32 * nr)
    return [struct.unpack_from("<3Q", raw, 32 * i) for i in range(nr)]


def scan(path: str, content: bytes, ranges: Sequence[int]) -> int:
    """A word of the memory in one of the ranges, 0: there is none. By fewer threads than there are words."""
    device = Device(path)
    address, found = device.memory(content), device.memory(bytes(8))
    parameters = [address, ctypes.c_uint64(len(content)), found, (ctypes.c_uint64 * 16)(*ranges)]
    device.launch(device.kernel(b"fgw_scan"), 3, parameters, 64)
    return int.from_bytes(device.read(found, 8), "little")


if __name__ == "__main__" and sys.argv[2] == "scan":
    print(scan(sys.argv[1], sys.stdin.buffer.read(), [int(each) for each in sys.argv[3:]]))
elif __name__ == "__main__":
    print(json.dumps(take(sys.argv[1], sys.stdin.buffer.read(), (int(sys.argv[2]), int(sys.argv[3])))))
