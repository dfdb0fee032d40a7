"""How much of the host the workers of a vGPU get together: a cgroup for each, of version 2 where its controllers are free, else of version 1.

Every group has the kernel's default share of the CPUs, so vGPUs that want more than there is get alike, however many programs each runs.

Wrong when: a worker is moved to the group that its vGPU has. The memory of its warm start goes uncounted: who took it is who counts it.
"""

import contextlib
import itertools
import logging
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CONTROLLERS = ("memory", "pids", "cpu")
_OF_SWAP = ("memory.swap.max", "memory.swappiness")
"""Not there where the kernel counts no swap."""
OURS = "fairgv-"
"""What the folders of all daemons' groups begin with."""
_NAME = re.compile(r"\d+-\d+-\d+")
"""Of a daemon's process, a Gpu, a number."""
_TRIED, _TRIED_BYTES = "tried", 1 << 20
_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")

log = logging.getLogger("fairgv.walls")


class NoCgroupsError(Exception):
    """This host has none that we may use; the text says why."""


@dataclass(frozen=True)
class Group:
    """One group, which is one folder in each hierarchy."""

    name: str
    folders: tuple[Path, ...]

    def join(self, pid: int) -> None:
        """Puts a process with its threads there. Raises OSError."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> bool:
        """Whether it is gone; a process that is still ending keeps it."""
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                try:
                    folder.rmdir()
                except OSError:
                    return False
        return True


class Cgroups(ABC):
    """All groups; `find` gives those of this host.

    Each weighs as much as a process beside it, the daemon say. No group of ours stands above them: below one, with CPUs that all have work,
    Linux 6.18 leaves processes outside without any for up to seconds (docs/lab/cgroups.md).
    """

    def __init__(self, above: Mapping[str, Path]) -> None:
        """`above`: where groups may be made, for each controller; with version 2 it is one folder."""
        self._above = dict(above)

    def folder(self, controller: str, name: str) -> Path:
        """Of a group, there or not."""
        return self._above[controller] / f"{OURS}{name}"

    def tried(self) -> Self:
        """Itself. Raises OSError where no group can be made: the folder may be another user's, who made it."""
        self.make(f"{os.getpid()}-{_TRIED}", _TRIED_BYTES, 1).remove()
        return self

    @abstractmethod
    def limits(self, memory_bytes: int, processes: int) -> Sequence[tuple[str, str, str]]:
        """Controller, file and value of each limit. What is beyond the memory does not go to swap instead, which is all of the host's."""

    def make(self, name: str, memory_bytes: int, processes: int) -> Group:
        """A group with these limits, or the one of that name with its limits changed. Raises OSError."""
        group = self.group(name)
        for folder in group.folders:
            folder.mkdir(exist_ok=True)
        for controller, file, value in self.limits(memory_bytes, processes):
            path = self.folder(controller, name) / file
            if file not in _OF_SWAP or path.exists():
                path.write_text(value)
        return group

    def group(self, name: str) -> Group:
        """The one of this name, there or not."""
        return Group(name, tuple(dict.fromkeys(self.folder(controller, name) for controller in CONTROLLERS)))

    def sweep(self) -> None:
        """Removes groups without processes that daemons left which are gone. A name begins with its daemon's process id."""
        for above in dict.fromkeys(self._above.values()):
            for folder in above.glob(f"{OURS}[0-9]*-*"):
                name = folder.name.removeprefix(OURS)
                if not Path(f"/proc/{name.partition('-')[0]}").exists():
                    Group(name, (folder,)).remove()


