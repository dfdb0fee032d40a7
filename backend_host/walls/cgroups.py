"""How much of the host the workers of a vGPU get together: a cgroup for each, of version 2 where its controllers are free, else of version 1.

Every group has the kernel's default share of the CPUs, so vGPUs that want more than there is get alike, however many programs each runs.

Wrong when: memory was taken before a worker joined, which is that of its warm start. Who took it is who counts it.
"""

import contextlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CONTROLLERS = ("memory", "pids", "cpu")
_OF_SWAP = ("memory.swap.max", "memory.swappiness")
"""Not there where the kernel counts no swap."""
TREE = "fairgv"
"""The folder that holds the groups of all daemons."""
_TRIED, _TRIED_BYTES = "tried", 1 << 20
_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")

log = logging.getLogger("fairgv.walls")


class NoCgroupsError(Exception):
    """This host has none that we may use; the text says why."""


@dataclass(frozen=True)
class Group:
    """One group, which is one folder in each hierarchy."""

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
    """A tree of groups; `find` gives the one of this host."""

    def __init__(self, trees: Mapping[str, Path]) -> None:
        """`trees`: the folder of each controller; with version 2 it is one."""
        self.trees = {controller: folder / TREE for controller, folder in trees.items()}
        for folder in dict.fromkeys(self.trees.values()):
            folder.mkdir(exist_ok=True)

    def tried(self) -> Self:
        """Itself. Raises OSError where no group can be made: the folder may be another user's, who made it."""
        self.make(f"{os.getpid()}-{_TRIED}", _TRIED_BYTES, 1).remove()
        return self

    @abstractmethod
    def limits(self, memory_bytes: int, processes: int) -> Sequence[tuple[str, str, str]]:
        """Controller, file and value of each limit. What is beyond the memory does not go to swap instead, which is all of the host's."""

    def make(self, name: str, memory_bytes: int, processes: int) -> Group:
        """A group with these limits, or the one of that name with its limits changed. Raises OSError."""
        folders = tuple(dict.fromkeys(tree / name for tree in self.trees.values()))
        for folder in folders:
            folder.mkdir(exist_ok=True)
        for controller, file, value in self.limits(memory_bytes, processes):
            path = self.trees[controller] / name / file
            if file not in _OF_SWAP or path.exists():
                path.write_text(value)
        return Group(folders)

    def sweep(self) -> None:
        """Removes groups without processes that daemons left which are gone. A name begins with its daemon's process id."""
        for tree in dict.fromkeys(self.trees.values()):
            for folder in tree.iterdir():
                owner = folder.name.partition("-")[0]
                if folder.is_dir() and owner.isdigit() and not Path(f"/proc/{owner}").exists():
                    Group((folder,)).remove()


class Groups:
    """The groups of one Gpu's vGPUs: each is made for the first worker and removed after the last. Thread-safe."""

    def __init__(self, cgroups: Cgroups, gpu: int) -> None:
        self._cgroups = cgroups
        self._prefix = f"{os.getpid()}-{gpu}"
        self._groups: dict[int, Group] = {}
        self._nr_users: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, vgpu: int, memory_bytes: int, processes: int) -> Group:
        """The group of this vGPU, for one worker more. Raises OSError."""
        with self._lock:
            if vgpu not in self._groups:
                self._groups[vgpu] = self._cgroups.make(f"{self._prefix}-{vgpu}", memory_bytes, processes)
            self._nr_users[vgpu] += 1
            return self._groups[vgpu]

    def leave(self, vgpu: int) -> None:
        """For one that has ended. A group that somebody still ends in stays until the next daemon sweeps it."""
        with self._lock:
            self._nr_users[vgpu] -= 1
            if self._nr_users[vgpu] <= 0:
                del self._nr_users[vgpu]
                self._groups.pop(vgpu).remove()


class Version2(Cgroups):
    """The unified hierarchy."""

    def __init__(self, folder: Path) -> None:
        """`folder` has, or may be given, all controllers for what is below it. Raises OSError."""
        _enable(folder)
        super().__init__(dict.fromkeys(CONTROLLERS, folder))
        _enable(folder / TREE)

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
    """The tree that this daemon may use. Raises NoCgroupsError."""
    mounts = list(_mounts())
    own = _own()
    reasons = []
    for folder in (folder for kind, folder, _ in mounts if kind == "cgroup2"):
        if not set(CONTROLLERS) <= set((folder / "cgroup.controllers").read_text().split()):
            reasons.append(f"{folder} has not the controllers {', '.join(CONTROLLERS)}")
            continue
        try:
            own_folder = folder / own.get("", "/").lstrip("/")
            return Version2(folder if os.geteuid() == 0 else _leave_for_leaf(own_folder)).tried()
        except OSError as error:
            reasons.append(f"{error.filename or folder}: {error.strerror}")
    trees = {
        controller: folder / own.get(controller, "/").lstrip("/")
        for kind, folder, options in mounts
        if kind == "cgroup"
        for controller in CONTROLLERS
        if controller in options
    }
    if set(trees) == set(CONTROLLERS):
        try:
            return Version1(trees).tried()
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


def _mounts() -> Iterator[tuple[str, Path, Sequence[str]]]:
    """Kind, folder and options of each cgroup file system."""
    for line in _MOUNTS.read_text().splitlines():
        place, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(place.split(" ")[4]), options.split(",")


def _own() -> dict[str, str]:
    """Our own group for each controller; "" is version 2."""
    lines = (line.split(":", 2) for line in _OWN.read_text().splitlines())
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
