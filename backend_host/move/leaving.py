"""How all vGPUs of a Gpu would leave it, each to where it fits best: the one of the least pause first, and why others stay.

Who is on its way there comes first, or comes back: so long it neither leaves nor stays.

A vGPU that is to be on that Gpu (`--gpu`) stays: an operator who wants it elsewhere all the same says so by its name.

Wrong when: it is looked at once for several moves. Each changes what there is room for, so it is asked again before the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend_host.device.gpu import Gpu
from backend_host.device_settings import is_called
from backend_host.errors import RefusedError
from backend_host.move.interface import Move, Moves
from backend_host.move.looking import side
from backend_host.move.plan import NoPlanError, Plan
from backend_host.move.words import UNDER_WAY
from backend_host.vgpu_table import VGpuTable
from scheduler.placement import Wish, choose


@dataclass(frozen=True)
class Leaving:
    """`stay`: why, by name. `coming`: whose moves to this Gpu are under way."""

    plans: Sequence[Plan] = ()
    stay: Mapping[str, str] = field(default_factory=dict)
    coming: Sequence[str] = ()


def leaving(gpu: Gpu, gpus: Sequence[Gpu], vgpus: VGpuTable, moves: Moves) -> Leaving:
    """As things are now."""
    plans, stay = [], {}
    coming = sorted(vgpu.name for vgpu in vgpus.all() if _is_coming(moves.find(vgpu.name), gpu))
    for name in sorted(set(vgpus.names(gpu).values()).difference(coming)):
        try:
            plans.append(_best(name, gpu, gpus, vgpus, moves))
        except RefusedError as error:
            stay[name] = str(error)
    return Leaving(sorted(plans, key=lambda plan: (plan.pause_s, plan.name)), stay, coming)


def _is_coming(move: Move | None, gpu: Gpu) -> bool:
    return move is not None and move.stage in UNDER_WAY and move.plan.target == gpu.number


def _best(name: str, gpu: Gpu, gpus: Sequence[Gpu], vgpus: VGpuTable, moves: Moves) -> Plan:
    """To the Gpu where a new vGPU would go. RefusedError has what is in the way on each, once."""
    vgpu = vgpus.named(name)
    if vgpu.entitlement.gpu and is_called(gpu.device, vgpu.entitlement.gpu):
        raise RefusedError(f"it is to be there (--gpu); to move it: fairgv-host migrate {name} --to GPU")
    plans: dict[int, Plan] = {}
    reasons: list[str] = []
    for target in gpus:
        if target is gpu:
            continue
        try:
            plans[target.number] = moves.plan(name, str(target.number))
        except NoPlanError as error:
            reasons += error.reasons
        except RefusedError as error:
            reasons.append(str(error))
    if not plans:
        raise RefusedError("; ".join(dict.fromkeys(reasons)) or "this host has no other Gpu")
    others = vgpus.others(vgpu)
    able = [side(target, others).candidate for target in gpus if target.number in plans]
    return plans[choose(able, Wish())]
