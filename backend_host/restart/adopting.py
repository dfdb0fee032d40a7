"""A new daemon takes over vGPUs and the workers of their programs from one that died. What cannot be taken over costs its own vGPU alone.

Of a worker the page and the kernel say how far it had come. One whose life is over (worker/page/lives.h) has ended, or was never told of its
client: then the client waits still, and gets another. One that was taken off a device when the daemon died, or may have been, is ended.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from backend_host.device.gpu import Gpu
from backend_host.device.readings import Motion, WorkerReading
from backend_host.errors import RefusedError
from backend_host.move.root import keep_own
from backend_host.restart.left import Left, has_ended
from backend_host.restart.records import PieceRecord, SpaceRecord, VGpuRecord, WorkerRecord
from backend_host.service.journal import about
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.errors import VmError
from ivshmem.bells import Bells

log = logging.getLogger("fairgv.restart")


@dataclass
class Adopted:
    """What came of it: names of vGPUs, how many programs they have, and why others are lost, by name."""

    vgpus: list[str] = field(default_factory=list)
    nr_programs: int = 0
    lost: dict[str, str] = field(default_factory=dict)


def adopt(
    left: Left, gpus: Sequence[Gpu], vgpus: VGpuRegistry, find_bells: Callable[[str, int], Bells | None]
) -> Adopted:
    """Takes over what is left on these Gpus, whose pages were. `find_bells`: those of a domain's region, by its name and descriptor."""
    adopted = Adopted()
    served = {gpu.number for gpu in gpus}
    for name, space in left.of(SpaceRecord):
        for gpu in gpus:
            if gpu.number == space.gpu:
                gpu.spaces.recall(space.name, left.take(name)[0])
    for _, record in left.of(VGpuRecord):
        if record.gpu not in served:
            adopted.lost[record.name] = f"GPU {record.gpu} is not served as it was"
    for gpu in gpus:
        entitlements = {}
        for name, record in left.of(VGpuRecord):
            if record.gpu != gpu.number:
                continue
            try:
                entitlements[record.index] = record.entitled()
                adopted.nr_programs += _adopt_one(left, name, record, gpu, vgpus, find_bells)
                adopted.vgpus.append(record.name)
            except (RefusedError, VmError) as error:
                del entitlements[record.index]
                adopted.lost[record.name] = str(error)
                text = "vGPU %s is not taken over from the daemon before, its programs are ended: %s"
                log.error(text, record.name, error, extra=about(record.name))
        _clear(left, gpu, entitlements.keys())
        gpu.spaces.forget()
        gpu.keeper.adopt(entitlements)
    for vgpu in vgpus.all():
        others = [gpu.device for gpu in gpus if gpu is not vgpu.gpu] if vgpu.gpu.has_roots else []
        for worker in vgpu.caretaker.workers():
            keep_own(worker.process, others)
    return adopted


def _adopt_one(
    left: Left,
    name: str,
    record: VGpuRecord,
    gpu: Gpu,
    vgpus: VGpuRegistry,
    find_bells: Callable[[str, int], Bells | None],
) -> int:
    """How many programs it has. RefusedError or VmError: why it is not to be had."""
    if gpu.page.vgpu(record.index) is None:
        raise RefusedError("it was just about to go")
    [memory] = left.items[name].fds
    bells = find_bells(record.shm_name, memory) if record.has_bells else None
    left.take(name)
    vgpu = vgpus.adopt(record, gpu, memory, bells)
    gpu.page.set_motion(record.index, Motion.NONE)
    living, ended = _living(left, record, gpu)
    for reading in ended:
        vgpu.count(reading)
    workers = {
        worker.client: gpu.workers.adopt(worker, left.take(each), record.name, vgpu.caretaker.worker_ended)
        for each, worker in living
    }
    pieces = [
        (name, piece) for name, piece in left.of(PieceRecord) if (piece.gpu, piece.vgpu) == (gpu.number, record.index)
    ]
    try:
        vgpu.window.adopt([(piece, left.take(name)[0]) for name, piece in pieces], list(workers.values()))
    except (OSError, ValueError) as error:
        log.warning("vGPU %s: the memory behind its region is lost: %s", record.name, error, extra=about(record.name))
    vgpu.caretaker.adopt(workers)
    return len(workers)


def _living(left: Left, record: VGpuRecord, gpu: Gpu) -> tuple[list[tuple[str, WorkerRecord]], list[WorkerReading]]:
    """The workers of a vGPU that serve, with their names, and the last readings of those that do not. These are ended, if they have not."""
    living: list[tuple[str, WorkerRecord]] = []
    ended = []
    for name, worker in left.of(WorkerRecord):
        if (worker.gpu, worker.vgpu) != (gpu.number, record.index):
            continue
        reading = gpu.page.worker(worker.slot)
        told = (worker.vgpu, worker.client, worker.pid)
        is_told = reading is not None and (reading.vgpu, reading.client, reading.pid) == told
        is_only = all(other.client != worker.client for _, other in living)
        has_gone = gpu.page.has_died(worker.slot) or has_ended(left.items[name].fds[0])
        if is_told and is_only and not has_gone and not record.is_changing:
            living.append((name, worker))
            continue
        left.end_worker(name)
        if reading is not None:
            ended += [reading] if is_told else []
            gpu.page.worker_free(worker.slot)
    return living, ended


def _clear(left: Left, gpu: Gpu, kept: Collection[int]) -> None:
    """Frees what nobody has taken over on this Gpu. What it used stays used; a vGPU without an item was counted as it went."""
    for name, slot in left.workers(gpu.number).items():
        left.end_worker(name)
        gpu.page.worker_free(slot)
    for account in gpu.page.vgpus():
        if account.vgpu not in kept:
            gpu.retired_ns += account.used_ns if f"vgpu/{gpu.number}/{account.vgpu}" in left.names else 0
            gpu.page.vgpu_free(account.vgpu)
