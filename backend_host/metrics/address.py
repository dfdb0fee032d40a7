"""Where metrics are served: on loopback, or on a UNIX socket.

Metrics name domains and tell when they work. Nobody asks here who wants to know, so no address is served that others reach.
"""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from backend_host.errors import ConfigError

_HOST_PORT = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<four>[^:]*)):(?P<port>[0-9]{1,5})")
_MAX_PATH_BYTES = 107
"""Of a UNIX socket: struct sockaddr_un has no room for more."""


@dataclass(frozen=True)
class Address:
    """`path` of a UNIX socket, or an address of loopback with a port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return str(self.path) if self.path is not None else f"{host}:{self.port}"


def read_address(text: str) -> Address:
    """What the configuration says. ConfigError, with the remedy, for what is not served."""
    if text.startswith("/"):
        if len(text.encode()) > _MAX_PATH_BYTES:
            raise ConfigError(f"metrics: a socket's path has at most {_MAX_PATH_BYTES} bytes, not {text!r}")
        return Address(path=Path(text))
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ConfigError(
            f"metrics must be an address with a port, such as 127.0.0.1:9400 or [::1]:9400, or the whole path of a UNIX socket, not {text!r}"
        )
    host, port = match["six"] or match["four"], int(match["port"])
    if not _is_loopback(host):
        raise ConfigError(
            f"metrics: others would reach {text!r}, and nobody would ask who they are. Serve 127.0.0.1:{port} and have a proxy that asks pass "
            "it on, or set metrics_file for a node_exporter that is there already"
        )
    return Address(host="127.0.0.1" if host == "localhost" else host, port=port)


def _is_loopback(host: str) -> bool:
    """A name may be anybody's, but for this one."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
