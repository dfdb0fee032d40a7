"""Descriptors over UNIX sockets. Python's own `socket.send_fds` and `recv_fds` pass on no flags before 3.12."""

import socket
from array import array
from collections.abc import Sequence


def send_with(connection: socket.socket, data: bytes, fds: Sequence[int], flags: int = 0) -> int:
    """Sends bytes and descriptors in one message; how many of the bytes were taken. Raises OSError, with MSG_DONTWAIT BlockingIOError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    return connection.sendmsg([data], rights, flags)


def receive_with(connection: socket.socket, nr_bytes: int, most_fds: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """Receives one message, of which no process that is started sees a descriptor. No bytes: the other end is gone. Raises OSError."""
    fds = array("i")
    room = socket.CMSG_LEN(most_fds * fds.itemsize)
    data, rights, _, _ = connection.recvmsg(nr_bytes, room, flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, packed in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(packed[: len(packed) // fds.itemsize * fds.itemsize])
    return data, list(fds)
