"""What the configuration wants of the page: one address, and the thread that looks."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backend_host.address import listen
from backend_host.config import Config
from backend_host.glance import Glance
from backend_host.statistics import DaemonStatistics
from backend_host.web.access import Access, read_token
from backend_host.web.address import read_web_address
from backend_host.web.history import PERIOD_S
from backend_host.web.server import WebServer
from backend_host.web.telling import Teller
from scheduler.version import version_text

log = logging.getLogger("fairgv.web")


class Looker:
    """Looks each second while somebody reads, and every `PERIOD_S` seconds in any case, on a thread of its own."""

    def __init__(self, teller: Teller, server: WebServer) -> None:
        self._teller = teller
        self._server = server
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
        if is_point or self._server.has_readers:
            self._server.tell("second", self._teller.second())
        if is_point:  # last: the document that is made for a point has the second before it
            self._server.tell("point", self._teller.point())


@contextlib.contextmanager
def serving(
    config: Config, statistics: Callable[[], DaemonStatistics], glance: Callable[[], Glance]
) -> Iterator[Teller]:
    """Serves the page until the end of the block. FairGVError when that cannot be."""
    token = read_token(Path(config.web_token_file)) if config.web_token_file else ""
    address = read_web_address(config.web, has_token=bool(token))
    teller = Teller(statistics, glance, {"host": socket.gethostname(), "version": version_text("FairGV")})
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen("the web page", "web", address))
        if address.path is not None:
            stack.callback(address.path.unlink, missing_ok=True)
        server = WebServer(listening, Access(address, token), teller.encoded_document)
        server.start()
        stack.callback(server.stop)
        looker = Looker(teller, server)
        looker.start()
        stack.callback(looker.stop)
        yield teller
