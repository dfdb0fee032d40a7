"""Whose workers there are: the tenants that vGPUs' programs belong to, as walls/tenants.py has them."""

from collections.abc import Iterable, Mapping

from backend_host.vgpu import VGpu
from backend_host.walls.tenants import name_of_space


def pids_by_tenant(vgpus: Iterable[VGpu]) -> Mapping[str, list[int]]:
    """The processes of all workers that serve these, by tenant: workers of a space are the space's."""
    found: dict[str, list[int]] = {}
    for vgpu in vgpus:
        for worker in vgpu.caretaker.workers():
            is_of_space = worker.shared is not None
            tenant = name_of_space(vgpu.gpu.number, vgpu.entitlement.space) if is_of_space else vgpu.caretaker.tenant
            found.setdefault(tenant, []).append(worker.process.pid)
    return found
