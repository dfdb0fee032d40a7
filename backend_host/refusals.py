"""What may not be asked of a vGPU that is there already: what would be ignored is refused, with what to ask instead."""

from collections.abc import Sequence

from backend_host.device.gpu import Gpu, find
from backend_host.entitlement import PARAMETERS, Changes
from backend_host.errors import RefusedError
from backend_host.sizes import format_size
from backend_host.vgpu import VGpu


def check_join(vgpu: VGpu, said: Changes, region_bytes: int, gpus: Sequence[Gpu]) -> None:
    """RefusedError where a command that joins the vGPU said that it has another entitlement, or another region, than it has. `region_bytes`: 0
    where none was said."""
    for name, value in said.items():
        parameter = PARAMETERS[name]
        if value == getattr(vgpu.entitlement, name) or (name == "gpu" and value and find(gpus, value) is vgpu.gpu):
            continue
        remedy = "give another --vgpu" if parameter.is_for_life else f"change it: fairgv-host set {vgpu.name}"
        raise RefusedError(
            f"{parameter.option}: the vGPU {vgpu.name} is there already, with another one ({vgpu.entitlement}); leave the option out, or "
            f"{remedy}"
        )
    if region_bytes not in (0, vgpu.region.region_bytes):
        raise RefusedError(
            f"--region: the vGPU {vgpu.name} is there already, and its region has {format_size(vgpu.region.region_bytes)}; leave the option "
            "out, or give another --vgpu"
        )


def check_memory(vgpu: VGpu, changes: Changes) -> None:
    """RefusedError for a quota below what the vGPU has now: it would be beyond its quota for as long as it likes."""
    account = vgpu.gpu.page.vgpu(vgpu.index)
    quota_bytes = changes.get("quota_bytes", 0)
    if account is not None and 0 < quota_bytes < account.memory_bytes:
        raise RefusedError(
            f"--memory {format_size(quota_bytes)} is below the {format_size(account.memory_bytes)} that {vgpu.name} uses now, and nothing is "
            "taken from a program that runs; give it as much at least, or end some of its programs first"
        )
