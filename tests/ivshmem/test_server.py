"""The ivshmem server, with a QEMU and daemons played by the test: what each is told, and what a hostile QEMU cannot do."""

import array
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ivshmem.bells import FIRST_WORKER_PEER, HELLO, MAGIC, NR_DESCRIPTORS, NR_GUEST_BELLS, NR_PEERS, Bells, BellsError
from ivshmem.server import MAX_DAEMONS
from tests.children import running

REGION_BYTES = 16 << 20
LIMIT_S = 20
NR_MESSAGES = 3 + (NR_PEERS - 1) + NR_GUEST_BELLS


def memory(nbytes: int = REGION_BYTES, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) -> int:
    fd = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@dataclass
class Served:
    """A server's process, where it listens, and the daemon's connection."""

    process: subprocess.Popen[str]
    folder: Path
    bells: Bells

    def guest(self) -> "Guest":
        return Guest(self.folder / "guest")

    def daemon(self) -> Bells:
        bells = Bells.connect(self.folder / "control")
        assert bells is not None
        return bells


@dataclass
class Guest:
    """QEMU's end: reads messages of 8 bytes with their descriptors."""

    path: Path
    connection: socket.socket = field(init=False)
    told: list[tuple[int, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(LIMIT_S)
        self.connection.connect(str(self.path))

    def read(self, nr_messages: int = NR_MESSAGES) -> list[tuple[int, int | None]]:
        for _ in range(nr_messages):
            data, rights, _, _ = self.connection.recvmsg(8, socket.CMSG_SPACE(4))
            fds = array.array("i")
            for _, _, content in rights:
                fds.frombytes(content)
            assert len(data) == 8
            self.told.append((struct.unpack("<q", data)[0], fds[0] if fds else None))
        return self.told

    def is_turned_away(self) -> bool:
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.connection.close()
        for _, fd in self.told:
            if fd is not None:
                os.close(fd)


@contextmanager
def serving(folder: Path, memory_fd: int) -> Iterator[Served]:
    listeners = {}
    for name, kind in (("guest", socket.SOCK_STREAM), ("control", socket.SOCK_SEQPACKET)):
        listeners[name] = socket.socket(socket.AF_UNIX, kind)
        listeners[name].bind(str(folder / name))
        listeners[name].listen(8)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = {"memory": memory_fd, "daemon": theirs.fileno(), **{name: each.fileno() for name, each in listeners.items()}}
    options = [word for name, fd in fds.items() for word in (f"--{name}", str(fd))]
    with running([sys.executable, "-m", "ivshmem.server", *options], pass_fds=list(fds.values())) as process:
        os.close(memory_fd)
        for each in (theirs, *listeners.values()):
            each.close()
        bells = Bells(ours)
        try:
            yield Served(process, folder, bells)
        finally:
            bells.end()
            process.wait(LIMIT_S)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, memory()) as each:
        yield each


def inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def nr_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_rung(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_a_guest_is_told_all_in_the_order_of_the_protocol(served: Served) -> None:
    guest = served.guest()
    told = guest.read()
    assert told[0] == (0, None)  # the protocol's version
    assert told[1] == (0, None)  # its own number
    assert told[2][0] == -1
    assert told[2][1] is not None
    assert inode(told[2][1]) == inode(served.bells.memory_fd)
    peers = [number for number, _ in told[3:]]
    assert peers == [*range(1, NR_PEERS), *[0] * NR_GUEST_BELLS]
    assert all(fd is not None for _, fd in told[3:])
    guest.close()


def test_bells_ring_both_ways(served: Served) -> None:
    guest = served.guest()
    told = guest.read()
    by_peer = {number: fd for number, fd in told[3 : 3 + NR_PEERS - 1]}
    worker, daemon = by_peer[FIRST_WORKER_PEER + 5], by_peer[1]
    assert worker is not None
    assert daemon is not None
    os.eventfd_write(worker, 1)
    assert is_rung(served.bells.worker_fd(5))
    assert not is_rung(served.bells.worker_fd(4))
    assert not is_rung(served.bells.daemon_fd)
    os.eventfd_write(daemon, 1)
    assert is_rung(served.bells.daemon_fd)
    os.eventfd_write(served.bells.guest_fds[3], 1)
    assert [index for index, (_, fd) in enumerate(told[-NR_GUEST_BELLS:]) if fd is not None and is_rung(fd)] == [3]
    guest.close()


def test_a_second_guest_is_turned_away_and_a_later_one_is_not(served: Served) -> None:
    first = served.guest()
    first.read()
    second = served.guest()
    assert second.is_turned_away()
    assert served.bells.has_guest()
    first.close()
    third = served.guest()
    assert len(third.read()) == NR_MESSAGES
    assert served.bells.has_guest()
    third.close()
    second.close()


def test_a_guest_that_speaks_is_dropped(served: Served) -> None:
    guest = served.guest()
    guest.read()
    guest.connection.sendall(b"\xff" * 4096)
    assert guest.is_turned_away()
    assert not served.bells.has_guest()
    guest.close()


def test_a_guest_that_never_reads_keeps_nobody_waiting(served: Served) -> None:
    guest = served.guest()
    assert served.bells.has_guest()
    with served.daemon() as other:
        assert other.has_guest()
    assert len(guest.read()) == NR_MESSAGES
    guest.close()


def test_a_guest_cannot_shrink_the_region(served: Served) -> None:
    guest = served.guest()
    fd = guest.read(3)[2][1]
    assert fd is not None
    for size in (0, REGION_BYTES - 4096, REGION_BYTES * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    guest.close()


def test_a_later_daemon_gets_the_same_bells(served: Served) -> None:
    guest = served.guest()
    told = guest.read()
    served.bells.close()
    assert served.process.poll() is None
    with served.daemon() as later:
        assert later.region_bytes == REGION_BYTES
        assert later.has_guest()
        worker = dict(told[3 : 3 + NR_PEERS - 1])[FIRST_WORKER_PEER]
        assert worker is not None
        os.eventfd_write(worker, 1)
        assert is_rung(later.worker_fd(0))
    assert served.process.poll() is None
    guest.close()
    assert served.process.wait(LIMIT_S) == 0  # nobody is left


def test_it_ends_when_told_to_and_qemu_keeps_what_it_has(served: Served) -> None:
    guest = served.guest()
    fd = guest.read()[2][1]
    assert fd is not None
    served.bells.end()
    assert served.process.wait(LIMIT_S) == 0
    assert os.pread(fd, 1, 0) == b"\0"
    assert Bells.connect(served.folder / "control") is None
    guest.close()


def test_daemons_beyond_a_few_are_turned_away(served: Served) -> None:
    others = [served.daemon() for _ in range(MAX_DAEMONS - 1)]
    with pytest.raises(BellsError):
        served.daemon()
    for other in others:
        other.close()
    assert not served.bells.has_guest()


def test_memory_that_could_shrink_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BellsError, match="sealed"), serving(tmp_path, memory(seals=0)):
        pass


@pytest.mark.parametrize("message", [b"", b"short", HELLO.pack(b"NOTABELL", REGION_BYTES)])
def test_who_is_no_server_is_not_believed(message: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [os.eventfd(0) for _ in range(NR_DESCRIPTORS)]
    socket.send_fds(theirs, [message or b"?"], fds)
    nr_open = nr_descriptors()
    with pytest.raises(BellsError):
        Bells(ours)
    assert nr_descriptors() == nr_open - 1  # the connection; what came with it was closed again
    theirs.close()
    for fd in fds:
        os.close(fd)


def test_a_server_that_lies_about_its_memory_is_refused() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [memory(), *(os.eventfd(0) for _ in range(NR_DESCRIPTORS - 1))]
    socket.send_fds(theirs, [HELLO.pack(MAGIC, REGION_BYTES * 2)], fds)
    with pytest.raises(BellsError, match="another size"):
        Bells(ours)
    theirs.close()
    for fd in fds:
        os.close(fd)
