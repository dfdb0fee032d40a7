"""The daemon's view of the control page: who holds the GPU, who waits, what each worker did; and the daemon's few powers over it.

The page is several shared memory objects per device, mapped by the daemon and its workers and by no guest: what the daemon decides, which
workers only read; the grant, which changes hands in C, among the workers; and for each vGPU what its own workers alone write
(worker/page/layout.h). The daemon says beforehand how each vGPU stands, takes back what a dead worker held, and reads. What it reads here may
have been written by a worker that its guest took over: numbers are bounded, and wrong accounts are those of that guest's vGPU alone.

Times are CLOCK_MONOTONIC (`time.monotonic_ns()`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from types import TracebackType

from backend_host.device.audit import Audit
from backend_host.device.away import Away
from backend_host.device.readings import (
    Bound,
    Grant,
    HandOver,
    Keeps,
    Room,
    Sleep,
    Stage,
    VgpuReading,
    Waiting,
    WantReading,
    Why,
    WorkerReading,
    WorkerState,
)
from backend_host.device.spaces_told import SpacesTold, bounded
from backend_host.device.unpacking import Unpacking, made_of
from backend_host.device.words_of_counts import in_words
from backend_host.worker._worker import ffi, lib

MAX_VGPUS: int = lib.FGW_MAX_VGPUS
MAX_WORKERS: int = lib.FGW_MAX_WORKERS
NR_OBJECTS: int = lib.FGW_CONTROL_OBJECTS
"""Shared memory objects of a page, in this order: what is decided, the grant, lives, and each vGPU's own."""
_DECIDED, _GRANT, _LIVES, _OWN = range(4)
_VGPU, _WORKER = Unpacking("struct fgw_vgpu_reading"), Unpacking("struct fgw_worker_reading")
_WANT = Unpacking("struct fgw_demand_reading")
_STATES = {int(each): each for each in WorkerState}
_SLEEPS = {int(each): each for each in Sleep}
_KEEPS = {int(each): each for each in Keeps}
_STAGES = {int(each): each for each in Stage}
_ANY_BOUND = sum(Bound)
_COMMAND_RUN, _COMMAND_PATIENT = 0, 1  # enum fgw_worker_command
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Whoever may write an object could otherwise end all that map it, by making it shorter."""


class ControlPageError(Exception):
    """The shared memory object is no control page of this version, or cannot be mapped."""


class ControlPageFullError(Exception):
    """All slots for vGPUs or workers are taken."""


class ControlPage(SpacesTold, Away):
    """A mapped control page. Made with `create` or `adopt` (a daemon, once) or `open` (a worker's view); close it when done, or use `with`."""

    def __init__(self, page: ffi.CData, objects: Sequence[int] = ()) -> None:
        self._page: ffi.CData | None = page
        self.objects = tuple(objects)
        """Descriptors of its shared memory objects, open for writing; of the daemon's page alone."""
        self.names: dict[int, str] = {}
        """Of vGPUs, by their numbers, for the daemon's log."""

    @classmethod
    def create(cls, slice_ns: int, *, is_preemptive: bool = False) -> ControlPage:
        """Makes a page. ControlPageError when there is no memory or no descriptor left for it.

        `is_preemptive`: the device runs the kernels of several processes in turn, without waiting for their ends.
        """
        with contextlib.ExitStack() as undo:
            objects = []
            for number in range(NR_OBJECTS):
                objects.append(_object(number))
                undo.callback(os.close, objects[-1])
            page = lib.fgw_control_format(objects, slice_ns, is_preemptive)
            if page == ffi.NULL:
                raise ControlPageError(f"cannot make a control page: {_errno_text()}")
            undo.pop_all()
        made = cls(page, objects)
        for fd in objects:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return made

    @classmethod
    def adopt(cls, objects: Sequence[int], kept_slots: Collection[int]) -> ControlPage:
        """The page of a daemon that has died, by its objects, which become this one's. Workers in other slots than `kept_slots` have died, too.
        ControlPageError when it is none of this version; the descriptors are the caller's then."""
        if len(objects) != NR_OBJECTS:
            raise ControlPageError(f"a control page has {NR_OBJECTS} objects, not {len(objects)}")
        page = lib.fgw_control_adopt(list(objects))
        if page == ffi.NULL:
            raise ControlPageError(f"not a control page of version {lib.FGW_CONTROL_VERSION}: {_errno_text()}")
        adopted = cls(page, objects)
        for slot in set(range(MAX_WORKERS)) - set(kept_slots):
            if adopted.worker(slot) is not None:
                adopted.worker_free(slot)
        return adopted

    @classmethod
    def open(cls, objects: Sequence[int], vgpu: int) -> ControlPage:
        """A worker's view of a page, of descriptors as `for_worker` gives them. ControlPageError when it is none, or of another version."""
        if len(objects) != NR_OBJECTS:
            raise ControlPageError(f"a control page has {NR_OBJECTS} objects, not {len(objects)}")
        page = lib.fgw_control_open(list(objects), bounded(vgpu, MAX_VGPUS))
        if page == ffi.NULL:
            raise ControlPageError(f"not a control page of version {lib.FGW_CONTROL_VERSION}: {_errno_text()}")
        return cls(page)

    @contextlib.contextmanager
    def for_worker(self, vgpu: int, slot: int) -> Iterator[tuple[int, ...]]:
        """Descriptors for the worker of the vGPU in this slot: what it may write is open for writing, all else for reading alone.

        Its life is among them (worker/page/lives.h): it is told dead once nobody has that descriptor any more. OSError when there is none left.
        """
        writable = {_GRANT, _OWN + bounded(vgpu, MAX_VGPUS)}
        with contextlib.ExitStack() as opened:
            lent = list(self.objects)
            lent[_LIVES] = lib.fgw_control_worker_begin(self.page, bounded(slot, MAX_WORKERS))
            if lent[_LIVES] < 0:
                raise OSError(ffi.errno, _errno_text())
            opened.callback(os.close, lent[_LIVES])
            for number in set(range(NR_OBJECTS)) - writable - {_LIVES}:
                lent[number] = os.open(f"/proc/self/fd/{lent[number]}", os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, lent[number])
            yield tuple(lent)

    def called(self, vgpu: int) -> str:
        """For a log: the name of a vGPU, or its number where it has none."""
        return self.names.get(vgpu, f"vGPU {vgpu}")

    def close(self) -> None:
        """Unmaps the page, and closes its objects. Safe to repeat; any other call afterwards raises ControlPageError."""
        if self._page is not None:
            lib.fgw_control_close(self._page)
            self._page = None
            for fd in self.objects:
                os.close(fd)

    def __enter__(self) -> ControlPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def page(self) -> ffi.CData:
        """The `struct fgw_control *`, for other C functions of the same module."""
        if self._page is None:
            raise ControlPageError("the control page is closed")
        return self._page

    # vGPUs

    def vgpu_take(self, quota_bytes: int = 0) -> int:
        """A free vGPU slot, its account at zero; its number is the `vgpu` of every other call. ControlPageFullError when none is left."""
        vgpu: int = lib.fgw_control_vgpu_take(self.page, quota_bytes)
        if vgpu < 0:
            raise ControlPageFullError(f"all {MAX_VGPUS} vGPUs are taken")
        return vgpu

    def vgpu_free(self, vgpu: int) -> None:
        """Gives the slot back. Its workers must have ended and been freed; a grant it still holds goes to the next one."""
        lib.fgw_control_vgpu_free(self.page, bounded(vgpu, MAX_VGPUS))

    def set_quota(self, vgpu: int, quota_bytes: int) -> None:
        """Changes the memory quota (0: none). What is allocated already stays."""
        lib.fgw_control_set_quota(self.page, bounded(vgpu, MAX_VGPUS), quota_bytes)

    def set_limit(self, vgpu: int, limit_permille: int) -> None:
        """Changes how much of the GPU it uses at most, in thousandths (0: no limit). What it is to pay back stays."""
        lib.fgw_control_set_share_limit(self.page, bounded(vgpu, MAX_VGPUS), limit_permille)

    def set_limited_until(self, vgpu: int, until_ns: int) -> None:
        """It comes from another Gpu: what it was charged there lasts until then at its limit."""
        lib.fgw_control_set_limited_until(self.page, bounded(vgpu, MAX_VGPUS), until_ns)

    def set_limits(
        self, vgpu: int, *, contexts: int = 0, streams: int = 0, modules: int = 0, image_bytes: int = 0
    ) -> None:
        """How many of each the vGPU's workers may have together (0: as many as they like). What is there already stays."""
        for limited, most in enumerate((contexts, streams, modules, image_bytes)):  # enum fgw_limited
            lib.fgw_control_set_limit(self.page, bounded(vgpu, MAX_VGPUS), limited, most)

    def vgpu(self, vgpu: int) -> VgpuReading | None:
        """The account of one vGPU, or None when the slot is free."""
        return self._vgpu(bounded(vgpu, MAX_VGPUS), ffi.new("struct fgw_vgpu_reading *"))

    def _vgpu(self, vgpu: int, reading: ffi.CData) -> VgpuReading | None:
        """The same, by way of a reading that is written anew."""
        if not lib.fgw_control_vgpu_read(self.page, vgpu, reading):
            return None
        return made_of(VgpuReading, {"vgpu": vgpu, **_VGPU.ones(reading)})

    def vgpus(self) -> list[VgpuReading]:
        """The accounts of all vGPUs there are."""
        room = ffi.new("struct fgw_vgpu_reading *")
        readings = (self._vgpu(vgpu, room) for vgpu in range(MAX_VGPUS))
        return [reading for reading in readings if reading is not None]

    # Workers

    def worker_take(self) -> int:
        """A free worker slot, its counters at zero, in state WARM. The number goes to the worker with --slot."""
        slot: int = lib.fgw_control_worker_take(self.page)
        if slot < 0:
            raise ControlPageFullError(f"all {MAX_WORKERS} worker slots are taken")
        return slot

    def worker_assign(self, slot: int, pid: int, vgpu: int, client: int) -> None:
        """Makes the worker in this slot one of the vGPU's, for this client of its region. Once, before it is given the page."""
        lib.fgw_control_worker_assign(self.page, bounded(slot, MAX_WORKERS), pid, bounded(vgpu, MAX_VGPUS), client)

    def worker_free(self, slot: int) -> None:
        """Repairs (see `repair`) and gives the slot back. Only after the process was reaped."""
        lib.fgw_control_worker_free(self.page, bounded(slot, MAX_WORKERS))

    def repair(self, slot: int) -> None:
        """Takes back what a dead worker held: its bits as a user and as one that waits, its part of the vGPU's memory count, and hands the
        grant on when it was the last user. Only after the process was reaped; safe to repeat. The slot's counters stay readable until
        `worker_free`."""
        lib.fgw_control_repair(self.page, bounded(slot, MAX_WORKERS))

    def has_died(self, slot: int) -> bool:
        """Whether the worker in this slot has ended, or was never given the page; by the kernel's word."""
        return bool(lib.fgw_life_has_ended(self.objects[_LIVES], bounded(slot, MAX_WORKERS)))

    def set_patient(self, slot: int, is_patient: bool) -> None:
        """While its VM is paused a worker must not take a beat that stands still for the end of its client."""
        command = _COMMAND_PATIENT if is_patient else _COMMAND_RUN
        lib.fgw_control_worker_command(self.page, bounded(slot, MAX_WORKERS), command)

    def worker(self, slot: int) -> WorkerReading | None:
        """The counters of one worker, or None when the slot is free."""
        return self._worker(bounded(slot, MAX_WORKERS), ffi.new("struct fgw_worker_reading *"))

    def _worker(self, slot: int, reading: ffi.CData) -> WorkerReading | None:
        """The same, by way of a reading that is written anew."""
        if not lib.fgw_control_worker_read(self.page, slot, reading):
            return None
        told = _WORKER.ones(reading)
        told.update(
            in_words(_WORKER.arrays(reading)),
            slot=slot,
            state=_STATES[told["state"]],
            is_user=bool(told["is_user"]),
            is_waiting=bool(told["is_waiting"]),
            is_suspended=bool(told["is_suspended"]),
            is_displaced=bool(told["is_displaced"]),
            sleep=_SLEEPS[told["sleep"]],
            keeps=_KEEPS.get(told["keeps"], Keeps.NOT),
            stage=_STAGES.get(told["stage"], Stage.RUNS),
            bound=_bound(told["bound"] & _ANY_BOUND),
            phase=_phase(told["phase"]),
            program=told["program"].partition(b"\0")[0].decode("ascii", "replace"),
        )
        return made_of(WorkerReading, told)

    def workers(self) -> list[WorkerReading]:
        """The counters of all workers there are."""
        room = ffi.new("struct fgw_worker_reading *")
        readings = (self._worker(slot, room) for slot in range(MAX_WORKERS))
        return [reading for reading in readings if reading is not None]

    # Grants

    def wait_bell(self, timeout_s: float, seen: int | None = None) -> int:
        """Sleeps, without the GIL, until the bell differs from `seen` or the time is over; returns the bell's value now.

        The bell changes when a worker begins to wait and when the grant changes hands. Pass the value that the last call returned, so that
        no change between two calls is slept over: `seen = page.wait_bell(1.0, seen)`. With None it sleeps until the next change.
        """
        current = self.bell() if seen is None else seen
        bell: int = lib.fgw_control_wait_bell(self.page, current, max(0, int(timeout_s * 1e9)))
        return bell

    def wait_news(self, timeout_s: float, seen: int, active: Collection[int]) -> int:
        """`wait_bell`, until other vGPUs than `active` hold or want the grant: for 30 ms at most once the bell has rung, for 1 ms at least."""
        mask = sum(1 << vgpu for vgpu in set(active))
        bell: int = lib.fgw_control_wait_news(self.page, seen, mask, max(0, int(timeout_s * 1e9)))
        return bell

    def bell(self) -> int:
        """The bell's value now, without waiting."""
        bell: int = lib.fgw_control_bell(self.page)
        return bell

    def ring_bell(self) -> None:
        """Wakes whoever is in `wait_bell`, from another thread of the daemon, say."""
        lib.fgw_control_ring_bell(self.page)

    def backlogged(self) -> list[Waiting]:
        """The vGPUs that wait for the grant, the longest waiting first. The holder itself is not among them."""
        since = ffi.new(f"uint64_t[{MAX_VGPUS}]")
        mask = int(lib.fgw_control_backlogged(self.page, since))
        found = [Waiting(vgpu, since[vgpu]) for vgpu in range(MAX_VGPUS) if mask >> vgpu & 1]
        return sorted(found, key=lambda waiting: (waiting.waiting_since_ns, waiting.vgpu))

    def displaced(self) -> list[Waiting]:
        """The vGPUs that would wait for the grant if their memory were on the device, as `backlogged`."""
        since = ffi.new(f"uint64_t[{MAX_VGPUS}]")
        mask = int(lib.fgw_control_displaced(self.page, since))
        found = [Waiting(vgpu, since[vgpu]) for vgpu in range(MAX_VGPUS) if mask >> vgpu & 1]
        return sorted(found, key=lambda waiting: (waiting.waiting_since_ns, waiting.vgpu))

    def set_capacity(self, capacity_bytes: int, allocatable_bytes: int) -> None:
        """How much linear memory may be on the device, and be allocated, of all vGPUs together; 0: whatever the driver has."""
        lib.fgw_control_set_capacity(self.page, capacity_bytes, allocatable_bytes)

    def set_target(self, slot: int, target_bytes: int) -> None:
        """How much of its linear memory the worker in this slot may have on the device."""
        lib.fgw_control_set_target(self.page, bounded(slot, MAX_WORKERS), target_bytes)

    def set_withheld(self, slot: int, withheld_bytes: int) -> None:
        """How much of what may be on the device others than the worker in this slot have for good: it may allocate the rest."""
        lib.fgw_control_set_withheld(self.page, bounded(slot, MAX_WORKERS), withheld_bytes)

    def set_spare(self, spare_bytes: int) -> None:
        """How much more may stay on the device so that each program still has room there for all of its memory."""
        lib.fgw_control_set_spare(self.page, spare_bytes)

    def counted_again(self, vgpu: int) -> int:
        """Bytes that the vGPU's workers say they count as allocated and others of them, with whom they share them, do too."""
        return int(lib.fgw_control_counted_again(self.page, bounded(vgpu, MAX_VGPUS)))

    def rooms(self) -> list[Room]:
        """What each worker that serves a program has allocated, and has on the device."""
        readings = ffi.new(f"struct fgw_room_reading[{MAX_WORKERS}]")
        nr = lib.fgw_control_rooms(self.page, readings)
        return [
            Room(
                slot=reading.slot,
                vgpu=reading.vgpu,
                allocated_bytes=reading.allocated_bytes,
                resident_bytes=reading.resident_bytes,
                other_bytes=reading.other_bytes,
                target_bytes=reading.target_bytes,
                wants=bool(reading.wants),
                keeps=_KEEPS.get(reading.keeps, Keeps.NOT),
                refused_bytes=reading.refused_bytes,
                is_suspended=bool(reading.is_suspended),
                displaced_since_ns=reading.displaced_since_ns,
            )
            for reading in readings[0:nr]
        ]

    def wants(self) -> list[WantReading]:
        """What each worker that serves a program says of how much that wants the device."""
        readings = ffi.new(f"struct fgw_demand_reading[{MAX_WORKERS}]")
        nr = lib.fgw_control_demands(self.page, readings)
        return [
            WantReading(slot, vgpu, pid, bool(waits), gpu_ns, busy_ns, waited_ns, last_error, stalled_since_ns)
            for slot, vgpu, pid, waits, last_error, gpu_ns, busy_ns, waited_ns, stalled_since_ns in _WANT.each(
                readings, nr
            )
        ]

    def holder(self) -> Grant:
        """Who holds the grant now."""
        reading = ffi.new("struct fgw_grant_reading *")
        lib.fgw_control_grant_read(self.page, reading)
        return Grant(
            vgpu=reading.holder - 1 if reading.holder else None,
            is_closed=bool(reading.is_closed),
            nr_users=reading.nr_users,
            sequence=reading.sequence,
            since_ns=reading.since_ns,
        )

    def hand_overs(self, after: int = 0) -> list[HandOver]:
        """What is kept of the hand-overs after this sequence number, oldest first: of the last 256 at most."""
        readings = ffi.new(f"struct fgw_hand_over_reading[{lib.FGW_NR_HAND_OVERS}]")
        nr = lib.fgw_control_hand_overs(self.page, after & 0xFFFFFFFF, readings)
        return [
            HandOver(
                sequence=reading.sequence,
                at_ns=reading.at_ns,
                from_vgpu=reading.giver - 1 if reading.giver else None,
                to_vgpu=reading.taker - 1 if reading.taker else None,
                why=Why(reading.why),
                phase=_phase(reading.phase) if reading.phase else None,
                gap_ns=reading.gap_ns if reading.is_entered else None,
            )
            for reading in readings[0:nr]
        ]

    def set_standing(self, vgpu: int, standing: float, per_ns: float, charged_ns: int, budget_ns: int = 0) -> None:
        """Publishes how the vGPU stands among those that wait: at hand-over the least goes first, of equals who has waited longest.

        `standing` is what it is with `charged_ns` (see `VgpuReading`); with each ns charged beyond that it grows by `per_ns`. `budget_ns`: how
        long its turn may last while others wait, 0 for a slice.
        """
        own = standing - per_ns * charged_ns
        lib.fgw_control_set_standing(self.page, bounded(vgpu, MAX_VGPUS), own, per_ns, budget_ns)

    def standing(self, vgpu: int) -> float:
        """The vGPU's standing with what it was charged up to now; infinite before any was published."""
        return float(lib.fgw_control_standing(self.page, bounded(vgpu, MAX_VGPUS)))

    def evict(self, sequence: int) -> bool:
        """Takes the grant from a holder that overran, work in flight or not, and hands it on; False when nobody else waits, or when it has been
        handed on since: `sequence` is of the holder that was judged, and who got it since is not to lose it.

        What it has in flight goes on beside the next holder and is charged to it as before; it must ask again before it submits more.
        """
        return bool(lib.fgw_control_evict(self.page, sequence))

    def audit(self) -> Audit:
        """What workers say of themselves, beside what the grant says of them."""
        seen = ffi.new("struct fgw_audit *")
        lib.fgw_audit_look(self.page, seen)
        return Audit(seen)

    def mend(self, before: Audit, now: Audit) -> int:
        """Mends of the grant what both looks found wrong and is so still; how many words that changed."""
        nr_words: int = lib.fgw_audit_mend(self.page, before.seen, now.seen)
        return nr_words

    def set_unused(self, nr_unused: Sequence[int]) -> None:
        """Puts back how many grants each vGPU did not use."""
        for vgpu, number in enumerate(nr_unused):
            lib.fgw_audit_set_unused(self.page, bounded(vgpu, MAX_VGPUS), number)

    def take_grant(self, word: int, *, is_used: bool) -> bool:
        """`evict`, if the grant is still as this word says. `is_used`: its holder came for it."""
        return bool(lib.fgw_audit_take(self.page, word, is_used))

    @property
    def is_preemptive(self) -> bool:
        """Whether the device runs the kernels of several processes in turn, without waiting for their ends."""
        return bool(lib.fgw_control_is_preemptive(self.page))

    @property
    def slice_ns(self) -> int:
        """How long a holder may keep the GPU while others wait."""
        slice_ns: int = lib.fgw_control_slice_ns(self.page)
        return slice_ns

    def set_slice_ns(self, slice_ns: int) -> None:
        """Changes the slice from the next look at the clock on."""
        lib.fgw_control_set_slice_ns(self.page, slice_ns)


_bound = lru_cache(Bound)


@lru_cache(maxsize=32)
def _phase(number: int) -> str:
    return str(ffi.string(lib.fgw_phase_word(number)).decode("ascii"))


def _object(number: int) -> int:
    """A shared memory object of a page, empty."""
    shared = {_DECIDED: "fairgv-decided", _GRANT: "fairgv-grant", _LIVES: "fairgv-lives"}
    name = shared.get(number, f"fairgv-vgpu-{number - _OWN}")
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o600)
    return fd


def _errno_text() -> str:
    return os.strerror(ffi.errno)
