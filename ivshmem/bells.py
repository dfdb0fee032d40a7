"""What bells a region has, as the server hands them to the host: one region, an eventfd for each bell.

The connection stays open for as long as the daemon lives: a server whose daemons and virtual machine are all gone ends by itself. Nothing
here is ever read from or written to an eventfd: QEMU has them too, and could make either block.

Wrong when: who the server runs as can be taken over. What it hands over is checked (memory of the right size that nobody can shrink), but
it could be another region.
"""

import errno
import fcntl
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

from ivshmem.passing import receive_with
from ivshmem.region import lib

NR_PEERS: int = lib.FGV_NR_PEERS
NR_GUEST_BELLS: int = lib.FGV_NR_GUEST_VECTORS
GUEST_PEER: int = lib.FGV_PEER_GUEST
DAEMON_PEER: int = lib.FGV_PEER_DAEMON
FIRST_WORKER_PEER: int = lib.FGV_PEER_WORKERS

HELLO = struct.Struct("<8sQ")
"""What a server says first, with all descriptors: MAGIC, and bytes of the region."""
MAGIC = b"FGVBELL1"
NR_DESCRIPTORS = 1 + (NR_PEERS - 1) + NR_GUEST_BELLS
"""The region, the bells of peers 1, 2, ... and those of the guest, in this order."""
ASK, END = b"?", b"x"
"""What may be asked of a server: whether a virtual machine is connected (b"1" or b"0"), and to end."""
_ANSWER_S = 5.0
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class BellsError(Exception):
    """The server cannot be used; the text says why."""


class Bells:
    """A connection to a server, and everything that it handed over. A context manager that closes."""

    def __init__(self, connection: socket.socket) -> None:
        """Takes over the connection. BellsError when what is said is not what a server says."""
        self._connection = connection
        self._fds: list[int] = []
        connection.settimeout(_ANSWER_S)
        try:
            message, self._fds = receive_with(connection, HELLO.size, NR_DESCRIPTORS)
            if len(message) != HELLO.size or len(self._fds) != NR_DESCRIPTORS:
                raise BellsError("what answers is no ivshmem server, or one of another FairGV release")
            magic, self.region_bytes = HELLO.unpack(message)
            if magic != MAGIC:
                raise BellsError("what answers is an ivshmem server of another FairGV release")
            self._check_memory()
        except (OSError, BellsError) as error:
            self.close()
            raise error if isinstance(error, BellsError) else BellsError(f"no ivshmem server: {error}") from error
        self.memory_fd = self._fds[0]
        self.daemon_fd = self._fds[DAEMON_PEER]
        self.guest_fds = tuple(self._fds[NR_PEERS:])

    @classmethod
    def connect(cls, path: Path) -> Self | None:
        """To the control socket of a running server; None when there is none. BellsError as above."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return None
            raise BellsError(f"no ivshmem server at {path}: {error}") from error
        return cls(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def worker_fd(self, client: int) -> int:
        """The bell that the guest rings for the worker of this client."""
        return self._fds[FIRST_WORKER_PEER + client]

    def has_guest(self) -> bool:
        """Whether a virtual machine is connected now. BellsError when the server is gone."""
        try:
            self._connection.send(ASK, socket.MSG_NOSIGNAL)
            answer = self._connection.recv(1)
        except OSError as error:
            raise BellsError(f"the ivshmem server is gone: {error}") from error
        if not answer:
            raise BellsError("the ivshmem server is gone")
        return answer == b"1"

    def end(self) -> None:
        """The server is to end. A virtual machine that is connected keeps the memory and its bells. Closes."""
        with suppress(OSError):
            self._connection.send(END, socket.MSG_NOSIGNAL)
        self.close()

    def close(self) -> None:
        """Safe to repeat."""
        self._connection.close()
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def _check_memory(self) -> None:
        """Memory that could shrink under us would end the daemon with SIGBUS."""
        memory = self._fds[0]
        if os.fstat(memory).st_size != self.region_bytes:
            raise BellsError("the server's memory has another size than it says")
        try:
            seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
        except OSError as error:
            raise BellsError(f"the server's memory is no memory file: {error.strerror}") from error
        if seals & _SEALS != _SEALS:
            raise BellsError("the server's memory is not sealed against shrinking")
