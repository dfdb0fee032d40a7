"""What the configuration wants of the page: one address, and the thread that looks."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from backend_host.address import Address, listen
from backend_host.config import Config
from backend_host.glance import Glance
from backend_host.opening import Opening
from backend_host.statistics import DaemonStatistics
from backend_host.web.access import Access, read_token
from backend_host.web.address import read_web_address
from backend_host.web.history import PERIOD_S
from backend_host.web.server import WebServer
from backend_host.web.telling import Teller
from scheduler.version import version_text

log = logging.getLogger("fairgv.web")


class Page(Opening[WebServer]):
    """The page at its address, once that is free."""

    def __init__(self, address: Address, access: Access, teller: Teller, note: Callable[[str], None]) -> None:
        super().__init__(self._opened, note)
        self._address = address
        self._access = access
        self._teller = teller

    def stop(self) -> None:
        """Gives the address back, too."""
        super().stop()
        if self.served is not None and self._address.path is not None:
            self._address.path.unlink(missing_ok=True)

    @property
    def has_readers(self) -> bool:
        """Whether anybody reads events."""
        return self.served is not None and self.served.has_readers

    def tell(self, kind: str, data: bytes) -> None:
        """An event for all who read them."""
        if self.served is not None:
            self.served.tell(kind, data)

    def _opened(self) -> WebServer:
        server = WebServer(listen("the web page", "web", self._address), self._access, self._teller.encoded_document)
        server.start()
        return server


class Readers(Protocol):
    """Of the page."""

    @property
    def has_readers(self) -> bool:
        """Whether anybody reads events."""

    def tell(self, kind: str, data: bytes) -> None:
        """An event for all who read them."""


class Looker:
    """Looks each second while somebody reads, and every `PERIOD_S` seconds in any case, on a thread of its own."""

    def __init__(self, teller: Teller, readers: Readers) -> None:
        self._teller = teller
        self._readers = readers
        self._is_failing = False
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="web-looks", daemon=True)

    def start(self) -> None:
        """Begins with a look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        next_s, number = time.monotonic(), 0
        while not self._is_stopping.wait(max(0.0, next_s - time.monotonic())):
            try:
                self.look(is_point=number % PERIOD_S == 0)
                self._is_failing = False
            except Exception:
                if not self._is_failing:  # told once, and not each second
                    log.exception("the page could not be told; trying again")
                self._is_failing = True
            number += 1
            next_s = max(next_s + 1, time.monotonic())

    def look(self, *, is_point: bool) -> None:
        """Once; what is seen goes to who reads."""
        if is_point or self._readers.has_readers:
            self._readers.tell("second", self._teller.second())
        if is_point:  # last: the document that is made for a point has the second before it
            self._readers.tell("point", self._teller.point())


@contextlib.contextmanager
def serving(
    config: Config,
    statistics: Callable[[], DaemonStatistics],
    glance: Callable[[], Glance],
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Teller]:
    """Serves the page until the end of the block, or as soon as it can: `note` is told why not at once. FairGVError for an address or a token
    that is none."""
    token = read_token(Path(config.web_token_file)) if config.web_token_file else ""
    address = read_web_address(config.web, has_token=bool(token))
    teller = Teller(statistics, glance, {"host": socket.gethostname(), "version": version_text("FairGV")})
    with contextlib.ExitStack() as stack:
        page = Page(address, Access(address, token), teller, note)
        stack.callback(page.stop)
        page.start()
        looker = Looker(teller, page)
        looker.start()
        stack.callback(looker.stop)
        yield teller
