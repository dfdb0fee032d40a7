"""States of the host in which nothing new can be had: a full disk, no descriptors, no processes. Each holds for a block."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_CONTROLLER = Path("/sys/fs/cgroup/pids")
DISK_BYTES = 64 << 20


def _own_group() -> Path:
    """Where this process is, of the pids controller of cgroups v1."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":")[2] for line in lines if line.split(":")[1] == "pids"]
    return _CONTROLLER / paths[0].lstrip("/") if paths else _CONTROLLER


@contextlib.contextmanager
def full_disk(state_dir: Path, daemon: int) -> Iterator[None]:
    """The file system of the state directory, which is the run's own (`small_disk`), has no byte left."""
    filler = state_dir / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextlib.contextmanager
def no_descriptors(state_dir: Path, daemon: int) -> Iterator[None]:
    """The daemon can open nothing more."""
    nr_open = 1 + max(int(path.name) for path in Path(f"/proc/{daemon}/fd").iterdir())
    before = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon, resource.RLIMIT_NOFILE, (min(nr_open, before[1]), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(daemon, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def no_processes(state_dir: Path, daemon: int) -> Iterator[None]:
    """The daemon can start neither a process nor a thread: its forks fail."""
    group = _own_group() / f"fairgv-faults-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(daemon))
        (group / "pids.max").write_text((group / "pids.current").read_text())
        yield
    finally:
        _dissolve(group)


def _dissolve(group: Path) -> None:
    """Everybody in it goes back; one that is ending leaves by itself, a moment later."""
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (group.parent / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise


CONDITIONS = {"full disk": full_disk, "no descriptors": no_descriptors, "no processes": no_processes}


def missing(condition: str, has_small_disk: bool) -> str:
    """Why a condition cannot be had on this machine, or nothing."""
    if condition == "full disk" and not has_small_disk:
        return "only root mounts a disk of its own"
    if condition == "no processes" and not os.access(_own_group(), os.W_OK):
        return f"{_own_group()} cannot be written to"
    return ""
