"""What of the table of vGPUs changes when one changes its Gpu while its programs run (move/moving.py has the order of steps).

Whatever a daemon leaves that dies meanwhile the next one can use. Up to `begin_change` the vGPU is where it was, and its place on the other Gpu
has no record. From then until `relocate` nobody knows on which device its programs are, and its record says so: the next daemon ends them.
Once its record is another Gpu's its programs are there; one that was not told of it yet ends with the daemon that was to tell it.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from backend_host.device.gpu import Gpu, place
from backend_host.device.readings import Motion
from backend_host.errors import RefusedError
from backend_host.rehousing import Rehousing, known
from backend_host.service.journal import about
from backend_host.vgpu import Place, VGpu
from backend_host.worker_process import WorkerProcess

log = logging.getLogger("fairgv.vgpus")


class Relocating(Rehousing):
    """The table, as far as vGPUs that live change their places. Thread-safe."""

    def reserve(self, vgpu: VGpu, gpu: Gpu) -> Place:
        """A place there, which it has beside its own until `give_up` or `relocate`. RefusedError where it does not fit."""
        with self._lock:
            self._check_there(vgpu)
            wanted = replace(vgpu.entitlement, gpu=str(gpu.number))
            vgpu.coming = Place(*place(self._gpus, wanted, self._entitlements_on, known))
            return vgpu.coming

    def give_up(self, vgpu: VGpu) -> None:
        """The counterpart: it stays where it is. Nothing where it is there already."""
        with self._lock:
            if vgpu.coming is not None:
                vgpu.coming.gpu.page.vgpu_free(vgpu.coming.index)
                vgpu.coming = None

    def set_motion(self, vgpu: VGpu, motion: Motion) -> None:
        """What its workers are to do. RefusedError when it has gone."""
        with self._lock:
            self._check_there(vgpu)
            vgpu.gpu.page.set_motion(vgpu.index, motion)

    def stay(self, vgpu: VGpu) -> None:
        """Its workers go on as before. Nothing when it has gone."""
        with self._lock:
            if self._vgpus.get(vgpu.name) is vgpu:
                vgpu.gpu.page.set_motion(vgpu.index, Motion.NONE)

    def begin_change(self, vgpu: VGpu) -> None:
        """From now on nobody knows where its programs are, until `end_change` or `relocate`. RefusedError when it has gone."""
        with self._lock:
            self._check_there(vgpu)
            vgpu.is_changing = True
            self._keep(vgpu)

    def end_change(self, vgpu: VGpu) -> None:
        """They are where they were. Nothing when it has gone."""
        with self._lock:
            vgpu.is_changing = False
            if self._vgpus.get(vgpu.name) is vgpu:
                self._keep(vgpu)

    def relocate(self, vgpu: VGpu, slots: Mapping[WorkerProcess, int], more_bytes: int) -> list[WorkerProcess]:
        """Its programs are on the other Gpu's device: it is there from now on, with these workers, in slots that are reserved. Gives those that
        are to be told; the others have ended. `more_bytes`: as `allow_memory` has it. RefusedError when it has gone, or that Gpu has failed."""
        with self._lock:
            self._check_there(vgpu)
            to, before = vgpu.coming, vgpu.gpu
            if to is None or to.gpu.failure is not None:
                raise RefusedError("the Gpu that it goes to has failed")
            is_suspended = any(reading.is_suspended for worker in slots if (reading := worker.reading()) is not None)
            there = [
                worker
                for worker, slot in slots.items()
                if to.gpu.workers.take_over(worker, before.workers, slot, to.index, vgpu.name, more_bytes)
            ]
            vgpu.coming, vgpu.is_changing = None, False
            self._go(vgpu, to)
            to.gpu.page.set_suspended(to.index, is_suspended=is_suspended)
            return there

    def leave_behind(self, vgpu: VGpu, place: Place) -> None:
        """Frees the place that it had. Its workers use it no more."""
        gpu = place.gpu
        with self._lock:
            account = gpu.page.vgpu(place.index)
            gpu.retired_ns += account.used_ns if account is not None else 0
            gpu.behind_ns.pop(place.index, None)
            self._store.put(gpu.item, gpu.record().written())
            gpu.page.set_motion(place.index, Motion.NONE)
            gpu.page.vgpu_free(place.index)
            log.info("vGPU %s is on GPU %d now", vgpu.name, vgpu.gpu.number, extra=about(vgpu.name))
