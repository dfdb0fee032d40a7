"""The page's server without a daemon, over loopback or a UNIX socket, and who asks it."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend_host.address import Address, listen
from backend_host.web.access import Access
from backend_host.web.server import WebServer
from backend_host.web.telling import Teller
from tests.backend_host.web.played import Played
from tests.end_to_end.host import wait_until

TIMEOUT_S = 30
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers by their names in lower case, and what is in it."""


class _OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("web", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def _connection(where: Path | int) -> http.client.HTTPConnection:
    if isinstance(where, Path):
        return _OverUnix(where)
    return http.client.HTTPConnection("127.0.0.1", where, timeout=TIMEOUT_S)


def ask(where: Path | int, path: str, method: str = "GET", **headers: str) -> Answer:
    """Of a UNIX socket or a port of loopback."""
    connection = _connection(where)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@dataclass(frozen=True)
class Served:
    """One that runs; `where` is a port of loopback or a path."""

    server: WebServer
    where: int | Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.where}/"

    def socket(self) -> socket.socket:
        """Connected, and nothing said."""
        connection = _connection(self.where)
        connection.connect()
        assert connection.sock is not None
        return connection.sock

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> Answer:
        """Of this one."""
        return ask(self.where, path, method, **headers)

    def events(self) -> http.client.HTTPResponse:
        """A stream of them that has begun."""
        connection = _connection(self.where)
        connection.request("GET", "/events")
        return connection.getresponse()

    def tell(self, kind: str, data: bytes) -> None:
        """Once somebody reads."""
        wait_until(lambda: self.server.has_readers, "somebody reads events")
        self.server.tell(kind, data)


@contextlib.contextmanager
def served(teller: Teller | None = None, path: Path | None = None, token: str = "") -> Iterator[Served]:
    """On a port that is free, or at the path, until the end of the block."""
    teller = Played([]).teller() if teller is None else teller
    address = Address(path=path) if path is not None else Address(host="127.0.0.1", port=0)
    with listen("the web page", "web", address) as listening:
        server = WebServer(listening, Access(address, token), teller.encoded_document)
        where = path if path is not None else int(listening.getsockname()[1])
        server.start()
        try:
            yield Served(server, where)
        finally:
            server.stop()
