"""GPU-centric coscheduling of vCPU and vGPU (paper, sections 3.2.3 and 4.3), from user space on a stock kernel.

Who needs it, who is boosted and for how long is decided in C, in a thread of its own (device/boost.h); here it learns whose threads there are,
and with which of the kernel's means each can be boosted. A vGPU whose threads cannot be boosted works as before, and `status` says why.
"""

import logging
import os
import threading
from dataclasses import dataclass, replace

from backend_host import boost_ways
from backend_host.boost_ways import WAYS, Boost
from backend_host.device.control import ControlPage
from backend_host.service.journal import about
from backend_host.statistics import CoschedulingStatistics
from backend_host.vm.vcpus import QemuThreads
from backend_host.worker._worker import ffi, lib

BOOST_LIMIT_NS = 2_000_000
"""No boost lasts longer: a real-time thread keeps its CPU from all others."""
OFF, BEST = "off", "best"

log = logging.getLogger("fairgv.coscheduling")


@dataclass(frozen=True)
class _Member:
    """How a vGPU's threads are boosted: `way` is its name, or why there is none. `who`: a machine's threads, a user, or nobody. `before`: how
    often they were boosted on other Gpus, and in vain."""

    way: str
    is_boosted: bool
    who: QemuThreads | int | None = None
    before: tuple[int, int] = (0, 0)


class Coscheduler:
    """One booster over one control page. Thread-safe; `start` once, `stop` once, before the page is closed."""

    def __init__(self, page: ControlPage, choice: str = BEST) -> None:
        self._ways = [] if choice == OFF else [way for way in WAYS if choice in (BEST, way.name)]
        self._booster: ffi.CData = lib.fgw_booster_new(page.page, BOOST_LIMIT_NS)
        if self._booster == ffi.NULL:
            raise MemoryError("no memory for the booster")
        self._members: dict[int, _Member] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="coscheduling", daemon=True)

    def start(self) -> None:
        """Begins to boost."""
        self._thread.start()

    def rest(self) -> None:
        """Nobody is boosted any more."""
        lib.fgw_booster_stop(self._booster)
        if self._thread.ident is not None:
            self._thread.join()

    def stop(self) -> None:
        """The counterpart of `start`."""
        self.rest()
        with self._lock:
            lib.fgw_booster_free(self._booster)
            self._booster = ffi.NULL  # nothing asks for more than statistics by now

    def add_machine(self, vgpu: int, name: str, threads: QemuThreads) -> None:
        """The vGPU's virtual machine has started: its vCPUs are these."""
        for tid in threads.tids:
            if tid and lib.fgw_boost_clear_left_over(tid):
                log.info("%s: a vCPU that an earlier daemon left boosted is normal again", name, extra=about(name))
        boost = boost_ways.choose(next(tid for tid in threads.tids if tid), self._ways)
        with self._lock:
            if isinstance(boost, Boost):
                boost = self._set_vcpus(vgpu, boost, threads)
            self._note(vgpu, name, boost, threads)

    def add_user(self, vgpu: int, name: str, uid: int) -> None:
        """A vGPU of programs of this host, of this user. Which thread waits is known only when it does; so what works here is taken."""
        boost = boost_ways.choose(threading.get_native_id(), self._ways)
        with self._lock:
            if isinstance(boost, Boost):
                lib.fgw_booster_set_user(self._booster, vgpu, boost.native(), uid)
            self._note(vgpu, name, boost, uid)

    def add_none(self, vgpu: int, reason: str) -> None:
        """The vGPU's threads are not to be boosted, or cannot be."""
        self.remove(vgpu)
        with self._lock:
            self._members[vgpu] = _Member(reason, is_boosted=False)

    def take_over(self, vgpu: int, name: str, before: "Coscheduler", number: int) -> None:
        """A vGPU comes from another Gpu, where it had this number: what is known of its threads there holds here."""
        with before._lock:
            member, counts = before._members.get(number), before._counts(number)
        before.remove(number)
        if member is None:
            return
        if isinstance(member.who, QemuThreads):
            self.add_machine(vgpu, name, member.who)
        elif isinstance(member.who, int):
            self.add_user(vgpu, name, member.who)
        else:
            self.add_none(vgpu, member.way)
        with self._lock:
            self._members[vgpu] = replace(self._members[vgpu], before=counts)

    def remove(self, vgpu: int) -> None:
        """Its threads are gone, or no concern of ours any more."""
        with self._lock:
            self._members.pop(vgpu, None)
            if self._booster != ffi.NULL:
                lib.fgw_booster_clear(self._booster, vgpu)

    def statistics(self, vgpu: int) -> CoschedulingStatistics:
        """Of one vGPU."""
        with self._lock:
            member = self._members.get(vgpu, _Member("its machine is off", is_boosted=False))
            return CoschedulingStatistics(member.way, member.is_boosted, *self._counts(vgpu))

    def _counts(self, vgpu: int) -> tuple[int, int]:
        """How often its threads were boosted, and in vain; with the lock held."""
        counts = ffi.new("uint64_t[2]")
        if self._booster != ffi.NULL:
            lib.fgw_booster_read(self._booster, vgpu, counts, counts + 1)
        before = self._members[vgpu].before if vgpu in self._members else (0, 0)
        return int(counts[0]) + before[0], int(counts[1]) + before[1]

    def _set_vcpus(self, vgpu: int, boost: Boost, threads: QemuThreads) -> Boost | str:
        """The booster has the process's descriptor from now on. A process that has ended is a reason, not an error."""
        try:
            pidfd = os.pidfd_open(threads.pid)
        except OSError as error:
            return f"QEMU has ended: {error.strerror}"
        tids = list(threads.tids)
        if lib.fgw_booster_set_vcpus(self._booster, vgpu, boost.native(), pidfd, tids, len(tids)):
            return boost
        os.close(pidfd)
        return "more vCPUs than can be looked after"

    def _note(self, vgpu: int, name: str, boost: Boost | str, who: QemuThreads | int) -> None:
        is_boosted = isinstance(boost, Boost)
        way = boost.name if isinstance(boost, Boost) else boost
        self._members[vgpu] = _Member(way, is_boosted, who)
        if is_boosted:
            log.info("%s: who waits for the GPU is boosted by %s", name, way, extra=about(name))
        else:
            log.info("%s is not coscheduled: %s", name, way, extra=about(name))

    def _run(self) -> None:
        lib.fgw_booster_run(self._booster)
