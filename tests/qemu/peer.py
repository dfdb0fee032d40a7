"""The host's end of a fairgv-memory device: what a daemon would be, and what none should be.

Nothing runs by itself: the test receives each message and answers it, well or badly.
"""

import fcntl
import mmap
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HELLO, WANT, RESET, PIECE, REFUSE = range(1, 6)
MEMFD_NAME = "fairgv-test-piece"
ANSWER_LIMIT_S = 60
_FORMAT = struct.Struct("<IIQQQ")


@dataclass(frozen=True)
class Message:
    """As docs/specs/fairgv-memory.rst of the patches has it; `offset` and `nr_bytes` are of the window."""

    type: int
    version: int = 0
    id: int = 0
    offset: int = 0
    nr_bytes: int = 0

    def packed(self) -> bytes:
        return _FORMAT.pack(self.type, self.version, self.id, self.offset, self.nr_bytes)


def make_memfd(nr_bytes: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    """A descriptor for a piece. The caller closes it."""
    descriptor = os.memfd_create(MEMFD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nr_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


class Peer:
    """Connected to the device's socket on entry. Pieces that it gave stay mapped here until the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(ANSWER_LIMIT_S)
        self.pieces: list[mmap.mmap] = []

    def __enter__(self) -> Self:
        self.socket.connect(str(self._path))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()
        for piece in self.pieces:
            piece.close()

    def receive(self) -> Message | None:
        """The next message, None at the end of the connection."""
        data = self.socket.recv(_FORMAT.size, socket.MSG_WAITALL)
        return Message(*_FORMAT.unpack(data)) if data else None

    def expect(self, kind: int) -> Message:
        """The next message, which must be of that kind."""
        message = self.receive()
        assert message is not None, "the device has closed the connection"
        assert message.type == kind, message
        return message

    def send(self, message: bytes, *descriptors: int) -> None:
        """Sends anything, and closes the descriptors here."""
        socket.send_fds(self.socket, [message], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def give(self, want: Message, nr_bytes: int | None = None) -> mmap.mmap:
        """Answers a WANT with a good piece, and returns it as seen here."""
        nr_bytes = want.nr_bytes if nr_bytes is None else nr_bytes
        descriptor = make_memfd(nr_bytes)
        self.pieces.append(mmap.mmap(descriptor, nr_bytes))
        self.send(Message(PIECE, 0, want.id, want.offset, nr_bytes).packed(), descriptor)
        return self.pieces[-1]

    def refuse(self, want: Message) -> None:
        self.send(Message(REFUSE, id=want.id).packed())
