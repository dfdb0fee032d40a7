"""What becomes of vGPUs whose Gpu has failed: their programs end with the device's error, and those to come are served elsewhere.

A vGPU goes where a new one of its entitlement would, but for one that is to be on that Gpu and no other. What it was charged stays behind, and
so does its number there: nobody else comes to a Gpu that has failed. What it is to pay back of its limit goes along, and what it took out of
turn.

Wrong when: a worker is held by its driver and does not end. Its program has its error all the same.
"""

import itertools
import logging
from collections.abc import Callable

from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu, place
from backend_host.devices import with_quota
from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.service.journal import about
from backend_host.vgpu import Place, VGpu
from backend_host.vgpu_making import Making
from backend_host.vgpu_table import VGpuTable
from backend_host.worker_process import stop_all
from ivshmem.region import RegionSizeError
from scheduler.placement import Known

log = logging.getLogger("fairgv.vgpus")


class Rehousing(VGpuTable):
    """The table, as far as places change. Thread-safe."""

    _making: Making
    is_beginning: bool = False
    """The daemon has just begun: who asks for a Gpu by name was there before, and comes back to one that is drained."""
    settle: Callable[[VGpu], None] = staticmethod(lambda _: None)
    """Waits for the end of what moves this vGPU to another Gpu; its programs have ended."""

    def place(self, entitlement: Entitlement) -> Place:
        """For a new vGPU, with the lock held: on a Gpu that is in order. RefusedError where there is none."""
        is_back = self.is_beginning and bool(entitlement.gpu)
        return Place(*place(self._gpus, entitlement, self._entitlements_on, lambda gpu: known(gpu, is_back=is_back)))

    def gpu_failed(self, gpu: Gpu, failure: Failure) -> None:
        """Ends what runs there, all of it at once, and finds other places. One that is on its way is waited for when the others have theirs."""
        with self._lock:
            vgpus = self._on(gpu)
        for vgpu in vgpus:
            vgpu.caretaker.hold()
        gpu.workers.close()
        failed = [vgpu.caretaker.fail_all(failure.code) for vgpu in vgpus if vgpu.gpu is gpu]
        stop_all(itertools.chain.from_iterable(failed))
        for vgpu in sorted(vgpus, key=lambda vgpu: vgpu.coming is not None):
            self.settle(vgpu)
            with self._lock:
                if self._vgpus.get(vgpu.name) is not vgpu:
                    continue
                if vgpu.gpu is gpu:
                    self._leave(vgpu, failure)
                else:
                    vgpu.caretaker.release()

    def rehouse_stranded(self) -> None:
        """Finds places for vGPUs whose Gpu has failed and that found none then: others may have left room since."""
        with self._lock:
            for vgpu in self._vgpus.values():
                if vgpu.stranded and (failure := vgpu.gpu.failure) is not None:
                    vgpu.caretaker.hold()
                    self._leave(vgpu, failure)

    def _leave(self, vgpu: VGpu, failure: Failure) -> None:
        """With the lock held."""
        before = vgpu.gpu
        try:
            self._rehouse(vgpu)
        except FairGVError as error:
            self._strand(vgpu, before, failure, str(error))
        except Exception as error:  # others are to have their places all the same
            log.exception("vGPU %s: no place could be looked for", vgpu.name, extra=about(vgpu.name))
            self._strand(vgpu, before, failure, f"a mistake of FairGV's: {error!r}")
        else:
            vgpu.stranded = ""
            log.warning("vGPU %s is on GPU %d now", vgpu.name, vgpu.gpu.number, extra=about(vgpu.name))

    @staticmethod
    def _strand(vgpu: VGpu, before: Gpu, failure: Failure, what: str) -> None:
        """Said once."""
        why = f"GPU {before.number} has failed ({failure.reason}), and it goes nowhere else: {what}"
        vgpu.caretaker.strand(why)
        if why != vgpu.stranded:
            log.error("vGPU %s: %s", vgpu.name, why, extra=about(vgpu.name))
        vgpu.stranded = why

    def _rehouse(self, vgpu: VGpu) -> None:
        if vgpu.entitlement.gpu:
            raise RefusedError(
                f"it is to be on GPU {vgpu.entitlement.gpu}; fairgv-host detach and attach give it another"
            )
        found = self.place(vgpu.entitlement)
        try:
            vgpu.region.set_facts(with_quota(found.gpu.device.facts, vgpu.entitlement.quota_bytes))
        except RegionSizeError as error:
            found.gpu.page.vgpu_free(found.index)
            raise RefusedError(f"GPU {found.gpu.number} is of another kind: {error}") from error
        vgpu.made_on = found.gpu.device
        self._go(vgpu, found)
        vgpu.caretaker.release()

    def _go(self, vgpu: VGpu, to: Place) -> None:
        """It is at this place from now on, with all that it is entitled to, and what it was charged is kept; with the lock held."""
        before, number, item = vgpu.gpu, vgpu.index, vgpu.item
        account = before.page.vgpu(number)
        if account is not None:
            vgpu.earlier = vgpu.earlier.plus(account)
        before.keeper.leave(number)
        out_of_turn = before.space_looks.urgent.leave(number)
        before.spaces.leave(number)
        before.page.names.pop(number, None)
        vgpu.gpu, vgpu.index = to.gpu, to.index
        to.gpu.page.names[to.index] = vgpu.name
        to.gpu.page.set_quota(to.index, vgpu.entitlement.quota_bytes)
        to.gpu.page.set_limits(to.index, **self._limits.of_workers())
        to.gpu.page.set_limit(to.index, vgpu.entitlement.limit_permille)
        if account is not None:
            to.gpu.page.set_limited_until(to.index, account.limited_until_ns)
        to.gpu.keeper.join(to.index, vgpu.entitlement)
        to.gpu.spaces.join(to.index, vgpu.entitlement)
        if out_of_turn is not None:
            to.gpu.space_looks.urgent.join(to.index, out_of_turn)
        if debt_ns := self.debts.left_ns(vgpu.debtor, self._all_used_ns()):
            to.gpu.keeper.indebt(to.index, debt_ns)
        to.gpu.coscheduler.take_over(to.index, vgpu.name, before.coscheduler, number)
        vgpu.window.move(to.gpu.number, to.index)
        if account is not None:
            before.behind_ns[number] = account.used_ns
            self._store.put(before.item, before.record().written())
        self._store.put(vgpu.item, vgpu.record().written(), [vgpu.region.fileno()], drop=[item])
        vgpu.caretaker.move(self._making.home(to, vgpu.region, vgpu.wake, vgpu.made_on.facts))


def known(gpu: Gpu, *, is_back: bool = False) -> Known:
    """Of a Gpu that may get a vGPU; `is_back`: which was there before."""
    return Known(gpu.demand(), why_out(gpu, is_back=is_back))


def why_out(gpu: Gpu, *, is_back: bool = False) -> str:
    """Why it takes no vGPU, or none that was not there before; "": it does."""
    if gpu.failure is not None:
        return f"out, as it has failed: {gpu.failure.reason}"
    return f"drained (until fairgv-host undrain {gpu.number})" if gpu.is_drained and not is_back else ""
