"""vGPUs that an earlier daemon had, until their owners ask for them: a domain, a virtual machine that libvirt does not know, a file of vgpus.d.

Each finds its own, which goes on as what the owner is to have now. One that is not the same any more is removed, so that another one can be
made, and what nobody asks for goes.

One thread at a time claims for owners of a kind.
"""

import dataclasses
import logging
from collections.abc import Callable

from backend_host.entitlement import Entitlement
from backend_host.region_memory import Identity, identity
from backend_host.service.journal import about
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.memory_file import identity_of
from backend_host.vm.region_file import region_path
from ivshmem.bells import Bells

log = logging.getLogger("fairgv.vgpus")


def claim_domain(
    vgpus: VGpuRegistry,
    name: str,
    entitlement: Entitlement,
    shm_name: str,
    run_id: int,
    is_paused: Callable[[], bool],
    bells: Bells | None,
) -> VGpu | None:
    """The one of this domain in its run of this number, -1 while it is off; else `add_domain` makes one. In another run no program of it lives,
    and it is the same only with all that stays for life. RefusedError or EntitlementError: as `_go_on`."""
    vgpu = next((vgpu for vgpu in _unclaimed(vgpus, "domain") if vgpu.shm_name == shm_name), None)
    if vgpu is None:
        return None
    is_same_run = vgpu.run_id == run_id >= 0
    fixed = [] if is_same_run else vgpu.entitlement.fixed(entitlement)
    if fixed or not _is_region(vgpu, shm_name, bells):
        what = " and ".join(fixed) or "region"
        log.warning("domain %s: another %s than before", name, what, extra=about(name, name))
        vgpus.remove_if_there(vgpu.name)
        return None
    _go_on(vgpus, vgpu, name, entitlement, is_paused)
    return vgpu


def claim_machine(
    vgpus: VGpuRegistry, name: str, entitlement: Entitlement, file: Identity, is_paused: Callable[[], bool]
) -> VGpu | None:
    """The one of the machine with this file; else `add_machine` makes one. RefusedError or EntitlementError: as `_go_on`."""
    vgpu = next((vgpu for vgpu in _unclaimed(vgpus, "machine") if vgpu.file == file), None)
    if vgpu is None:
        return None
    if vgpu.region.is_cut:
        vgpus.remove_if_there(vgpu.name)
        return None
    _go_on(vgpus, vgpu, name, entitlement, is_paused)
    return vgpu


def claim_kept(vgpus: VGpuRegistry, name: str, uid: int, entitlement: Entitlement) -> VGpu | None:
    """The one of this name that was kept for user `uid`, with the entitlement that it had. One of another user is removed, as is one with
    something else for life."""
    vgpu = next((vgpu for vgpu in _unclaimed(vgpus, "session") if vgpu.name == name), None)
    if vgpu is None:
        return None
    if vgpu.uid != uid or vgpu.entitlement.fixed(entitlement):
        vgpus.remove_if_there(name)
        return None
    vgpu.is_unclaimed = False
    return vgpu


def has_unclaimed(vgpus: VGpuRegistry, kind: str) -> bool:
    """Whether somebody may still ask for one."""
    return bool(_unclaimed(vgpus, kind))


def release_unclaimed(vgpus: VGpuRegistry, kind: str) -> None:
    """Whoever has not asked for its own by now, does not any more."""
    for vgpu in _unclaimed(vgpus, kind):
        vgpu.is_unclaimed = False
        log.info("vGPU %s: nobody asks for it any more", vgpu.name, extra=about(vgpu.name))
        if kind != "session":
            vgpus.remove_if_there(vgpu.name)
        else:
            vgpus.set_kept(vgpu, is_kept=False)
            vgpus.close_session(vgpu)


def _unclaimed(vgpus: VGpuRegistry, kind: str) -> list[VGpu]:
    return [vgpu for vgpu in vgpus.all() if vgpu.is_unclaimed and vgpu.kind == kind]


def _is_region(vgpu: VGpu, shm_name: str, bells: Bells | None) -> bool:
    """Whether its region is the one that the domain's machine has."""
    if vgpu.has_bells != (bells is not None):
        return False
    return vgpu.file == (identity(bells.memory_fd) if bells is not None else identity_of(region_path(shm_name)))


def _go_on(vgpus: VGpuRegistry, vgpu: VGpu, name: str, entitlement: Entitlement, is_paused: Callable[[], bool]) -> None:
    """As what its machine is to have now, but for what stays for life. RefusedError or EntitlementError: it cannot have that, and may be asked
    for again."""
    followed = vgpu.entitlement.followed_by(entitlement)
    if vgpu.name != name:
        vgpus.rename(vgpu.name, name)
    if vgpu.entitlement != followed:
        vgpus.change(name, dataclasses.asdict(followed))
    vgpu.is_unclaimed = False
    vgpu.caretaker.is_paused = is_paused
