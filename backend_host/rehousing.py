"""What becomes of vGPUs whose Gpu has failed: their programs end with the device's error, and those to come are served elsewhere.

A vGPU goes where a new one of its entitlement would, but for one that is to be on that Gpu and no other. What it was charged stays behind, and
so does its number there: nobody else comes to a Gpu that has failed.

Wrong when: a worker is held by its driver and does not end. Its program has its error all the same.
"""

import logging

from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu, place
from backend_host.devices import with_quota
from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.service.journal import about
from backend_host.vgpu import VGpu
from backend_host.vgpu_making import Making, Place
from backend_host.vgpu_table import VGpuTable
from ivshmem.region import RegionSizeError
from scheduler.placement import Known

log = logging.getLogger("fairgv.vgpus")
_LATER = "its Gpu failed: its threads are boosted from the machine's next start on"


class Rehousing(VGpuTable):
    """The table, as far as places change. Thread-safe."""

    _making: Making

    def place(self, entitlement: Entitlement) -> Place:
        """For a new vGPU, with the lock held: on a Gpu that is in order. RefusedError where there is none."""
        return Place(*place(self._gpus, entitlement, self._entitlements_on, _known))

    def gpu_failed(self, gpu: Gpu, failure: Failure) -> None:
        """Ends what runs there, and finds other places."""
        with self._lock:
            vgpus = self._on(gpu)
        for vgpu in vgpus:
            vgpu.caretaker.hold()
        gpu.workers.close()
        for vgpu in vgpus:
            vgpu.caretaker.end_all(failure.code)
        for vgpu in vgpus:
            with self._lock:
                if self._vgpus.get(vgpu.name) is vgpu:
                    self._leave(vgpu, failure)

    def _leave(self, vgpu: VGpu, failure: Failure) -> None:
        """With the lock held."""
        before = vgpu.gpu
        try:
            self._rehouse(vgpu)
        except FairGVError as error:
            vgpu.stranded = f"GPU {before.number} has failed ({failure.reason}), and it goes nowhere else: {error}"
            vgpu.caretaker.strand(vgpu.stranded)
            log.error("vGPU %s: %s", vgpu.name, vgpu.stranded, extra=about(vgpu.name))
            return
        log.warning("vGPU %s is on GPU %d now", vgpu.name, vgpu.gpu.number, extra=about(vgpu.name))

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
        item = vgpu.item
        self._move_out(vgpu)
        vgpu.gpu, vgpu.index = found.gpu, found.index
        self._move_in(vgpu)
        vgpu.window.move(found.gpu.number, found.index)
        self._store.put(vgpu.item, vgpu.record().written(), [vgpu.region.fileno()], drop=[item])
        vgpu.caretaker.move(self._making.home(found, vgpu.region, vgpu.wake))

    def _move_out(self, vgpu: VGpu) -> None:
        vgpu.gpu.coscheduler.remove(vgpu.index)
        vgpu.gpu.keeper.leave(vgpu.index)
        vgpu.gpu.page.names.pop(vgpu.index, None)

    def _move_in(self, vgpu: VGpu) -> None:
        gpu, index = vgpu.gpu, vgpu.index
        gpu.page.names[index] = vgpu.name
        gpu.page.set_limits(index, **self._limits.of_workers())
        gpu.page.set_limit(index, vgpu.entitlement.limit_permille)
        gpu.keeper.join(index, vgpu.entitlement)
        if debt_ns := self.debts.left_ns(vgpu.debtor, self._all_used_ns()):
            gpu.keeper.charge(index, debt_ns)
        if vgpu.kind == "session":
            gpu.coscheduler.add_user(index, vgpu.name, vgpu.uid)
        else:
            gpu.coscheduler.add_none(index, _LATER)


def _known(gpu: Gpu) -> Known:
    """Of a Gpu that may get a vGPU."""
    return Known(gpu.demand(), "" if gpu.failure is None else f"out, as it has failed: {gpu.failure.reason}")
