"""Where the daemon serves what operators look at: an address with a port, or a UNIX socket.

What it tells names domains and says when they work. So it matters who reaches an address: loopback and UNIX sockets are of this host alone.
"""

import contextlib
import ipaddress
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from backend_host.errors import CannotListenError, ConfigError

_HOST_PORT = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<four>[^:]*)):(?P<port>[0-9]{1,5})")
_MAX_PATH_BYTES = 107
"""Of a UNIX socket: struct sockaddr_un has no room for more."""
_NR_WAITING = 64
"""Connections that nobody has taken yet."""


@dataclass(frozen=True)
class Address:
    """`path` of a UNIX socket, or a host with a port: the number of an interface, or a name."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return str(self.path) if self.path is not None else f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this host reaches it. A name may be anybody's."""
        return self.path is not None or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether this name or number is this host's own, whoever resolves it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_address(key: str, text: str, example_port: int) -> Address:
    """What the configuration says under `key`. ConfigError, with an example, for what is no address."""
    if text.startswith("/"):
        if len(text.encode()) > _MAX_PATH_BYTES:
            raise ConfigError(f"{key}: a socket's path has at most {_MAX_PATH_BYTES} bytes, not {text!r}")
        return Address(path=Path(text))
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ConfigError(
            f"{key} must be an address with a port, such as 127.0.0.1:{example_port} or [::1]:{example_port}, or the whole path of a UNIX "
            f"socket, not {text!r}"
        )
    host = match["six"] or match["four"]
    return Address(host="127.0.0.1" if host == "localhost" else host, port=int(match["port"]))


def listen(what: str, key: str, address: Address) -> socket.socket:
    """A socket that listens there. That of a UNIX socket takes the place of one that a daemon which died left behind, and is for the daemon's
    user and group. `what` is served, and `key` is where the configuration says so: for the CannotListenError when it cannot be."""
    try:
        return _bound(address)
    except OSError as error:
        raise CannotListenError(
            f"cannot serve {what} on {address}: {error.strerror or error}; set another address in {key}, or end who has it"
        ) from error


def _bound(address: Address) -> socket.socket:
    if address.path is None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family, backlog=_NR_WAITING)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(address.path.lstat().st_mode):
            address.path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.bind(str(address.path))
        address.path.chmod(0o660)
        listening.listen(_NR_WAITING)
    except OSError:
        listening.close()
        raise
    return listening
