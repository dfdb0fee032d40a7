"""The ways in which a kernel lets one thread run before others, the strongest first, and the choice among them.

A way is tried on the very thread that it is for: whether it works depends on the kernel, on its configuration, on the privileges of this
process and on whose thread it is. Nothing of a trial stays.

| way | needs | gives |
|---|---|---|
| real-time | CAP_SYS_NICE, or RLIMIT_RTPRIO of the thread; no RT_GROUP_SCHED group without a budget | before every ordinary thread, at once |
| short-slice | Linux 6.12; the same user, or CAP_SYS_NICE | an earlier deadline: it preempts when it wakes; its share stays |
| nice | CAP_SYS_NICE, or RLIMIT_NICE of the thread | a far greater weight, and so an early deadline |
| group-weight | writing to cpu.weight of the machine's control group (version 2) | the whole machine's weight, not at once |
| utilisation | a kernel with UCLAMP_TASK; the same user, or CAP_SYS_NICE | a higher frequency of the CPU, no turn |

A thread that has a scheduling of its own already (real-time, say, by `<vcpusched>`) is left alone.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backend_host.worker._worker import ffi, lib

_SCHED_OTHER, _SCHED_RR = 0, 2
_GROUPS = Path("/sys/fs/cgroup")
_UNIFIED = Path("/sys/fs/cgroup/unified")
_MOST_WEIGHT = 10_000


@dataclass
class Boost:
    """A way made ready for one thread. `weight_fd` belongs to whoever has this object; -1: there is none."""

    name: str
    settings: dict[str, int]
    weight_fd: int = -1

    def native(self) -> ffi.CData:
        """A `struct fgv_boost_way *`."""
        return ffi.new("struct fgv_boost_way *", self.settings)

    def trouble(self, tid: int) -> int:
        """0, or the errno with which the kernel refuses it for this thread; the thread is as it was afterwards."""
        return int(lib.fgv_boost_try(tid, self.native(), self.weight_fd))


class Way(Protocol):
    """One row of the table above."""

    name: str

    def prepare(self, tid: int) -> Boost:
        """For this thread. OSError when that cannot be."""


class RealTime:
    """SCHED_RR with the least priority."""

    name = "real-time"

    def prepare(self, tid: int) -> Boost:
        return Boost(self.name, {"kind": lib.FGV_BOOST_ATTRIBUTES, "policy": _SCHED_RR, "priority": 1, "marks": 1})


class ShortSlice:
    """An ordinary thread that asks for the shortest slice there is."""

    name = "short-slice"
    _SLICE_NS = 100_000
    _SINCE = (6, 12)

    def prepare(self, tid: int) -> Boost:
        if kernel_version() < self._SINCE:  # older ones take the number and do nothing
            raise OSError(errno.ENOSYS, "needs Linux 6.12")
        settings = {"kind": lib.FGV_BOOST_ATTRIBUTES, "policy": _SCHED_OTHER, "slice_ns": self._SLICE_NS}
        return Boost(self.name, settings)


class Nice:
    """An ordinary thread of the greatest weight but one."""

    name = "nice"

    def prepare(self, tid: int) -> Boost:
        return Boost(self.name, {"kind": lib.FGV_BOOST_ATTRIBUTES, "policy": _SCHED_OTHER, "nice": -19, "marks": 1})


class GroupWeight:
    """cpu.weight of the control group that libvirt made for the machine: that of a vCPU counts within the machine only."""

    name = "group-weight"

    def prepare(self, tid: int) -> Boost:
        path = machine_group(tid) / "cpu.weight"
        usual = int(path.read_text())
        settings = {"kind": lib.FGV_BOOST_WEIGHT, "weight": _MOST_WEIGHT, "usual_weight": usual}
        return Boost(self.name, settings, os.open(path, os.O_WRONLY | os.O_CLOEXEC))


class Utilisation:
    """The governor of the CPU's frequency takes the thread for a busy one."""

    name = "utilisation"

    def prepare(self, tid: int) -> Boost:
        return Boost(self.name, {"kind": lib.FGV_BOOST_ATTRIBUTES, "policy": _SCHED_OTHER, "util_min": 1024})


WAYS: tuple[Way, ...] = (RealTime(), ShortSlice(), Nice(), GroupWeight(), Utilisation())


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
        if boost.weight_fd >= 0:
            os.close(boost.weight_fd)
        if trouble == errno.EBUSY:
            return "the thread has a scheduling of its own"
        reasons.append(f"{way.name}: {os.strerror(trouble)}")
    return "; ".join(reasons) or "switched off"


def machine_group(tid: int) -> Path:
    """Folder of the control group (version 2) of the machine that the thread belongs to: above libvirt's own division."""
    for line in Path(f"/proc/{tid}/cgroup").read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            group = Path(path)
            while group.name in ("libvirt", "emulator") or group.name.startswith("vcpu"):
                group = group.parent
            root = _UNIFIED if _UNIFIED.is_dir() else _GROUPS
            return root / group.relative_to("/")
    raise OSError(errno.ENOSYS, "no control groups of version 2")


def kernel_version() -> tuple[int, int]:
    """As (6, 12)."""
    major, minor = os.uname().release.split(".")[:2]
    digits = "".join(character for character in minor if character.isdigit())
    return int(major), int(digits or "0")
