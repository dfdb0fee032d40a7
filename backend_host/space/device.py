"""The few driver calls of a space's own process: a page of device memory that others can map, and a sign of life of the device.

Through ctypes: the worker's tables belong to a worker. Numbers are CUDA's own, of cuda.h.
"""

import ctypes
from typing import Any

_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE, _READ_AND_WRITE = 1, 1, 1, 3
_MULTIPROCESSORS = 16
"""Of a device's attributes."""
_BLOCKING = 4
"""Of a context: who waits for the device sleeps."""


class DeviceError(Exception):
    """A call failed; `code` is its CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} gave CUDA error {code}")
        self.code = code


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DevicePage:
    """A context on a device, and one granule of its memory. It stays for as long as the process does."""

    def __init__(self, library: str, ordinal: int) -> None:
        """Raises OSError, or DeviceError."""
        self._library = ctypes.CDLL(library)
        self._do("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuDeviceGet", ctypes.byref(device), ordinal)
        self._do("cuDevicePrimaryCtxSetFlags_v2", device, _BLOCKING)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        multiprocessors = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(multiprocessors), _MULTIPROCESSORS, device)
        self.multiprocessors = multiprocessors.value
        self._location = _Location(_ON_DEVICE, device.value)
        self._properties = _Properties(_PINNED, _POSIX_DESCRIPTOR, self._location)
        nr_bytes, word = ctypes.c_size_t(), ctypes.c_uint64()
        self._do("cuMemGetAllocationGranularity", ctypes.byref(nr_bytes), ctypes.byref(self._properties), 0)
        self.nr_bytes = nr_bytes.value
        self._do("cuMemAlloc_v2", ctypes.byref(word), ctypes.c_size_t(4))
        self._word = word
        self._page = ctypes.c_uint64()

    def make(self) -> int:
        """A fresh page, all zero; a descriptor of it. Raises DeviceError."""
        handle, fd = ctypes.c_uint64(), ctypes.c_int()
        size = ctypes.c_size_t(self.nr_bytes)
        self._do("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(self._properties), ctypes.c_ulonglong(0))
        self._map(handle)
        self._do("cuMemsetD8_v2", self._page, ctypes.c_ubyte(0), size)
        self._do("cuCtxSynchronize")
        self._do("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_DESCRIPTOR, ctypes.c_ulonglong(0))
        return fd.value

    def take(self, fd: int) -> None:
        """The page of a process before this one, by its descriptor; what is in it stays. Raises DeviceError."""
        handle = ctypes.c_uint64()
        self._do("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_DESCRIPTOR)
        self._map(handle)

    def probe(self) -> int:
        """0 once the device has done something for this context, else the CUresult that it gave."""
        try:
            self._do("cuMemsetD32_v2", self._word, ctypes.c_uint(0), ctypes.c_size_t(1))
            self._do("cuCtxSynchronize")
        except DeviceError as error:
            return error.code
        return 0

    def clear(self) -> None:
        """Best effort has all of the device: the split word is zero. Raises DeviceError."""
        self._do("cuMemsetD32_v2", self._page, ctypes.c_uint(0), ctypes.c_size_t(1))
        self._do("cuCtxSynchronize")

    def _map(self, handle: ctypes.c_uint64) -> None:
        size = ctypes.c_size_t(self.nr_bytes)
        none = ctypes.c_ulonglong(0)
        self._do("cuMemAddressReserve", ctypes.byref(self._page), size, ctypes.c_size_t(0), ctypes.c_uint64(0), none)
        self._do("cuMemMap", self._page, size, ctypes.c_size_t(0), handle, none)
        access = _Access(self._location, _READ_AND_WRITE)
        self._do("cuMemSetAccess", self._page, size, ctypes.byref(access), ctypes.c_size_t(1))

    def _do(self, call: str, *arguments: Any) -> None:
        code = int(getattr(self._library, call)(*arguments))
        if code:
            raise DeviceError(call, code)