class Groups:
    """The groups of one Gpu's workers. Thread-safe.

    Each worker begins in a group of its own, which becomes its vGPU's when that has none yet: so a program's start need not wait for the move
    of a process from group to group, which takes the kernel 10-20 ms. Where its vGPU has one it is moved there.
    """

    def __init__(self, cgroups: Cgroups, gpu: int) -> None:
        self._cgroups = cgroups
        self._names = (f"{os.getpid()}-{gpu}-{number}" for number in itertools.count())
        self._own: dict[int, Group] = {}
        self._vgpu_of: dict[int, int] = {}
        self._groups: dict[int, Group] = {}
        self._allowed: dict[int, int] = {}
        """More memory than vGPUs' workers have from the first."""
        self._left: list[Group] = []
        self._lock = threading.Lock()

    def begin(self, pid: int, memory_bytes: int, processes: int) -> None:
        """Puts a worker that serves nobody yet into a group of its own. Raises OSError."""
        with self._lock:
            taken = {group.name for group in self._groups.values()}
            name = next(name for name in self._names if name not in taken)
            group = self._own[pid] = self._cgroups.make(name, memory_bytes, processes)
        group.join(pid)

    def adopt(self, pid: int, vgpu: int, name: str) -> None:
        """A worker of this vGPU that an earlier daemon put into the group of this name. A name that is none is passed over."""
        if _NAME.fullmatch(name):
            with self._lock:
                self._vgpu_of[pid] = vgpu
                self._groups.setdefault(vgpu, self._cgroups.group(name))

    def take(self, pid: int, vgpu: int, memory_bytes: int, processes: int) -> Group:
        """Makes it one of this vGPU's; returns their group. Raises OSError: it is nobody's still."""
        with self._lock:
            own = self._own[pid]
            if vgpu in self._groups:
                self._groups[vgpu].join(pid)
                self._left.append(own)
                self._remove_left()
            else:
                self._groups[vgpu] = self._cgroups.make(own.name, memory_bytes, processes)
            del self._own[pid]
            self._vgpu_of[pid] = vgpu
            return self._groups[vgpu]

    def allow(self, vgpu: int, memory_bytes: int, processes: int) -> None:
        """Lets the workers of this vGPU have so much together, or what they may already if that is more. Raises OSError."""
        with self._lock:
            group = self._groups.get(vgpu)
            most = self._allowed[vgpu] = max(memory_bytes, self._allowed.get(vgpu, 0))
            if group is not None:
                self._cgroups.make(group.name, most, processes)

    def take_over(self, pid: int, vgpu: int, before: "Groups", memory_bytes: int, processes: int) -> str:
        """A worker that those of another Gpu had, with its group, becomes one of this vGPU's, which may have so much together, or what it might
        before if that is more. All workers of a vGPU come, so that no process changes its group. The group's name."""
        group, allowed = before._give(pid)
        if group is None:
            return ""
        with self._lock:
            self._vgpu_of[pid] = vgpu
            group = self._groups.setdefault(vgpu, group)
            most = self._allowed[vgpu] = max(memory_bytes, allowed, self._allowed.get(vgpu, 0))
            try:
                self._cgroups.make(group.name, most, processes)
            except OSError as error:
                log.warning("the limits of the cgroup %s stay as they are: %s", group.name, error)
        return group.name

    def _give(self, pid: int) -> tuple[Group | None, int]:
        with self._lock:
            vgpu = self._vgpu_of.pop(pid, None)
            if vgpu is None:
                return None, 0
            group, allowed = self._groups[vgpu], self._allowed.get(vgpu, 0)
            if vgpu not in self._vgpu_of.values():
                del self._groups[vgpu]
                self._allowed.pop(vgpu, None)
            return group, allowed

    def leave(self, pid: int) -> None:
        """For a worker that has ended. Its group goes with the last of them, or later where somebody still ends in it."""
        with self._lock:
            vgpu = self._vgpu_of.pop(pid, None)
            if vgpu is None:
                self._left += filter(None, [self._own.pop(pid, None)])
            elif vgpu not in self._vgpu_of.values():
                self._left.append(self._groups.pop(vgpu))
                self._allowed.pop(vgpu, None)
            self._remove_left()

    def _remove_left(self) -> None:
        self._left = [group for group in self._left if not group.remove()]


class Version2(Cgroups):
    """The unified hierarchy."""

    def __init__(self, folder: Path) -> None:
        """`folder` has, or may be given, all controllers for what is below it. Raises OSError."""
        _enable(folder)
        super().__init__(dict.fromkeys(CONTROLLERS, folder))

    def limits(self, memory_bytes: int, processes: int) -> Sequence[tuple[str, str, str]]:
        """See there."""
        return (
            ("memory", "memory.max", str(memory_bytes)),
            ("memory", "memory.swap.max", "0"),
            ("pids", "pids.max", str(processes)),
        )


class Version1(Cgroups):
    """A hierarchy for each controller."""

    def limits(self, memory_bytes: int, processes: int) -> Sequence[tuple[str, str, str]]:
        """See there."""
        return (
            ("memory", "memory.limit_in_bytes", str(memory_bytes)),
            ("memory", "memory.swappiness", "0"),
            ("pids", "pids.max", str(processes)),
        )


def find() -> Cgroups:
    """Those that this daemon may use. Raises NoCgroupsError."""
    mounted = list(mounts())
    own = _own()
    reasons = []
    for folder in (folder for kind, folder, _ in mounted if kind == "cgroup2"):
        if not set(CONTROLLERS) <= set((folder / "cgroup.controllers").read_text().split()):
            reasons.append(f"{folder} has not the controllers {', '.join(CONTROLLERS)}")
            continue
        try:
            own_folder = folder / own.get("", "/").lstrip("/")
            return Version2(folder if os.geteuid() == 0 else _leave_for_leaf(own_folder)).tried()
        except OSError as error:
            reasons.append(f"{error.filename or folder}: {error.strerror}")
    folders = {
        controller: folder / own.get(controller, "/").lstrip("/")
        for kind, folder, options in mounted
        if kind == "cgroup"
        for controller in CONTROLLERS
        if controller in options
    }
    if set(folders) == set(CONTROLLERS):
        try:
            return Version1(folders).tried()
        except OSError as error:
            reasons.append(f"{error.filename}: {error.strerror}")
    raise NoCgroupsError("; ".join(reasons) or "no cgroup file system is mounted")


def _enable(folder: Path) -> None:
    file = folder / "cgroup.subtree_control"
    missing = set(CONTROLLERS) - set(file.read_text().split())
    if missing:
        file.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))


def _leave_for_leaf(folder: Path) -> Path:
    """Moves this process one level down, as a group with limits for those below may have no process itself."""
    leaf = folder / "daemon"
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))
    return folder


def mounts() -> Iterator[tuple[str, Path, Sequence[str]]]:
    """Kind, folder and options of each cgroup file system."""
    text = _MOUNTS.read_text(errors="surrogateescape")  # any user may mount, and folders have names of any bytes
    for line in text.removesuffix("\n").split("\n"):
        place, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(place.split(" ")[4]), options.split(",")


def _own() -> dict[str, str]:
    """Our own group for each controller; "" is version 2."""
    lines = (line.split(":", 2) for line in _OWN.read_text().splitlines())
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
