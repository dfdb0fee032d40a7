"""How much of the host the workers of a vGPU get, in each version of cgroups that this machine has with the controllers."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend_host.walls import cgroups
from backend_host.walls.cgroups import CONTROLLERS, OURS, Cgroups, Group, Groups, NoCgroupsError, Version1, Version2
from tests.end_to_end.host import wait_until

MEMORY, PROCESSES = 64 << 20, 16
WAIT = "import sys; sys.stdin.readline(); "
"""For a program that was just started, until it is in its group."""
STAY = "import sys; print(1, flush=True); sys.stdin.read()"
USE = "print(len(bytearray(int(sys.argv[1]))))"
FORK = """
import os, time
nr = 0
try:
    while os.fork():
        nr += 1
    time.sleep(3600)
except OSError:
    print(nr, flush=True)
"""


def trees() -> dict[str, Cgroups | str]:
    """By version, or why there is none."""
    found: dict[str, Cgroups | str] = {}
    try:
        here = cgroups.find()
    except NoCgroupsError as error:
        here, reason = None, str(error)
    else:
        reason = f"this machine has the other version, {type(here).__name__}"
    for version in (Version1, Version2):
        found[version.__name__] = here if isinstance(here, version) else reason
    return found


@pytest.fixture(params=["Version1", "Version2"])
def tree(request: pytest.FixtureRequest) -> Cgroups:
    found = trees()[request.param]
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def group(tree: Cgroups) -> Iterator[Group]:
    group = tree.make(f"{os.getpid()}-test", MEMORY, PROCESSES)
    yield group
    wait_until(group.remove, "all have ended")


@contextmanager
def run_in(group: Group, *program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in the group; at the end all that is in there is ended."""
    command = [sys.executable, "-c", f"{WAIT}{program[0]}", *program[1:]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        group.join(child.pid)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        yield child
        for pid in (group.folders[0] / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_limits_are_what_was_asked_for(tree: Cgroups, group: Group) -> None:
    found = {
        (controller, file): (tree.folder(controller, f"{os.getpid()}-test") / file).read_text().strip()
        for controller, file, _ in tree.limits(MEMORY, PROCESSES)
    }
    assert found == {(controller, file): value for controller, file, value in tree.limits(MEMORY, PROCESSES)}


def test_limits_change(tree: Cgroups, group: Group) -> None:
    for nbytes in (4 * MEMORY, MEMORY):
        assert tree.make(f"{os.getpid()}-test", nbytes, PROCESSES) == group
        with run_in(group, USE, str(2 * MEMORY)) as child:
            assert first_line(child) == (f"{2 * MEMORY}\n" if nbytes > 2 * MEMORY else "")


def test_processes_beyond_the_limit_do_not_start(group: Group) -> None:
    with run_in(group, FORK) as child:
        assert 0 < int(first_line(child)) < PROCESSES
        assert not group.remove(), "it has processes"


def test_each_group_weighs_as_much_as_a_process_beside_it(tree: Cgroups, group: Group) -> None:
    file, usual = ("cpu.shares", 1024) if isinstance(tree, Version1) else ("cpu.weight", 100)
    folder = tree.folder("cpu", group.name)
    assert folder in group.folders
    assert int((folder / file).read_text()) == usual
    if isinstance(tree, Version1):  # nothing of ours is above them
        assert str(os.getpid()) in (folder.parent / "cgroup.procs").read_text().split()


def test_swap_is_no_way_around(tree: Cgroups) -> None:
    """Of a host with swap, a worker's memory beyond its limit would go there."""
    files = {file for _, file, _ in tree.limits(MEMORY, PROCESSES)}
    assert files & {"memory.swap.max", "memory.swappiness"}


@dataclass(frozen=True)
class Workers:
    """Processes that begin in groups of their own."""

    groups: Groups
    children: ExitStack

    def start(self) -> subprocess.Popen[str]:
        child = self.children.enter_context(
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
        )
        self.groups.begin(child.pid, MEMORY, PROCESSES)
        return child

    def take(self, child: subprocess.Popen[str], vgpu: int) -> Group:
        return self.groups.take(child.pid, vgpu, 2 * MEMORY, PROCESSES)

    def end(self, child: subprocess.Popen[str]) -> None:
        child.kill()
        child.wait()
        self.groups.leave(child.pid)


@pytest.fixture
def workers(tree: Cgroups) -> Iterator[Workers]:
    with ExitStack() as children:
        yield Workers(Groups(tree, gpu=77), children)
    name = tree.folder("memory", f"{os.getpid()}-77-")
    left = list(name.parent.glob(f"{name.name}*"))
    assert left == []


def members(group: Group) -> set[int]:
    found = [{int(pid) for pid in (folder / "cgroup.procs").read_text().split()} for folder in group.folders]
    assert all(pids == found[0] for pids in found)
    return found[0]


def test_all_workers_of_a_vgpu_are_in_one_group(workers: Workers) -> None:
    """That of the first, which it had before; the others are moved."""
    first, second, other = workers.start(), workers.start(), workers.start()
    group = workers.take(first, 1)
    assert workers.take(second, 1) == group != workers.take(other, 2)
    assert members(group) == {first.pid, second.pid}
    for child in (first, other):
        workers.end(child)
    assert members(group) == {second.pid}
    workers.end(second)
    assert not group.folders[0].exists()


def test_a_group_gets_its_vgpus_limits(tree: Cgroups, workers: Workers) -> None:
    child = workers.start()
    group = workers.take(child, 1)
    for controller, file, value in tree.limits(2 * MEMORY, PROCESSES):
        assert (tree.folder(controller, group.name) / file).read_text().strip() == value
    workers.end(child)


def test_a_worker_that_never_served_leaves_no_group(workers: Workers) -> None:
    workers.end(workers.start())


def test_a_vgpu_may_come_again(workers: Workers) -> None:
    for _ in range(2):
        child = workers.start()
        assert members(workers.take(child, 1)) == {child.pid}
        workers.end(child)


def test_a_group_that_somebody_still_ends_in_goes_later(workers: Workers) -> None:
    child, late = workers.start(), workers.start()
    group = workers.take(child, 1)
    group.join(late.pid)
    workers.end(child)
    assert members(group) == {late.pid}
    workers.end(late)
    assert not group.folders[0].exists()


def test_a_sweep_takes_what_dead_daemons_left(tree: Cgroups) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    dead, own = tree.make(f"{gone.pid}-0-1", MEMORY, PROCESSES), tree.make(f"{os.getpid()}-0-1", MEMORY, PROCESSES)
    busy = tree.make(f"{gone.pid}-0-2", MEMORY, PROCESSES)
    with run_in(busy, STAY) as child:
        assert first_line(child)
        tree.sweep()
        assert not dead.folders[0].exists()
        assert own.folders[0].exists()
        assert busy.folders[0].exists(), "a worker outlives its daemon"
    tree.sweep()
    assert not busy.folders[0].exists()
    assert own.remove()


def test_workers_of_an_earlier_daemon_keep_their_group(tree: Cgroups) -> None:
    """It goes with the last of them; a newcomer of their vGPU joins it, and a name that is none is passed over."""
    groups = Groups(tree, 7)
    earlier = tree.make("1-0-1", MEMORY, PROCESSES)
    with run_in(earlier, STAY) as child:
        assert first_line(child)
        groups.adopt(child.pid, 3, "../up")
        groups.adopt(child.pid, 3, earlier.name)
        with subprocess.Popen([sys.executable, "-c", STAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as late:
            groups.begin(late.pid, MEMORY, PROCESSES)
            assert groups.take(late.pid, 3, MEMORY, PROCESSES) == earlier
            assert members(earlier) == {child.pid, late.pid}
            late.kill()
        groups.leave(late.pid)
        assert earlier.folders[0].exists()
    groups.leave(child.pid)
    wait_until(lambda: is_gone(groups, earlier), "nobody ends in it any more")


def is_gone(groups: Groups, group: Group) -> bool:
    """A group that could not go yet, as Linux was not done with a process in it, is tried again whenever a worker leaves."""
    groups.leave(0)
    return not group.folders[0].exists()


def test_a_tree_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of version 2 without the controllers, and nothing else."""
    (tmp_path / "cgroup.controllers").write_text("cpu io")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 20 0:26 / {tmp_path} rw shared:4 - cgroup2 cgroup2 rw\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    with pytest.raises(NoCgroupsError, match="has not the controllers memory, pids, cpu"):
        cgroups.find()
    mounts.write_text("30 20 0:26 / / rw - ext4 /dev/root rw\n")
    with pytest.raises(NoCgroupsError, match="no cgroup file system is mounted"):
        cgroups.find()
    assert not list(tmp_path.glob(f"{OURS}*"))


def test_folders_that_others_mount_on_have_names_of_any_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    others = [b"/tmp/\xff", b"/tmp/a\x0bb", b"/tmp/a\xc2\x85b"]
    lines = [b"30 20 0:26 / %s rw shared:4 - fuse fuse rw\n" % folder for folder in others]
    mounts.write_bytes(b"".join([*lines, b"31 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"]))
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    assert list(cgroups.mounts()) == [("cgroup2", Path("/sys/fs/cgroup"), ["rw"])]


class _NoRoom(Version1):
    """Groups that are folders, whose limits cannot be set while there is no room."""

    has_room = True

    def make(self, name: str, memory_bytes: int, processes: int) -> Group:
        if not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        group = self.group(name)
        for folder in group.folders:
            folder.mkdir(exist_ok=True)
        return group


def test_a_worker_whose_vgpu_gets_no_group_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and the thread that notices it goes on."""
    monkeypatch.setattr(Group, "join", lambda _group, _pid: None)
    tree = _NoRoom(dict.fromkeys(CONTROLLERS, tmp_path))
    groups = Groups(tree, gpu=77)
    groups.begin(1, MEMORY, PROCESSES)
    tree.has_room = False
    with pytest.raises(OSError, match="No space"):
        groups.take(1, 5, MEMORY, PROCESSES)
    groups.leave(1)
    assert list(tmp_path.iterdir()) == []
    tree.has_room = True
    groups.begin(2, MEMORY, PROCESSES)
    group = groups.take(2, 5, MEMORY, PROCESSES)
    assert [Path(OURS + group.name)] == [folder.relative_to(tmp_path) for folder in tmp_path.iterdir()]
