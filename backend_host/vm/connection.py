"""Opens libvirt, lazily, and turns its errors into one sentence with a remedy.

libvirt-python is an optional dependency: it is imported when a domain is named for the first time, here alone.
"""

import contextlib
import grp
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from backend_host.vm.bindings import how_to_get
from backend_host.vm.domain_xml import DomainXml, default_owner
from backend_host.vm.errors import NoPermissionError, VmError
from backend_host.vm.region_file import RegionOwner


def load_libvirt() -> Any:
    """The module libvirt, told to raise its errors only and not to print them as well. Raises VmError when it is
    missing.
    """
    try:
        import libvirt  # noqa: PLC0415  (an optional dependency)
    except ImportError as error:
        raise VmError(f"domains need libvirt-python, which cannot be loaded here ({error}): {how_to_get()}") from error
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return libvirt


def open_connection(uri: str) -> Any:
    """A libvirt connection to QEMU on this machine. Raises VmError."""
    libvirt = load_libvirt()
    parts = urlsplit(uri)
    if parts.hostname or parts.scheme.partition("+")[2] not in ("", "unix"):
        raise VmError(
            f"{uri} is another machine, and memory is shared with guests of this one only: run fairgv-host there"
        )
    if not parts.scheme.startswith("qemu"):
        raise VmError(f"{uri} is not QEMU, which alone has the shared memory device: use qemu:///system")
    try:
        return libvirt.open(uri)
    except libvirt.libvirtError as error:
        raise explain(error, uri) from error


@contextlib.contextmanager
def connected(uri: str) -> Iterator[Any]:
    """A connection for the length of a block; libvirt's errors inside become VmError."""
    libvirt = load_libvirt()
    connection = open_connection(uri)
    try:
        yield connection
    except libvirt.libvirtError as error:
        raise explain(error, uri) from error
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()


def explain(error: Any, uri: str) -> VmError:
    """What the operator reads instead of a libvirt error."""
    libvirt = load_libvirt()
    denied = (libvirt.VIR_ERR_AUTH_FAILED, libvirt.VIR_ERR_AUTH_UNAVAILABLE, libvirt.VIR_ERR_ACCESS_DENIED)
    message = str(error.get_error_message() or error)
    if error.get_error_code() in (*denied, libvirt.VIR_ERR_OPERATION_DENIED) or "Permission denied" in message:
        return NoPermissionError(
            f"no permission for libvirt at {uri} ({message}): use sudo, or sudo usermod -aG libvirt $USER"
        )
    if error.get_error_code() in (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_SYSTEM_ERROR):
        return VmError(f"no libvirtd answers at {uri} ({message}): start it (sudo systemctl start libvirtd)")
    return VmError(f"libvirt at {uri}: {message}")


def qemu_owner(connection: Any, definition: DomainXml) -> RegionOwner:
    """As whom QEMU runs the domain: by its definition, by the instance's default, else as the instance itself.

    A session instance runs QEMU as itself whatever a definition says.
    """
    parts = urlsplit(connection.getURI())
    label = None
    if parts.path != "/session":
        label = definition.static_owner() or default_owner(connection.getCapabilities(), definition.domain_type())
    if label:
        user, _, group = label.partition(":")
        uid = _number(user, lambda name: pwd.getpwnam(name).pw_uid)
        if not group:
            return RegionOwner(uid, _group_of(uid))
        return RegionOwner(uid, _number(group, lambda name: grp.getgrnam(name).gr_gid))
    if sockets := parse_qs(parts.query).get("socket"):
        status = Path(sockets[0]).stat()
        return RegionOwner(status.st_uid, status.st_gid)
    return RegionOwner.this_process()


def _group_of(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError) as error:
        raise VmError(
            f"the domain runs as user {uid}, whom this host does not know: name a group beside it (+{uid}:+GID)"
        ) from error


def _number(text: str, look_up: Any) -> int:
    """A label names `+64055`, `64055` or a name."""
    digits = text.removeprefix("+")
    try:
        return int(digits) if digits.isdigit() else int(look_up(text))
    except KeyError as error:
        raise VmError(f"the domain runs as {text!r}, whom this host does not know") from error
