"""What an ordinary user may have of a system's daemon, all vGPUs of the user together: `[users]` of the configuration says how much."""

from collections.abc import Sequence

from backend_host.entitlement import PARAMETERS, Changes, Entitlement
from backend_host.errors import RefusedError
from backend_host.service.roles import user_called
from backend_host.service.user_settings import UserSettings
from backend_host.sizes import format_count, format_size
from backend_host.vgpus import NAME


def within_limits(
    uid: int,
    vgpu: str | None,
    said: Changes,
    unsaid: Entitlement,
    others: Sequence[Entitlement],
    settings: UserSettings,
) -> Entitlement:
    """What a new vGPU, of this name or of any, gets beside the user's others, when this was said for it. RefusedError names the limit, and who
    may raise it. A name begins with the user's, so that nobody takes that of a domain to come."""
    name, wanted = user_called(uid), unsaid.changed(said)
    for field in ("vgpu_class", "space"):
        if getattr(wanted, field) != getattr(unsaid, field):
            raise RefusedError(
                f"{PARAMETERS[field].option}: a vGPU that goes before others, or shares faults with them, is for a member of "
                f"{settings.admin_group} to give: leave it out, or ask one"
            )
    begins = f"{name}-" if NAME.fullmatch(f"{name}-") else f"{uid}-"
    if vgpu is not None and not vgpu.startswith(begins):
        raise RefusedError(
            f"--vgpu {vgpu}: there is none called so, and the name of a new one of {name} begins with {begins}: say --vgpu {begins}{vgpu}"
        )
    raised = f"ask a member of {settings.admin_group} to raise"
    if wanted.limit > unsaid.limit:
        raise RefusedError(
            f"--limit {wanted.limit:g}: a vGPU of {name} may use {unsaid.limit:g} % of a GPU at most: give it less, or {raised} limit in "
            "[vgpu] of the configuration"
        )
    if len(others) >= settings.vgpus:
        raise RefusedError(
            f"{name} has {format_count(len(others), 'vGPU')}, and a user may have {settings.vgpus}: join one of them with --vgpu, end a "
            f"program, or {raised} vgpus in [users] of the configuration"
        )
    weight, most_weight = wanted.weight + sum(other.weight for other in others), settings.most_weight(unsaid)
    if weight > most_weight:
        raise RefusedError(
            f"--weight {wanted.weight}: the vGPUs of {name} would weigh {weight} together, and a user's may weigh {most_weight}: give less, "
            f"or {raised} weight in [users] of the configuration"
        )
    request = wanted.request + sum(other.request for other in others)
    if round(request * 10) > round(settings.request * 10):
        raise RefusedError(
            f"--request {wanted.request:g}: the vGPUs of {name} would request {request:g} % together, and a user's may request "
            f"{settings.request:g} %: give less, or {raised} request in [users] of the configuration"
        )
    return wanted.changed({"quota_bytes": _quota_bytes(name, wanted, others, settings, raised)})


def _quota_bytes(
    name: str, wanted: Entitlement, others: Sequence[Entitlement], settings: UserSettings, raised: str
) -> int:
    """The memory quota that was said, or what is left of the user's. One without a quota beside it leaves nothing."""
    if not settings.memory_bytes:
        return wanted.quota_bytes
    held = sum(other.quota_bytes or settings.memory_bytes for other in others)
    left = max(0, settings.memory_bytes - held)
    if left == 0 or wanted.quota_bytes > left:
        said = f"--memory {format_size(wanted.quota_bytes)}: " if wanted.quota_bytes else ""
        raise RefusedError(
            f"{said}a user may have {format_size(settings.memory_bytes)} of device memory, of which {name} has {format_size(left)} left: give "
            f"each vGPU less with --memory, or {raised} memory_bytes in [users] of the configuration"
        )
    return wanted.quota_bytes or left
