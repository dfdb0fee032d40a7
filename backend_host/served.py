"""Which devices of this host daemons serve, whoever's they are: so that nobody goes around the shares of a device without knowing.

A daemon that serves a device has a socket of that name in the kernel's abstract namespace, which everybody may list and which goes with its
process. Nobody connects to it.

Wrong when: daemons are in network namespaces of their own, as in containers: they do not see each other. And when somebody lies, who can keep
private daemons of others from starting without --private, and no more.
"""

import contextlib
import os
import pwd
import secrets
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from backend_host.devices import Device, device_name
from backend_host.errors import DaemonRunningError


@contextlib.contextmanager
def announced(devices: Sequence[Device]) -> Iterator[None]:
    """Until the end of the block everybody can know that this process serves the devices."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            sign = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
            sign.bind(f"\0{device_name(device)}/{os.getpid()}/{secrets.token_hex(8)}")  # which nobody can have taken
        yield


def servers(device: Device) -> list[int]:
    """Processes of daemons that serve it, this one left out."""
    start = f"@{device_name(device)}/"
    sockets = Path("/proc/net/unix").read_text(errors="replace")  # names are any bytes, as whoever made them likes
    names = (line.rpartition(" ")[2] for line in sockets.split("\n"))
    pids = {name.removeprefix(start).partition("/")[0] for name in names if name.startswith(start)}
    return sorted({int(pid) for pid in pids if pid.isdecimal()} - {os.getpid()})


def check_free(devices: Sequence[Device]) -> None:
    """Raises DaemonRunningError for a device that a daemon serves."""
    for device in devices:
        for pid in servers(device):
            raise DaemonRunningError(
                f"{device.name} is served by the daemon of {_user(pid)} (process {pid}), and a private one would go around its shares; "
                "use that daemon (--state-dir, where you may), or insist with --private"
            )


def _user(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
        return pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        return "another user"
