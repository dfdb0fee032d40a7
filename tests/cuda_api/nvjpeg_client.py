"""A library that carries a static runtime of its own: nvJPEG starts it, and allocates device and pinned memory with it.

Usage: nvjpeg_client.py LIBNVJPEG
Prints the version of the runtime inside and "PASS", or what went wrong.
"""

import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_void_p

MAJOR, MINOR = 0, 1


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])

    def call(name: str, *arguments: object) -> None:
        status = library[name](*arguments)
        if status:
            sys.exit(f"{name}: nvJPEG's status {status}")

    version = []
    for which in (MAJOR, MINOR):
        value = c_int()
        call("nvjpegGetCudartProperty", which, byref(value))
        version.append(value.value)
    handle, state, device, pinned = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    call("nvjpegCreateSimple", byref(handle))
    call("nvjpegJpegStateCreate", handle, byref(state))
    call("nvjpegBufferDeviceCreate", handle, None, byref(device))
    call("nvjpegBufferPinnedCreate", handle, None, byref(pinned))
    call("nvjpegBufferDeviceResize", device, c_size_t(1 << 20), None)
    call("nvjpegBufferPinnedResize", pinned, c_size_t(1 << 20), None)
    call("nvjpegBufferDeviceDestroy", device)
    call("nvjpegBufferPinnedDestroy", pinned)
    call("nvjpegJpegStateDestroy", state)
    call("nvjpegDestroy", handle)
    print(f"runtime {version[0]}.{version[1]}")
    print("PASS")


if __name__ == "__main__":
    main()
