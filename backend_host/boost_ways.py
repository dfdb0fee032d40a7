"""The ways in which a kernel lets one thread run before others, the strongest first, and the choice among them.

A way is tried on the very thread that it is for: whether it works depends on the kernel, on its configuration, on the privileges of this
process and on whose thread it is. Nothing of a trial stays.

| way | needs | gives |
|---|---|---|
| real-time | CAP_SYS_NICE, or RLIMIT_RTPRIO of the thread; no RT_GROUP_SCHED group without a budget | before every ordinary thread, at once |
| short-slice | Linux 6.12; the same user, or CAP_SYS_NICE | an earlier deadline: it preempts when it wakes; its share stays |
| nice | CAP_SYS_NICE, or RLIMIT_NICE of the thread | a far greater weight, and so an early deadline |

A thread that has a scheduling of its own already (real-time, say, by `<vcpusched>`) is left alone.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backend_host.worker._worker import ffi, lib

_SCHED_OTHER, _SCHED_RR = 0, 2


@dataclass(frozen=True)
class Boost:
    """A way made ready for one thread."""

    name: str
    settings: dict[str, int]

    def native(self) -> ffi.CData:
        """A `struct fgw_boost_way *`."""
        return ffi.new("struct fgw_boost_way *", self.settings)

    def trouble(self, tid: int) -> int:
        """0, or the errno with which the kernel refuses it for this thread; the thread is as it was afterwards."""
        return int(lib.fgw_boost_try(tid, self.native()))


class Way(Protocol):
    """One row of the table above."""

    name: str

    def prepare(self, tid: int) -> Boost:
        """For this thread. OSError when that cannot be."""


class RealTime:
    """SCHED_RR with the least priority."""

    name = "real-time"

    def prepare(self, tid: int) -> Boost:
        return Boost(self.name, {"policy": _SCHED_RR, "priority": 1, "sets_reset_on_fork": 1})


class ShortSlice:
    """An ordinary thread that asks for the shortest slice there is."""

    name = "short-slice"
    _SLICE_NS = 100_000
    _SINCE = (6, 12)

    def prepare(self, tid: int) -> Boost:
        if kernel_version() < self._SINCE:  # older ones take the number and do nothing
            raise OSError(errno.ENOSYS, "needs Linux 6.12")
        return Boost(self.name, {"policy": _SCHED_OTHER, "slice_ns": self._SLICE_NS})


class Nice:
    """An ordinary thread of the greatest weight but one."""

    name = "nice"

    def prepare(self, tid: int) -> Boost:
        return Boost(self.name, {"policy": _SCHED_OTHER, "nice": -19, "sets_reset_on_fork": 1})


WAYS: tuple[Way, ...] = (RealTime(), ShortSlice(), Nice())


def choose(tid: int, ways: Sequence[Way] = WAYS) -> Boost | str:
    """The first that works for this thread, or why none does."""
    reasons = []
    for way in ways:
        try:
            boost = way.prepare(tid)
        except (OSError, ValueError) as error:
            reasons.append(f"{way.name}: {getattr(error, 'strerror', None) or error}")
            continue
        trouble = boost.trouble(tid)
        if trouble == 0:
            return boost
        if trouble == errno.EBUSY:
            return "the thread has a scheduling of its own"
        reasons.append(f"{way.name}: {os.strerror(trouble)}")
    return "; ".join(reasons) or "switched off"


def kernel_version() -> tuple[int, int]:
    """As (6, 12)."""
    major, minor = os.uname().release.split(".")[:2]
    digits = "".join(character for character in minor if character.isdigit())
    return int(major), int(digits or "0")
