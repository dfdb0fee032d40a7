"""Which requests change what others have: they are for administrators, and events, with what of a vGPU was and is."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from backend_host.entitlement import KEYS
from backend_host.errors import FairGVError
from backend_host.ipc import Message, Session
from backend_host.service.events import UNCHANGED, Events, printable
from backend_host.service.roles import Roles
from backend_host.vgpu import VGpu

CHANGES = {
    "attach",
    "detach",
    "set",
    "unban",
    "suspend",
    "resume",
    "migrate",
    "abort",
    "drain",
    "undrain",
    "balance",
    "reload",
    "restart",
    "stop",
}
_REFUSED = {*CHANGES, "open"}
_MAX_NAME = 64


@contextlib.contextmanager
def told(
    events: Events, roles: Roles, session: Session, request: Message, find: Callable[[str], VGpu | None]
) -> Iterator[Message]:
    """Around what a request asks for, which puts its answer into what it is given. `find` knows vGPUs by their names. RefusedError for a change
    by who may make none."""
    operation = str(request["op"])
    name = printable(str(request.get("domain") or request.get("name") or ""))[:_MAX_NAME]
    is_domains = operation in ("attach", "detach") and "shm" not in request
    about = {"vgpu": name or None, "domain": name or None if is_domains else None}
    is_change = operation in CHANGES
    old: dict[str, Any] | None = None
    answer: Message = {}
    try:
        if is_change:
            roles.check_admin(session)
            before = find(name)
            old = _entitled(before)
            if before is not None and before.kind == "machine":
                about["domain"] = None
        yield answer
    except FairGVError as error:
        if operation in _REFUSED:
            events.refused(session.uid, f"{operation}: {error}", **about, old=old)
        raise
    if not is_change or answer.get(UNCHANGED):
        return
    if operation == "reload":
        changes = answer.get("changes", ())
        old = {change["key"]: change["old"] for change in changes}
        new: dict[str, Any] | None = {change["key"]: change["new"] for change in changes}
    else:
        said = {key: request[key] for key in sorted(KEYS & request.keys())}
        new = _entitled(find(name)) or said or None
    vgpu = find(name)
    if vgpu is not None and vgpu.kind == "domain":
        about["domain"] = name
    events.tell(
        operation,
        session.uid,
        str(answer.get("text", "the daemon ends")).replace("\n", "; "),
        **about,
        old=old,
        new=new,
    )


def _entitled(vgpu: VGpu | None) -> dict[str, Any] | None:
    return vgpu.entitlement.written() if vgpu is not None else None
