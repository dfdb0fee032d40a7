"""Processes of a long run, and what they hold. Only those that the run started are found, so that only they are ever touched.

The run is a subreaper (prctl(2)): whoever loses its parent becomes its child, and so every process that came of it stays below it, whatever was
killed on the way. Linux alone.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.beside import beside
from tests.children import is_there

_PR_SET_CHILD_SUBREAPER = 36
REAP_INTERVAL_S = 0.05
"""Less than what a round of `faults` takes by far."""


def adopt_orphans() -> None:
    """From now on no process below this one gets lost."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def children(pid: int) -> Iterator[int]:
    """Those that are there now; none when `pid` has ended."""
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                yield from (int(child) for child in path.read_text().split())


def descendants(pid: int) -> Iterator[int]:
    """All below `pid` that live."""
    for child in children(pid):
        if is_there(child):
            yield child
        yield from descendants(child)


def reap(kept: Collection[int]) -> None:
    """Takes the status of orphans that have ended, but not of those in `kept`, which somebody else waits for."""
    for child in set(children(os.getpid())) - set(kept):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


@contextlib.contextmanager
def reaping(command: str) -> Iterator[None]:
    """For the block, orphans of this command (comm of proc(5)) go as soon as they end. libvirt waits until its QEMU is gone, also those by
    which it finds out what QEMU can do, and here nobody else would take their status."""

    def reap_them(is_over: threading.Event) -> None:
        while not is_over.wait(REAP_INTERVAL_S):
            for child in children(os.getpid()):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text().strip() == command:
                        os.waitpid(child, os.WNOHANG)

    with beside(reap_them, f"reaping {command}"):
        yield


def name(pid: int) -> str:
    """For people."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120] or str(pid)
    except OSError:
        return str(pid)


def is_store(pid: int) -> bool:
    """Whether it keeps what a daemon leaves to the next one."""
    return "backend_host.restart.keeping" in name(pid)


def is_heir(pid: int) -> bool:
    """Whether it ends a libvirt of the run's own where the run is killed."""
    return "backend_host.vm.private_libvirt" in name(pid)


def descriptors(pid: int) -> list[str]:
    """What each open one leads to."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(path.readlink()))
    return found


def where(pid: int) -> str:
    """What each thread waits for, for the report of a hang."""
    lines = [f"{pid} {name(pid)}"]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(
                f"    {task.name} {state} {(task / 'wchan').read_text()} {(task / 'syscall').read_text().strip()}"
            )
    return "\n".join(lines)


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident, and what of that no file holds and no other process can change by coming or going (its share, PSS, would)."""
    found = {"Rss": 0, "Anonymous": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, _, value = line.partition(":")
        if key in found:
            found[key] = int(value.split()[0]) << 10
    return found["Rss"], found["Anonymous"]
