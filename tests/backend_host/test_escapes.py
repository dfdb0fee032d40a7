"""A worker that its guest took over does not get out: the attacks of escapes.py, from within, as its tenant's user, behind all walls.

What is not one call with one answer stands below the table: bombs, numbers of other architectures, what is open.
"""

import errno
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend_host.ipc import Server
from backend_host.walls.settings import WALLS, WallSettings
from tests.backend_host.escapes import ESCAPES, PAGE, Escape, call, page
from tests.backend_host.walled import Captive, Outcome, captives
from tests.backend_host.worker_guest import ROOT
from tests.backend_host.worker_harness import WALLS as SETTINGS
from tests.backend_host.worker_harness import walls_here

pytestmark = pytest.mark.skipif(
    walls_here() != frozenset(WALLS), reason="this machine has not all walls; see: fairgv-host doctor"
)

MEMORY = WallSettings(cache_dir=SETTINGS.cache_dir, memory_bytes=192 << 20)
FEW = WallSettings(cache_dir=SETTINGS.cache_dir, processes=200)
OWN_MEMORY_MIB = 64


@dataclass(frozen=True)
class Scene:
    """A captive, a neighbour, and what attacks aim at."""

    kind: str
    own: Captive
    neighbour: Captive
    aims: dict[str, object]

    def attack(self, line: str) -> Outcome:
        return self.own.attack(line.format(**self.aims))


@pytest.fixture(scope="module", params=["soft", "cuda"])
def scene(
    request: pytest.FixtureRequest, taken_over: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    state = tmp_path_factory.mktemp("state")
    (state / "daemon.log").write_text("what others did\n")
    with ExitStack() as stack:
        own, neighbour = stack.enter_context(captives(taken_over, request.param, 2))
        server = Server(state / "control.sock", lambda _session, _request: {})
        server.start()
        stack.callback(server.stop)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"\0fairgv-escape-{os.getpid()}")
        listener.listen()
        aims: dict[str, object] = {
            "daemon": os.getpid(),
            "neighbour": neighbour.served.worker.process.pid,
            "socket": state / "control.sock",
            "log": state / "daemon.log",
            "other_cache": neighbour.cache,
            "other": neighbour.cache.name,
            "checkout": ROOT / "pyproject.toml",
            "package": ROOT / "backend_host" / "worker" / "main.py",
            "python": os.path.realpath(sys.executable),
            "library": taken_over,
            "abstract": f"fairgv-escape-{os.getpid()}",
        }
        for name in ("socket", "log", "other_cache", "checkout", "package", "python"):
            assert Path(str(aims[name])).exists()
        yield Scene(request.param, own, neighbour, aims)


def test_what_is_open(scene: Scene) -> None:
    """Nothing but what it needs: its input, what kernels say, the device, what softgpu is asked by, its life, its own words, the daemon's
    socket."""
    assert scene.attack("descriptors").number
    targets = [line.split(" ", 1)[1] for line in (scene.own.cache / "descriptors").read_text().splitlines()]
    memory = ("/memfd:kernel-output", "/memfd:softgpu-shared", "/memfd:fairgv-lives")
    known = ("/dev/null", *memory, "/device.0", "/errors-", "socket:[")
    assert [target for target in targets if not any(name in target for name in known)] == []
    assert sum("socket:[" in target for target in targets) == 1


def test_the_table_is_what_is_tried() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "python -m tests.backend_host.escapes writes it"


@pytest.mark.parametrize("escape", ESCAPES, ids=[escape.what for escape in ESCAPES])
def test_escape(scene: Scene, escape: Escape) -> None:
    expected = escape.on_soft if scene.kind == "soft" else escape.on_cuda
    outcome = scene.attack(escape.line)
    assert (outcome.errno or 0) == expected, outcome


def test_who_it_is(scene: Scene) -> None:
    assert scene.attack(call("getuid")).number == 999_999, "more than the attack can tell"
    status = Path(f"/proc/{scene.own.served.worker.process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    uid = str(scene.own.cache.stat().st_uid)
    assert fields["Uid"].split() == fields["Gid"].split() == [uid] * 4
    assert fields["Groups"].strip() == ""
    assert fields["CapEff"] == fields["CapPrm"] == fields["CapInh"] == fields["CapAmb"] == "0" * 16
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert uid != str(scene.neighbour.cache.stat().st_uid)


def test_files_are_bounded(scene: Scene) -> None:
    for folder in ("/tmp", "/dev/shm"):
        assert scene.attack(f"fill {folder}/bomb 100").number == OWN_MEMORY_MIB
        assert (scene.attack(f"files {folder} 5000").number or 0) < 1024


def test_descriptors_are_bounded(scene: Scene) -> None:
    assert (scene.attack("duplicates 60000").number or 0) < 4096


def test_a_flood_of_descriptors_on_the_daemons_socket(scene: Scene) -> None:
    """The daemon asked for none and has none more; what is on its way counts as the tenant's."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert (scene.attack("flood 1000").number or 0) * 200 <= 2 * 4096
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("kind", ["soft", "cuda"])
def test_threads_and_processes_are_bounded(taken_over: Path, kind: str) -> None:
    """600 processes and 5,000 threads; neighbours have theirs all the while."""
    with captives(taken_over, kind, 2, FEW) as (own, neighbour):
        assert 0 < (own.attack("threads 5000").number or 0) < FEW.processes
        forked = own.attack("forks 600")
        assert forked.errno == errno.EPERM if kind == "cuda" else 0 < (forked.number or 0) < FEW.processes
        assert neighbour.attack("threads 50").number == 50


@pytest.mark.parametrize("kind", ["soft", "cuda"])
def test_memory_beyond_the_cgroup_ends_it_alone(taken_over: Path, kind: str) -> None:
    with captives(taken_over, kind, 2, MEMORY) as (own, neighbour):
        own.begin("memory 1024")
        worker = own.served.worker.process
        assert worker.has_ended(60)
        assert worker.wait() == -signal.SIGKILL
        assert neighbour.attack("memory 16").number == 16


@pytest.mark.parametrize("kind", ["soft", "cuda"])
def test_calls_of_another_architecture_end_it(taken_over: Path, kind: str) -> None:
    with captives(taken_over, kind, 1) as (own,):
        own.begin("int80")
        worker = own.served.worker.process
        assert worker.has_ended(60)
        assert worker.wait() == -signal.SIGSYS
