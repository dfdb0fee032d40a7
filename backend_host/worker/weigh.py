"""
What a device library takes of each device for a context and for a stream, weighed.

A context is weighed from outside: another process makes one, as a warm worker does, while this one looks at how much memory is free. That
process is forked before any device library is opened here, as a library is of no use to a fork.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from backend_host.worker._worker import ffi, lib

_ERROR_BYTES = 512
_READY = b"r"


class Other:
    """The process that makes contexts."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours

    def make_context(self, ordinal: int) -> bool:
        """Makes one of the device, which stays; False: it could not."""
        self._socket.sendall(bytes([ordinal]))
        return self._socket.recv(1) == _READY


@contextlib.contextmanager
def other_process(library: str) -> Iterator[Other]:
    """Until the end of the block. Before this process opens the library."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _make_contexts(library, theirs)
        theirs.close()
        try:
            yield Other(ours)
        finally:
            ours.close()
            os.waitpid(pid, 0)


def _make_contexts(library: str, theirs: socket.socket) -> None:
    """Does not return: what else the process was about to do is the other one's."""
    error = ffi.new(f"char[{_ERROR_BYTES}]")
    while ordinal := theirs.recv(1):
        worker = lib.fgw_worker_open(library.encode(), ordinal[0], error, _ERROR_BYTES)
        theirs.sendall(_READY if worker != ffi.NULL else b"-")
    os._exit(0)


def weigh(library: str, ordinal: int, other: Other) -> dict[str, int]:
    """`context_bytes` and `stream_bytes` of a device; both are 0 where nobody can tell."""
    error = ffi.new(f"char[{_ERROR_BYTES}]")
    scale = lib.fgw_scale_open(library.encode(), ordinal, error, _ERROR_BYTES)
    if scale == ffi.NULL:
        return {"context_bytes": 0, "stream_bytes": 0}
    try:
        before_bytes = lib.fgw_scale_free_bytes(scale)
        is_made = other.make_context(ordinal)
        context_bytes = before_bytes - lib.fgw_scale_free_bytes(scale) if is_made else 0
        return {"context_bytes": max(0, context_bytes), "stream_bytes": lib.fgw_scale_stream_bytes(scale)}
    finally:
        lib.fgw_scale_close(scale)
