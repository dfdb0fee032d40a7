"""What a plan is made of, as it is now."""

from collections.abc import Sequence

from backend_host.device.gpu import Gpu, find
from backend_host.errors import RefusedError
from backend_host.move.plan import Plan
from backend_host.vgpu_table import VGpuTable

_PAUSE_S = 1.0
_GIB = 1 << 30


def plan_now(vgpus: VGpuTable, gpus: Sequence[Gpu], name: str, to: str, mover: str = "auto") -> Plan:
    """How the vGPU of this name would move to the Gpu that is called so. RefusedError says why it cannot."""
    vgpu, target = vgpus.named(name), find(gpus, to)
    if vgpu.gpu is target:
        raise RefusedError(f"{name} cannot move to GPU {target.number}: it is there already")
    clients = vgpu.clients()
    linear = sum(each.linear_bytes for each in clients)
    pause_s = _PAUSE_S + linear / _GIB * 0.04
    return Plan(name, vgpu.gpu.number, target.number, "checkpoint", len(clients), linear, pause_s, pause_s)
