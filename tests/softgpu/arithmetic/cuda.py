"""The few driver calls that a recording needs, through any libcuda.so.1."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_LOG_BYTES = 1 << 16
_JIT_ERROR_LOG_BUFFER = 5
_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


class CudaError(Exception):
    """A call that failed: its name, the error's name, and the compiler's log where there is one."""

    def __init__(self, call: str, error: str, log: str = "") -> None:
        super().__init__(f"{call}: {error}" + (f": {log}" if log else ""))
        self.error = error
        self.log = log


class Module:
    """A loaded module; `close` unloads it."""

    def __init__(self, device: Device, handle: ctypes.c_void_p) -> None:
        self._device = device
        self._handle = handle

    def function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._device.call("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
        return function

    def close(self) -> None:
        self._device.call("cuModuleUnload", self._handle)


class Device:
    """Device 0 of a library, with a context. Raises OSError when the library cannot be opened, CudaError when a call fails."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self._device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self._device), 0)
        self.call("cuCtxCreate_v2", ctypes.byref(self._context), 0, self._device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.cuCtxDestroy_v2(self._context)

    def call(self, name: str, *arguments: object) -> None:
        """A driver call by name."""
        result = getattr(self._library, name)(*arguments)
        if result:
            raise CudaError(name, self._error_name(result))

    def _error_name(self, result: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(result, ctypes.byref(text))
        return (text.value or str(result).encode()).decode()

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode()

    @property
    def driver_version(self) -> int:
        """As cuDriverGetVersion says it: 13000 for 13.0."""
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    @property
    def capability(self) -> int:
        """90 for sm_90."""
        return 10 * self._attribute(_CAPABILITY_MAJOR) + self._attribute(_CAPABILITY_MINOR)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def load(self, text: str) -> Module:
        """Compiles PTX. Raises CudaError, its log being the compiler's first line of error."""
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_JIT_ERROR_LOG_BUFFER, _JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        handle = ctypes.c_void_p()
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(handle), text.encode(), 2, options, values)
        except CudaError as error:
            raise CudaError("cuModuleLoadDataEx", error.error, _first_line(log.value)) from None
        return Module(self, handle)

    def launch(self, function: ctypes.c_void_p, nr_blocks: int, block: int, arguments: Sequence[int]) -> None:
        """Starts a kernel whose parameters are 64-bit numbers."""
        values = [ctypes.c_uint64(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.call("cuLaunchKernel", function, nr_blocks, 1, 1, block, 1, 1, 0, None, pointers, None)

    def allocate(self, nr_bytes: int) -> int:
        """Zeroed memory on the device."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nr_bytes))
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(nr_bytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def upload(self, pointer: int, data: Bytes) -> None:
        source = np.ascontiguousarray(data)
        self.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(pointer),
            ctypes.c_void_p(source.ctypes.data),
            ctypes.c_size_t(source.nbytes),
        )

    def download(self, pointer: int, nr_bytes: int) -> Bytes:
        """Waits for all kernels before."""
        data = np.empty(nr_bytes, dtype=np.uint8)
        self.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(pointer), ctypes.c_size_t(nr_bytes)
        )
        return data


def _first_line(log: bytes) -> str:
    """The first line that says why: the linker's summary comes after it."""
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
