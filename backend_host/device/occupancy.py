"""Which worker keeps a device that serves one kernel after the other, by the kernel's own word.

A worker that its guest took over says what it likes of its work: that there is none, say, while a kernel of it does not end and its neighbour's
stands still behind it. softgpu's turns rest on locks on a file (softgpu/driver/base/state.h), and whose a lock is the kernel tells. So nobody
seems to keep the device but who keeps it, and nobody can hide that it does.

Other device libraries have no such locks: nobody is found, and what workers say has to do.

Wrong when: a worker's processes may not be looked at, by a daemon of an ordinary user. Unknown is what is said then.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend_host.device.control import ControlPage

_LOCK = re.compile(r"^lock:\s+\d+: OFDLCK\s+ADVISORY\s+WRITE -?\d+ (\S+) (\d+) (\d+|EOF)$", re.MULTILINE)
_COUNTS, _RUNNING, _TICKETS = 0, 1, 1 << 32
"""Bytes of softgpu's file."""
_COUNTING_S = 0.01


class UnknownError(Exception):
    """The kernel does not say whose locks there are."""


@dataclass(frozen=True)
class Occupant:
    """A worker by its process, and its locks: those of another kernel are others."""

    pid: int
    locks: tuple[tuple[str, int], ...]

    @property
    def place(self) -> int:
        """Who keeps the counts locked keeps all waiting; else who runs a kernel comes before who waits, by their tickets."""
        return min(place for _, place in self.locks)


def keeps_device(page: ControlPage, vgpu: int) -> bool:
    """Whether a kernel of it runs that nobody can take back. Then the grant is not taken from it: what the next one submitted would only wait
    behind that kernel, and both would be charged for the same time."""
    if page.is_preemptive:
        return False
    pids = [worker.pid for worker in page.workers() if worker.vgpu == vgpu and worker.pid]
    with contextlib.suppress(UnknownError):
        return occupant(pids) is not None
    return False


def occupant(pids: Sequence[int]) -> Occupant | None:
    """Of these workers, the one that keeps the device; None: none of them does. Raises UnknownError."""
    found = _first(pids)
    if found is not None and found.place == _COUNTS:  # everybody locks them, for microseconds
        time.sleep(_COUNTING_S)
        again = _first(pids)
        if again != found:
            return _first(pids, _RUNNING)
    return found


def _first(pids: Sequence[int], least: int = _COUNTS) -> Occupant | None:
    locks = ((pid, tuple(lock for lock in _locks(pid) if lock[1] >= least)) for pid in pids)
    return min((Occupant(pid, held) for pid, held in locks if held), key=lambda each: each.place, default=None)


def _locks(pid: int) -> tuple[tuple[str, int], ...]:
    """Those on such bytes, of a worker and all processes below it: the file and the first byte of each."""
    found = set()
    for process in _family(pid):
        for file, first, _ in _LOCK.findall(_told(process)):
            if int(first) in (_COUNTS, _RUNNING) or int(first) >= _TICKETS:
                found.add((file, int(first)))
    return tuple(sorted(found))


def _told(pid: int) -> str:
    """What the kernel tells of all that a process has open; "" when it has ended."""
    texts = []
    try:
        for path in Path(f"/proc/{pid}/fdinfo").iterdir():
            try:
                texts.append(path.read_text())
            except FileNotFoundError:
                continue
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except PermissionError as error:
        raise UnknownError(f"what process {pid} has open may not be looked at") from error
    return "".join(texts)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _family(child)


def _children(pid: int) -> list[int]:
    """None of a process that has ended, also if it does so while it is looked at."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
    return found
