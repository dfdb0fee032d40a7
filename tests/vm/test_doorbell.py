"""The ivshmem servers of domains, without domains: who may reach them, how the next daemon finds them, what is left."""

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.vm.doorbell import Doorbells
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import RegionOwner
from tests.end_to_end.host import wait_until

NAME = "fairgv-test"
BYTES = 16 << 20
NOBODY = 65534


def make(folder: Path) -> Doorbells:
    return Doorbells(folder / "doorbells", (os.geteuid(), os.getegid()))


@pytest.fixture
def doorbells(tmp_path: Path) -> Iterator[Doorbells]:
    made = make(tmp_path)
    made.start(NAME, BYTES, RegionOwner.this_process())
    yield made
    made.end(NAME)


def qemu(doorbells: Doorbells) -> socket.socket:
    """A connection to the server as QEMU's, that has read the start of what it is told."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(doorbells.socket_path(NAME)))
    assert connection.recv(8) == bytes(8)
    return connection


def memory_of(doorbells: Doorbells) -> int:
    """Which memory it is."""
    bells = doorbells.find(NAME)
    assert bells is not None
    return os.fstat(bells.memory_fd).st_ino


def test_sockets_are_for_their_owners(doorbells: Doorbells, tmp_path: Path) -> None:
    for path in (tmp_path / "doorbells").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_qemu_of_another_user_gets_its_socket_and_no_other(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.start(NAME, BYTES, RegionOwner(NOBODY, NOBODY))
    owners = {path.suffix: path.stat().st_uid for path in (tmp_path / "doorbells").iterdir()}
    assert owners == {".sock": NOBODY, ".control": 0}
    made.end(NAME)


def test_starting_again_changes_nothing(doorbells: Doorbells) -> None:
    memory = memory_of(doorbells)
    doorbells.start(NAME, BYTES, RegionOwner.this_process())
    assert memory_of(doorbells) == memory


def test_another_size_is_another_server(doorbells: Doorbells) -> None:
    doorbells.start(NAME, 2 * BYTES, RegionOwner.this_process())
    bells = doorbells.find(NAME)
    assert bells is not None
    assert bells.region_bytes == os.fstat(bells.memory_fd).st_size == 2 * BYTES


def test_the_next_daemon_takes_over_while_a_guest_runs(doorbells: Doorbells, tmp_path: Path) -> None:
    guest = qemu(doorbells)
    assert doorbells.has_guest(NAME)
    memory = memory_of(doorbells)
    server = doorbells._servers[NAME].process
    assert server is not None
    doorbells.close()
    following = make(tmp_path)
    following.start(NAME, BYTES, RegionOwner.this_process())
    assert (memory_of(following), following.has_guest(NAME)) == (memory, True)
    guest.close()
    following.end(NAME)
    assert server.wait(30) == 0


def test_a_server_that_died_is_replaced(doorbells: Doorbells) -> None:
    server = doorbells._servers[NAME].process
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    assert not doorbells.answers(NAME)
    doorbells.start(NAME, BYTES, RegionOwner.this_process())
    assert doorbells.answers(NAME)
    qemu(doorbells).close()


def test_nothing_is_left(doorbells: Doorbells, tmp_path: Path) -> None:
    server = doorbells._servers[NAME].process
    assert server is not None
    doorbells.end(NAME)
    doorbells.end(NAME)
    assert server.returncode == 0
    assert not list((tmp_path / "doorbells").iterdir())
    assert (doorbells.find(NAME), doorbells.has_guest(NAME)) == (None, False)


def test_a_server_ends_with_the_last_who_needs_it(doorbells: Doorbells) -> None:
    server = doorbells._servers[NAME].process
    assert server is not None
    guest = qemu(doorbells)
    doorbells.close()
    assert server.poll() is None
    guest.close()
    wait_until(lambda: server.poll() == 0, "the server ended")


def test_names_and_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(VmError, match="is no name for shared memory"):
        make(tmp_path).socket_path("../etc/passwd")
    with pytest.raises(VmError, match="too long for a socket"):
        make(tmp_path / ("x" * 100)).socket_path(NAME)
