"""The first pages of a window: who owns all its pages. The host maps them alone; programs and workers map the rest, too.

Wrong when: the file can be truncated. A piece is sealed against that.
"""

import mmap
from typing import Any

from ivshmem import _ivshmem

ffi: Any = _ivshmem.ffi
lib: Any = _ivshmem.lib

WINDOW_MIN_BYTES: int = lib.FGV_WINDOW_MIN_BYTES
WINDOW_MAX_BYTES: int = lib.FGV_WINDOW_MAX_BYTES


def window_front_bytes(window_bytes: int) -> int:
    """How much of a window of this size its page owners take, before the first page that can be had."""
    return int(lib.fgv_window_front_bytes(window_bytes))


class Front:
    """The owners of a window's pages, mapped."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self._map = mmap.mmap(fd, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.buffer: Any = ffi.from_buffer("uint8_t[]", self._map, require_writable=True)

    def clear(self) -> None:
        """Nobody owns anything."""
        ffi.memmove(self.buffer, bytes(len(self.buffer)), len(self.buffer))

    def close(self) -> None:
        ffi.release(self.buffer)
        self._map.close()
