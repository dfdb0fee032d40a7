"""What `fairgv-host list` shows: the vGPUs, and the domains that have the device and no vGPU, or a vGPU that their guest has not got yet; and
other virtual machines that are to have a vGPU.

It is one list, as `virsh list` is: who looks for a domain finds it, and why its programs find no GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend_host.entitlement import PARAMETERS, Entitlement
from backend_host.machines import MachineSight
from backend_host.service.kept import Waiting
from backend_host.statistics import GpuStatistics, VGpuStatistics
from backend_host.vm.domain import Sight

UNKNOWN = "unknown"
"""The state of a domain while libvirt does not answer."""
_BANNED = "it is banned, as its kernels did not end; forgive it with: fairgv-host unban {name}"
_CUT = "the file of its memory was cut short by who owns it; shut the machine down and start it again"
_LATER = "its guest runs without the device; it is served from its next start on"
_NO_DEVICE = "it has no vGPU; give it one with: fairgv-host attach {name}"
_NOT_ATTACHED = (
    'its definition has the device, and this daemon serves only what was attached by command (adopt = "attached"): start the daemon with '
    'adopt = "all" in its configuration, or fairgv-host detach {name}, then attach'
)


@dataclass(frozen=True)
class Listed:
    """A vGPU, a domain, or another virtual machine. What is not known, as it has no entitlement or no place on a Gpu, is None."""

    name: str
    kind: str
    """`domain`, `machine` or `session`."""
    state: str
    """A domain's as virsh says it. A machine is running, shut off, or has no file. A session is running, or idle while it has no program."""
    is_served: bool
    why_not: str
    """A sentence with the remedy, where it is not served."""
    weight: int | None = None
    quota_bytes: int | None = None
    request: float | None = None
    limit: float | None = None
    gpu: str | None = None
    """As it was asked for."""
    gpu_number: int | None = None
    gpu_name: str | None = None
    demand: float | None = None
    """How much of it its programs would use, each alone."""
    vgpu_class: str | None = None
    space: str | None = None
    qos: str | None = None
    most: float | None = None


def listing(
    vgpus: Sequence[VGpuStatistics],
    gpus: Iterable[GpuStatistics],
    sights: Sequence[Sight],
    *,
    banned: frozenset[str],
    troubles: Mapping[str, str],
    with_all: bool,
    machines: Sequence[MachineSight] = (),
    cut: frozenset[str] = frozenset(),
    stranded: Mapping[str, str] | None = None,
    waiting: Sequence[Waiting] = (),
) -> tuple[Listed, ...]:
    """By name. `banned`, `cut`: names of vGPUs. `troubles`: why a domain is not served, by UUID. `with_all`: domains without device, too.
    `stranded`: why vGPUs whose Gpu has failed are not served, by name. `waiting`: those of vgpus.d that could not be had."""
    gpu_names = {gpu.number: gpu.name for gpu in gpus}
    states = {machine.name: machine.state for machine in machines}
    by_name = {sight.name: sight for sight in sights}
    refused = {name: _BANNED.format(name=name) for name in banned} | dict.fromkeys(cut, _CUT) | dict(stranded or {})
    found = [
        _of_vgpu(
            vgpu,
            gpu_names[vgpu.gpu_number],
            by_name.get(vgpu.name),
            states.get(vgpu.name, UNKNOWN),
            refused.get(vgpu.name, ""),
        )
        for vgpu in vgpus
    ]
    names = {vgpu.name for vgpu in vgpus}
    found += [_of_machine(machine) for machine in machines if machine.name not in names]
    found += [_of_waiting(each) for each in waiting if each.kept.name not in names]
    served = {vgpu.name for vgpu in vgpus if vgpu.kind == "domain"}
    for sight in sights:
        has_device = sight.attachment is not None or sight.holds_device or sight.trouble != ""
        if sight.name not in served and (has_device or with_all):
            found.append(_of_sight(sight, has_device, troubles.get(sight.uuid, "")))
    return tuple(sorted(found, key=lambda each: each.name))


def _of_vgpu(vgpu: VGpuStatistics, gpu_name: str, sight: Sight | None, state_of_machine: str, refused: str) -> Listed:
    why_not = ""
    if vgpu.kind == "session":
        state = "running" if vgpu.clients else "idle"
    elif vgpu.kind == "machine":
        state = state_of_machine
    else:
        state = sight.state if sight is not None else UNKNOWN
        why_not = _LATER if sight is not None and sight.is_running and not sight.holds_device else ""
    why_not = refused or why_not
    return Listed(
        vgpu.name,
        vgpu.kind,
        state,
        is_served=not why_not,
        why_not=why_not,
        **_entitled(vgpu),
        gpu_number=vgpu.gpu_number,
        gpu_name=gpu_name,
        demand=vgpu.demand,
    )


def _of_sight(sight: Sight, has_device: bool, trouble: str) -> Listed:
    why_not = sight.trouble or trouble or (_NOT_ATTACHED if has_device else _NO_DEVICE).format(name=sight.name)
    entitled = _entitled(sight.attachment.entitlement) if sight.attachment is not None else {}
    return Listed(sight.name, "domain", sight.state, is_served=False, why_not=why_not, **entitled)


def _of_machine(machine: MachineSight) -> Listed:
    why_not = machine.trouble or "it is taken up"
    return Listed(
        machine.name, "machine", machine.state, is_served=False, why_not=why_not, **_entitled(machine.entitlement)
    )


def _of_waiting(waiting: Waiting) -> Listed:
    kept = waiting.kept
    kind, state = ("machine", UNKNOWN) if kept.shm else ("session", "idle")
    return Listed(kept.name, kind, state, is_served=False, why_not=waiting.why, **_entitled(kept.entitlement))


def _entitled(entitlement: Entitlement) -> dict[str, Any]:
    return {name: getattr(entitlement, name) for name in PARAMETERS}
