"""Each wall alone: an attack that it holds comes through without it, so that the attack is real, and not with it.

Where two walls hold the same attack, the other one is left out of both trials.
"""

import ctypes
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend_host.walls.settings import WALLS, WallSettings
from tests.backend_host.escapes import NEWUSER, call, path
from tests.backend_host.walled import captives
from tests.backend_host.worker_harness import WALLS as SETTINGS
from tests.backend_host.worker_harness import walls_here

pytestmark = pytest.mark.skipif(
    walls_here() != frozenset(WALLS), reason="this machine has not all walls; see: fairgv-host doctor"
)

LITTLE = WallSettings(cache_dir=SETTINGS.cache_dir, memory_bytes=192 << 20)
IPC_CREAT, IPC_RMID = 0o1000, 0


@dataclass(frozen=True)
class Trial:
    """An attack that `wall` holds with this errno; `beside` hold it too."""

    wall: str
    line: str
    errno: int
    beside: tuple[str, ...] = ()
    kind: str = "soft"


TRIALS = (
    Trial("user", path("{secret}"), errno.EACCES),
    Trial("mount", path("/etc/passwd"), errno.ENOENT),
    Trial("pid", path("/proc/{daemon}/cmdline"), errno.ENOENT),
    Trial("ipc", call("shmget", "{key}", 0, 0), errno.ENOENT, beside=("filter",)),
    Trial("net", "abstract {abstract}", errno.ECONNREFUSED, beside=("landlock",), kind="cuda"),
    Trial("landlock", "abstract {abstract}", errno.EPERM, beside=("net",), kind="cuda"),
    Trial("landlock", call("kill", "{child}", signal.SIGTERM), errno.EPERM, beside=("pid",)),
    Trial("filter", f"clone {NEWUSER}", errno.EPERM),
    Trial("filter", call("add_key", "user", "x", "y", 1, -3), errno.EPERM),
    Trial("filter", call("io_setup", 64, b"\0"), errno.EPERM),
)


@pytest.fixture(scope="module")
def secret(taken_over: Path) -> Path:
    """A file of root's in a folder that workers may read."""
    file = taken_over.with_name("secret")
    file.touch(0o600)
    return file


@contextmanager
def shared_memory() -> Iterator[int]:
    """A segment of the host's that all may read; its key."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = os.getpid()
    number = libc.shmget(key, 4096, IPC_CREAT | 0o666)
    assert number >= 0
    try:
        yield key
    finally:
        libc.shmctl(number, IPC_RMID, None)


@contextmanager
def process_of(uid: int) -> Iterator[int]:
    """One of this user, that waits to be ended."""
    with subprocess.Popen(["sleep", "3600"], user=uid, group=uid, extra_groups=()) as child:
        yield child.pid
        child.kill()


@pytest.mark.parametrize("is_there", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("trial", TRIALS, ids=[f"{trial.wall}-{number}" for number, trial in enumerate(TRIALS)])
def test_a_wall_alone(taken_over: Path, secret: Path, trial: Trial, is_there: bool) -> None:
    without = trial.beside if is_there else (*trial.beside, trial.wall)
    with ExitStack() as stack:
        name = f"fairgv-alone-{os.getpid()}"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"\0{name}")
        listener.listen()
        key = stack.enter_context(shared_memory())
        (own,) = stack.enter_context(captives(taken_over, trial.kind, without=without))
        child = stack.enter_context(process_of(own.cache.stat().st_uid))
        aims = {
            "secret": secret,
            "daemon": os.getpid(),
            "key": key,
            "abstract": name,
            "child": child,
        }
        outcome = own.attack(trial.line.format(**aims))
        assert outcome.errno == (trial.errno if is_there else None)


def test_memory_without_a_cgroup(taken_over: Path) -> None:
    with captives(taken_over, "soft", settings=LITTLE, without=("cgroup",)) as (own,):
        assert own.attack("memory 512").number == 512


def test_memory_with_a_cgroup(taken_over: Path) -> None:
    with captives(taken_over, "soft", settings=LITTLE) as (own,):
        own.begin("memory 512")
        worker = own.served.worker.process
        assert worker.has_ended(60)
        assert worker.wait() == -signal.SIGKILL
