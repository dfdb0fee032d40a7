"""Serves the metrics over HTTP, to one after the other, on a thread of its own.

Whoever asks may be slow, or say nothing: after some seconds the next one has its turn. Others wait meanwhile, and nobody else does: who hands
over the GPU asks for nothing that is held here.
"""

import contextlib
import http.server
import logging
import socket
import socketserver
import threading
from collections.abc import Callable

from backend_host.address import Address, listen
from backend_host.metrics.text import CONTENT_TYPE

PATH = "/metrics"
_PATIENCE_S = 5.0
"""Who has not asked and read the answer by then is cut off."""
_ANSWER_ELSEWHERE = b"the metrics are at /metrics\n"

log = logging.getLogger("fairgv.metrics")


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request; `text` makes the answer."""

    server: "_Server"

    def setup(self) -> None:
        self._cut_off = threading.Timer(_PATIENCE_S, self._shut, (self.request,))
        self._cut_off.daemon = True
        self._cut_off.start()
        super().setup()

    def finish(self) -> None:
        self._cut_off.cancel()
        with contextlib.suppress(OSError):  # it went away
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(404, "text/plain; charset=utf-8", _ANSWER_ELSEWHERE)
            return
        try:
            body = self.server.text()
        except Exception:
            log.exception("the metrics could not be told")
            self._answer(500, "text/plain; charset=utf-8", b"the daemon's log says why\n")
            return
        self._answer(200, CONTENT_TYPE, body)

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are no news."""


class _Server(socketserver.TCPServer):
    """On a socket that listens already, of whatever family."""

    def __init__(self, listening: socket.socket, text: Callable[[], bytes]) -> None:
        self.text = text
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening


class MetricsServer:
    """Listens from the beginning; `start` and `stop` once. CannotListenError when it cannot listen."""

    def __init__(self, address: Address, text: Callable[[], bytes]) -> None:
        self._path = address.path
        self._server = _Server(listen("metrics", "metrics", address), text)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and gives the address back."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
