"""What a QEMU with the device `fairgv-memory` is to the daemon: honest and otherwise, as the test has it."""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backend_host.window import HELLO, PIECE, REFUSE, RESET, WANT, Message

WINDOW_BYTES, LIMIT_BYTES = 256 << 20, 40 << 20
LIMIT_S = 30


@dataclass
class Device:
    """A socket that listens, and at most one connection."""

    path: Path
    listener: socket.socket
    connections: list[socket.socket] = field(default_factory=list)
    nr_asked: int = 0

    def accept(self, mapped: int = 0, window: int = WINDOW_BYTES, version: int = 1) -> None:
        self.connections.append(self.listener.accept()[0])
        self.connections[-1].settimeout(LIMIT_S)
        self.say(Message(HELLO, version, 0, mapped, window))

    def say(self, message: Message) -> None:
        self.connections[-1].sendall(message.packed())

    def want(self, offset: int, nbytes: int) -> tuple[Message, int | None]:
        """The answer, and the descriptor that came with it."""
        self.nr_asked += 1
        self.say(Message(WANT, 0, self.nr_asked, offset, nbytes))
        data, fds, _, _ = socket.recv_fds(self.connections[-1], 32, 4)
        answer = Message(*struct.unpack("<IIQQQ", data))
        assert answer.id == self.nr_asked
        assert len(fds) == (answer.type == PIECE)
        return answer, fds[0] if fds else None

    def given(self, offset: int, nbytes: int) -> int:
        """The size of the piece that comes; it must be one."""
        answer, fd = self.want(offset, nbytes)
        assert (answer.type, answer.offset) == (PIECE, offset)
        assert fd is not None
        assert os.fstat(fd).st_size == answer.nbytes
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        os.close(fd)
        return answer.nbytes

    def is_refused(self, offset: int, nbytes: int) -> bool:
        answer, _ = self.want(offset, nbytes)
        return (answer.type, answer.offset, answer.nbytes) == (REFUSE, 0, 0)

    def reset(self) -> None:
        self.say(Message(RESET, 0, self.nr_asked, 0, 0))

    def hang_up(self) -> None:
        self.connections.pop().close()

    def is_left(self) -> bool:
        """The daemon has closed the connection."""
        return self.connections[-1].recv(1) == b""

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.listener.close()


@contextlib.contextmanager
def listening_device(path: Path) -> Iterator[Device]:
    """Not connected yet."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    listener.settimeout(LIMIT_S)
    device = Device(path, listener)
    try:
        yield device
    finally:
        device.close()
