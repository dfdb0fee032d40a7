"""A CUDA program without nvcc: one runtime library, loaded into this process, computes a sum of vectors.

Usage: runtime_client.py LIBCUDART FATBIN
The fat binary holds the kernel `vector_add(const float *, const float *, float *, int)`. Registers it as the code that
nvcc generates does. Prints the runtime's version and "PASS", or what went wrong.
"""

import ctypes
import struct
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

WRAPPER_MAGIC = 0x466243B1
HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2
NR_ELEMENTS = 10000
NR_THREADS = 256


class Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Runtime:
    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.cudaGetErrorName.restype = c_char_p
        self.register_fat_binary = self.library["__cudaRegisterFatBinary"]
        self.register_fat_binary.restype = c_void_p

    def call(self, name: str, *arguments: object) -> None:
        error = self.library[name](*arguments)
        if error:
            sys.exit(f"{name}: {self.library.cudaGetErrorName(error).decode()}")

    def number(self, name: str) -> int:
        value = c_int()
        self.call(name, byref(value))
        return value.value

    def allocate(self, size_bytes: int) -> c_void_p:
        pointer = c_void_p()
        self.call("cudaMalloc", byref(pointer), c_size_t(size_bytes))
        return pointer

    def copy(self, to: object, source: object, size_bytes: int, kind: int) -> None:
        self.call("cudaMemcpy", to, source, c_size_t(size_bytes), kind)


def register(runtime: Runtime, image: ctypes.Array[ctypes.c_char], host_function: c_void_p) -> list[object]:
    """Returns what must stay alive for as long as the kernel may be launched."""
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", WRAPPER_MAGIC, 1, ctypes.addressof(image), 0))
    handle = c_void_p(runtime.register_fat_binary(wrapper))
    name = ctypes.create_string_buffer(b"vector_add")
    runtime.library["__cudaRegisterFunction"](handle, host_function, name, name, c_int(-1), *([None] * 5))
    runtime.library["__cudaRegisterFatBinaryEnd"](handle)
    return [wrapper, name, image]


def main() -> None:
    runtime = Runtime(sys.argv[1])
    image = ctypes.create_string_buffer(Path(sys.argv[2]).read_bytes())
    host_symbol = ctypes.create_string_buffer(16)
    host_function = c_void_p(ctypes.addressof(host_symbol))
    alive = register(runtime, image, host_function)
    if runtime.number("cudaGetDeviceCount") < 1:
        sys.exit("no device")
    version = runtime.number("cudaRuntimeGetVersion")
    size_bytes = NR_ELEMENTS * ctypes.sizeof(c_float)
    first = (c_float * NR_ELEMENTS)(*[0.5 * i for i in range(NR_ELEMENTS)])
    second = (c_float * NR_ELEMENTS)(*[float(NR_ELEMENTS - i) for i in range(NR_ELEMENTS)])
    total = (c_float * NR_ELEMENTS)()
    device = [runtime.allocate(size_bytes) for _ in range(3)]
    runtime.copy(device[0], first, size_bytes, HOST_TO_DEVICE)
    runtime.copy(device[1], second, size_bytes, HOST_TO_DEVICE)
    values = [*device, c_int(NR_ELEMENTS)]
    arguments = (c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    grid = Dim3((NR_ELEMENTS + NR_THREADS - 1) // NR_THREADS, 1, 1)
    runtime.call("cudaLaunchKernel", host_function, grid, Dim3(NR_THREADS, 1, 1), arguments, c_size_t(0), None)
    runtime.call("cudaDeviceSynchronize")
    runtime.copy(total, device[2], size_bytes, DEVICE_TO_HOST)
    nr_wrong = sum(total[i] != first[i] + second[i] for i in range(NR_ELEMENTS))
    for pointer in device:
        runtime.call("cudaFree", pointer)
    runtime.call("cudaDeviceReset")
    del alive
    print(f"runtime {version}, {nr_wrong} wrong")
    print("PASS" if nr_wrong == 0 else "FAIL")


if __name__ == "__main__":
    main()
