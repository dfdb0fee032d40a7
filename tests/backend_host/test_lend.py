"""A device node that a worker has for the time of a move."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_host.worker._worker import lib

from backend_host.config import PACKAGE_ROOT
from backend_host.move.root import keep_own
from backend_host.walls.root import root_of_python
from backend_host.walls.start import Child, Walls
from tests.backend_host.worker_harness import WALLS, walls_here

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "mount" not in walls_here(), reason="root makes a root folder of its own for a process"
)

NODE = b"/dev/full"
OPEN = 7
"""Exit status."""


@pytest.fixture
def captive() -> Iterator[Child]:
    """A process that sleeps behind the wall, whose root has not that node."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = Walls(frozenset({"mount"}), WALLS).start(command, {"PATH": os.environ["PATH"]}, root_of_python())
    yield child
    child.kill()
    child.wait()
    child.close()


def inside(captive: Child, path: bytes = NODE) -> Path:
    return Path(f"/proc/{captive.pid}/root{path.decode()}")


def test_it_is_there_and_away_again(captive: Child) -> None:
    assert not inside(captive).exists()
    assert lib.fgw_walls_lend(captive.pidfd, NODE) == 0
    assert inside(captive).stat().st_rdev == Path(NODE.decode()).stat().st_rdev
    mounts = [line.split() for line in Path(f"/proc/{captive.pid}/mountinfo").read_text().splitlines()]
    [options] = [line[5].split(",") for line in mounts if line[4] == NODE.decode()]
    assert {"nosuid", "noexec"} <= set(options)
    with inside(captive).open("rb") as opened:
        assert lib.fgw_walls_take_back(captive.pidfd, NODE) == 0
        assert opened.read(1) == b"\0", "what is open stays open"
    assert not inside(captive).exists()


def test_it_goes_to_nobody_else(captive: Child) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    assert lib.fgw_walls_lend(captive.pidfd, NODE) == 0
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.parametrize("change", ["lent", "taken back", "in vain"])
def test_the_root_stays_closed(captive: Child, change: str) -> None:
    lib.fgw_walls_lend(captive.pidfd, b"/dev/null" if change == "in vain" else NODE)
    if change == "taken back":
        lib.fgw_walls_take_back(captive.pidfd, NODE)
    with pytest.raises(OSError, match="Read-only"):
        inside(captive, b"/dev/more").touch()


def test_what_is_there_stays(captive: Child) -> None:
    assert lib.fgw_walls_lend(captive.pidfd, b"/dev/null") == errno.EEXIST
    assert inside(captive, b"/dev/null").is_char_device()
    assert lib.fgw_walls_take_back(captive.pidfd, NODE) == errno.ENOENT


ENTER = f"""
import os, sys
from backend_host.worker.main import WorkerError, enter_walls
there = [os.path.exists({NODE!r})]
try:
    enter_walls({{"cache": None, "uid": 0, "is_soft": True, "has_filter": False, "nodes": [{NODE.decode()!r}]}})
except WorkerError as error:
    sys.exit({OPEN} if "its walls are open at the nodes of other devices" in str(error) else 1)
assert there + [os.path.exists({NODE!r}), os.path.exists("/dev/null")] == [True, False, True]
"""


def test_a_worker_gives_up_what_it_had_until_it_knows_its_guest() -> None:
    root = root_of_python()
    root.devices([NODE.decode()])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE_ROOT)}
    child = Walls(frozenset({"mount"}), WALLS).start([sys.executable, "-c", ENTER], environment, root)
    assert child.wait() == 0
    child.close()


def test_one_that_cannot_give_it_up_knows_no_guest() -> None:
    """It never had it."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE_ROOT)}
    child = Walls(frozenset({"mount"}), WALLS).start([sys.executable, "-c", ENTER], environment, root_of_python())
    assert child.wait() == OPEN
    child.close()


def test_a_node_that_is_not_there(captive: Child) -> None:
    assert lib.fgw_walls_lend(captive.pidfd, b"/dev/of-no-host") == errno.ENOENT


def test_a_process_that_has_ended(captive: Child) -> None:
    captive.kill()
    captive.wait()
    assert lib.fgw_walls_lend(captive.pidfd, NODE) == errno.ESRCH


WITHOUT_ROOT = f"""
import os, subprocess
from backend_host.worker._worker import lib
child = subprocess.Popen(["sleep", "600"])
pidfd = os.pidfd_open(child.pid)
try:
    assert lib.fgw_walls_lend(pidfd, {NODE!r}) == {errno.EXDEV}
    assert lib.fgw_walls_take_back(pidfd, {NODE!r}) == {errno.EXDEV}
    assert not os.statvfs("/").f_flag & os.ST_RDONLY
finally:
    child.kill()
    child.wait()
"""


def test_the_root_of_all_is_nobody_s_to_change() -> None:
    """In a mount namespace of the test's own, where it could be changed."""
    command = ["unshare", "--mount", sys.executable, "-c", WITHOUT_ROOT]
    ended = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_what_a_daemon_left_lent_is_taken_back(captive: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else."""
    nodes = {1: NODE.decode(), 2: "/dev/of-no-host"}
    monkeypatch.setattr("backend_host.move.root._node", lambda device: nodes[device])
    assert lib.fgw_walls_lend(captive.pidfd, NODE) == 0
    for _ in range(2):
        keep_own(captive, nodes)  # type: ignore[arg-type]
        assert not inside(captive).exists()
        assert inside(captive, b"/dev/null").is_char_device()
