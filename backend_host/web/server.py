"""Serves the page over HTTP: all of it from one loop on one thread, however many ask. h11 reads and writes what HTTP is.

Who is slow waits for itself. A request that has not come after some seconds, an answer that is not read and a stream of events whose reader
is far behind are cut off; of streams and of connections there are so many and no more.

Wrong when: somebody opens as many connections as there may be, again and again. Others then wait until those are cut off; who hands over the
GPU never waits for anything here.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import parse_qs

import h11

from backend_host.web.access import Access
from backend_host.web.files import POLICY, served

NR_CONNECTIONS = 128
NR_STREAMS = 32
_PATIENCE_S = 5.0
"""For a request."""
_READING_S = 30.0
"""For an answer."""
_MOST_BEHIND_BYTES = 1 << 20
"""What a stream's reader may have left unread: 20 s of 256 vGPUs, and more of fewer."""
_TEXT = "text/plain; charset=utf-8"
_SAFE = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
)
_NO_TOKEN = b"this page wants its token: open it as /?token=TOKEN, or send the header Authorization: Bearer TOKEN\n"
_NOT_THIS_HOST = (
    b"this page is served to this host alone, under its own name: open it as http://127.0.0.1 with the port\n"
)

log = logging.getLogger("fairgv.web")


class _Peer:
    """One connection, with one request. Raises h11.RemoteProtocolError where that is none, ConnectionError where the other end went away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)
        self._is_head = False

    async def request(self) -> h11.Request:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(4096))
            elif isinstance(event, h11.Request):
                self._is_head = event.method == b"HEAD"
                return event
            else:
                raise ConnectionResetError

    async def answer(self, status: int, kind: str, body: bytes, more: Sequence[tuple[str, str]] = ()) -> None:
        head = [("Content-Type", kind), ("Content-Length", str(len(body))), *more]
        self._begin(status, head)
        if not self._is_head:
            self._send(h11.Data(body))
        self._send(h11.EndOfMessage())
        await asyncio.wait_for(self._writer.drain(), _READING_S)

    def begin_events(self) -> None:
        self._begin(200, [("Content-Type", "text/event-stream")])

    def tell(self, event: bytes) -> None:
        """Without waiting; ends the connection when its reader is too far behind."""
        if self._writer.transport.get_write_buffer_size() > _MOST_BEHIND_BYTES:
            self.cut_off()
        else:
            self._send(h11.Data(event))

    async def is_gone(self) -> None:
        """Returns when the other end has closed."""
        while await self._reader.read(4096):
            pass

    async def close(self) -> None:
        """Once what was said has gone out."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _READING_S)
        self.cut_off()

    def cut_off(self) -> None:
        """Now. Whoever waits for this connection goes on, and finds that it is gone."""
        self._writer.transport.abort()

    def _begin(self, status: int, head: Sequence[tuple[str, str]]) -> None:
        self._send(h11.Response(status_code=status, headers=[*head, *_SAFE]))

    def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._writer.write(data)


class WebServer:
    """Answers from the socket that listens, between `start` and `stop`; each once. `document` is what the page begins with."""

    def __init__(self, listening: socket.socket, access: Access, document: Callable[[], bytes]) -> None:
        self._listening = listening
        self._access = access
        self._document = document
        self._files = served()
        self._streams: set[_Peer] = set()
        self._peers: dict[_Peer, asyncio.Task[None]] = {}
        self._is_stopping = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all connections and the thread."""
        self._loop.call_soon_threadsafe(self._is_stopping.set)
        self._thread.join()

    @property
    def has_readers(self) -> bool:
        """Whether anybody reads events."""
        return bool(self._streams)

    def tell(self, kind: str, data: bytes) -> None:
        """An event for all who read them; from any thread."""
        event = b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
        self._loop.call_soon_threadsafe(self._tell, event)

    def _tell(self, event: bytes) -> None:
        for peer in list(self._streams):
            peer.tell(event)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        """Until the end is asked for; cuts off who is there then, those included that come meanwhile."""
        server = await asyncio.start_server(self._connected, sock=self._listening, limit=1 << 16)
        await self._is_stopping.wait()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for peer in self._peers:
                peer.cut_off()
            await asyncio.wait(others)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _Peer(reader, writer)
        if len(self._peers) >= NR_CONNECTIONS:
            peer.cut_off()
        else:
            self._peers[peer] = self._loop.create_task(self._serve(peer))

    async def _serve(self, peer: _Peer) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, h11.RemoteProtocolError):
                request = await asyncio.wait_for(peer.request(), _PATIENCE_S)
                await self._answer(peer, request)
        except Exception:
            log.exception("a request for the page could not be answered")
        finally:
            await peer.close()
            del self._peers[peer]

    async def _answer(self, peer: _Peer, request: h11.Request) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        path, _, query = request.target.decode("latin-1").partition("?")
        if request.method != b"GET":
            await peer.answer(405, _TEXT, b"there is nothing to change here\n", [("Allow", "GET")])
            return
        given = parse_qs(query).get("token", [""])[0]
        if self._access.is_right(given):
            more = [("Location", "./"), ("Set-Cookie", self._access.cookie())]
            await peer.answer(303, _TEXT, b"", more)
        elif not self._access.is_allowed(headers):
            await self._refuse(peer)
        elif path in self._files:
            await peer.answer(200, *self._files[path])
        elif (special := self._special().get(path)) is not None:
            await special(peer)
        else:
            await peer.answer(404, _TEXT, b"there is no such file; the page is at /\n")

    async def _refuse(self, peer: _Peer) -> None:
        if self._access.wants_token:
            await peer.answer(401, _TEXT, _NO_TOKEN, [("WWW-Authenticate", "Bearer")])
        else:
            await peer.answer(403, _TEXT, _NOT_THIS_HOST)

    def _special(self) -> Mapping[str, Callable[[_Peer], Awaitable[None]]]:
        return {"/document": self._say_document, "/events": self._say_events}

    async def _say_document(self, peer: _Peer) -> None:
        await peer.answer(200, "application/json", self._document())

    async def _say_events(self, peer: _Peer) -> None:
        """Until the reader goes."""
        if len(self._streams) >= NR_STREAMS:
            await peer.answer(503, _TEXT, b"as many look at this page as may; close one\n", [("Retry-After", "10")])
            return
        peer.begin_events()
        peer.tell(b"retry: 2000\n\n")
        self._streams.add(peer)
        try:
            await peer.is_gone()
        finally:
            self._streams.discard(peer)
