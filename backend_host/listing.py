"""What `fairgv-host list` shows: the vGPUs, and the domains that have the device and no vGPU, or a vGPU that their guest has not got yet.

It is one list, as `virsh list` is: who looks for a domain finds it, and why its programs find no GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend_host.entitlement import Entitlement
from backend_host.statistics import GpuStatistics, VGpuStatistics
from backend_host.vm.domain import Sight

UNKNOWN = "unknown"
"""The state of a domain while libvirt does not answer."""
_BANNED = "it is banned, as its kernels did not end; forgive it with: fairgv-host unban {name}"
_LATER = "its guest runs without the device; it is served from its next start on"
_NO_DEVICE = "it has no vGPU; give it one with: fairgv-host attach {name}"
_NOT_ATTACHED = (
    'its definition has the device, and this daemon serves only what was attached by command (adopt = "attached"): start the daemon with '
    'adopt = "all" in its configuration, or fairgv-host detach {name}, then attach'
)


@dataclass(frozen=True)
class Listed:
    """A vGPU, or a domain. What is not known, as it has no entitlement or no place on a Gpu, is None."""

    name: str
    kind: str
    """`domain` or `session`."""
    state: str
    """A domain's as virsh says it. A session is running, or idle while it has no program."""
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


def listing(
    vgpus: Sequence[VGpuStatistics],
    gpus: Iterable[GpuStatistics],
    sights: Sequence[Sight],
    *,
    banned: frozenset[str],
    troubles: Mapping[str, str],
    with_all: bool,
) -> tuple[Listed, ...]:
    """By name. `banned`: names of vGPUs. `troubles`: why a domain is not served, by UUID. `with_all`: domains without the device, too."""
    gpu_names = {gpu.number: gpu.name for gpu in gpus}
    by_name = {sight.name: sight for sight in sights}
    found = [_of_vgpu(vgpu, gpu_names[vgpu.gpu_number], by_name.get(vgpu.name), banned) for vgpu in vgpus]
    served = {vgpu.name for vgpu in vgpus if vgpu.kind == "domain"}
    for sight in sights:
        has_device = sight.attachment is not None or sight.holds_device or sight.trouble != ""
        if sight.name not in served and (has_device or with_all):
            found.append(_of_sight(sight, has_device, troubles.get(sight.uuid, "")))
    return tuple(sorted(found, key=lambda each: each.name))


def _of_vgpu(vgpu: VGpuStatistics, gpu_name: str, sight: Sight | None, banned: frozenset[str]) -> Listed:
    why_not = ""
    if vgpu.kind == "session":
        state = "running" if vgpu.clients else "idle"
    else:
        state = sight.state if sight is not None else UNKNOWN
        why_not = _LATER if sight is not None and sight.is_running and not sight.holds_device else ""
    if vgpu.name in banned:
        why_not = _BANNED.format(name=vgpu.name)
    return Listed(
        vgpu.name,
        vgpu.kind,
        state,
        is_served=not why_not,
        why_not=why_not,
        **_entitled(vgpu),
        gpu_number=vgpu.gpu_number,
        gpu_name=gpu_name,
    )


def _of_sight(sight: Sight, has_device: bool, trouble: str) -> Listed:
    why_not = sight.trouble or trouble or (_NOT_ATTACHED if has_device else _NO_DEVICE).format(name=sight.name)
    entitled = _entitled(sight.attachment.entitlement) if sight.attachment is not None else {}
    return Listed(sight.name, "domain", sight.state, is_served=False, why_not=why_not, **entitled)


def _entitled(entitlement: Entitlement) -> dict[str, Any]:
    return {name: getattr(entitlement, name) for name in ("weight", "quota_bytes", "request", "limit", "gpu")}
