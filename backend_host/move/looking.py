"""What a plan is made of, as it is now."""

from collections.abc import Sequence
from dataclasses import replace

from backend_host.config import Config
from backend_host.device.control import MAX_VGPUS
from backend_host.device.gpu import Gpu, find
from backend_host.device.readings import Bound, WorkerReading, WorkerState
from backend_host.entitlement import WHOLE
from backend_host.move.plan import Plan, Side, Traveller, make_plan
from backend_host.move.words import AUTO, CHECKPOINT
from backend_host.rehousing import why_out
from backend_host.suspension import host_left
from backend_host.vgpu import VGpu
from backend_host.vgpu_table import VGpuTable
from backend_host.worker_process import WorkerProcess
from scheduler.placement import Candidate, Wish

_KNOWN_S = 30.0
"""After the daemon's start, when trials of the mover are waited for."""


def plan_now(vgpus: VGpuTable, gpus: Sequence[Gpu], config: Config, name: str, to: str, mover: str = AUTO) -> Plan:
    """How the vGPU of this name would move to the Gpu that is called so. RefusedError says why it cannot."""
    vgpu, target = vgpus.named(name), find(gpus, to)
    others = vgpus.others(vgpu)
    traveller = _traveller(vgpu, target, host_left(vgpus, vgpu, config))
    is_bound = traveller.is_bound or target.capacity.is_short
    if traveller.programs and target is not vgpu.gpu and (mover == CHECKPOINT or not target.start.sees or is_bound):
        for gpu in (vgpu.gpu, target):
            gpu.mover.wait(_KNOWN_S)
    return make_plan(traveller, side(vgpu.gpu, others), side(target, others), mover)


def side(gpu: Gpu, vgpus: Sequence[VGpu]) -> Side:
    """The Gpu with those of these vGPUs that are on it, or on their way there."""
    coming = [vgpu for vgpu in vgpus if vgpu.coming is not None and vgpu.coming.gpu is gpu]
    there = [vgpu for vgpu in vgpus if vgpu.gpu is gpu] + coming
    capacity, device = gpu.capacity, gpu.device
    allocatable = capacity.allocatable or device.memory_bytes
    candidate = Candidate(
        gpu.number,
        gpu.demand(),
        weight=sum(vgpu.entitlement.weight for vgpu in there),
        memory_left=allocatable - sum(vgpu.entitlement.quota_bytes for vgpu in there),
        request_left=WHOLE - sum(vgpu.entitlement.request for vgpu in there),
        places_left=MAX_VGPUS - len(gpu.page.vgpus()),
        out=why_out(gpu),
    )
    programs = [program for vgpu in there for program in programs_of(vgpu)]
    return Side(
        candidate,
        device.name,
        device.capability,
        device.memory_bytes,
        gpu.keeper.policy_name,
        gpu.keeper.takes_requests,
        no_mover=gpu.mover.why_not,
        context_bytes=device.context_bytes,
        has_fast_moves=bool(gpu.start.sees),
        failed="" if gpu.failure is None else gpu.failure.reason,
        left_bytes=None
        if capacity.is_short
        else device.memory_bytes - _taken(gpu, [vgpu for vgpu in vgpus if vgpu.gpu is gpu], coming),
        allocatable_left_bytes=capacity.allocatable
        - sum(min(program.allocated_bytes, capacity.resident) for program in programs)
        if capacity.allocatable
        else None,
        movable_bytes=capacity.resident if capacity.is_short else None,
        unfixed_bytes=device.memory_bytes - sum(program.fixed_bytes for program in programs),
        largest_bytes=max((min(program.linear_bytes, capacity.resident) for program in programs), default=0),
    )


def _traveller(vgpu: VGpu, target: Gpu, host_left_bytes: int) -> Traveller:
    wish = Wish(vgpu.entitlement.quota_bytes, vgpu.entitlement.request)
    programs = [_towards(target, worker, reading) for worker, reading in _serving(vgpu)]
    return Traveller(vgpu.name, wish, programs, vgpu.entitlement.space, host_left_bytes)


def _towards(target: Gpu, worker: WorkerProcess, reading: WorkerReading) -> WorkerReading:
    """One that an earlier daemon began may see other devices than those of today."""
    sees_it = worker.ordinal_of(target.device.uuid) is not None
    return reading if sees_it else replace(reading, bound=reading.bound | Bound.DEVICE)


def _taken(gpu: Gpu, there: Sequence[VGpu], coming: Sequence[VGpu]) -> int:
    """Of the device's memory, by all that are there, and by those that are to come; not what is off it while vGPUs are suspended."""
    taken = sum(account.memory_bytes for account in gpu.page.vgpus())
    away = sum(program.away_bytes for vgpu in there for program in programs_of(vgpu))
    return taken - away + sum(program.memory_bytes for vgpu in coming for program in programs_of(vgpu))


def programs_of(vgpu: VGpu) -> list[WorkerReading]:
    """That it serves now."""
    return [reading for _, reading in _serving(vgpu)]


def _serving(vgpu: VGpu) -> list[tuple[WorkerProcess, WorkerReading]]:
    readings = [(worker, worker.reading()) for worker in vgpu.caretaker.workers() if not worker.is_counted]
    return [(worker, each) for worker, each in readings if each is not None and each.state is WorkerState.SERVING]
