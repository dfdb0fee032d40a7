"""The page's server over loopback and a UNIX socket: what it answers, whom it refuses, and that nobody who is slow keeps others waiting."""

import contextlib
import http.client
import json
import logging
import socket
import threading
from pathlib import Path

import pytest

from backend_host.web import server as module
from backend_host.web.access import COOKIE
from backend_host.web.files import POLICY, SCRIPTS, STYLES
from backend_host.web.server import NR_CONNECTIONS, NR_STREAMS
from tests.backend_host.web.played import Played, Tenant
from tests.backend_host.web.serving import served
from tests.end_to_end.host import wait_until

TOKEN = "0123456789abcdef"


def next_event(stream: http.client.HTTPResponse) -> tuple[str, str]:
    """Kind and data; other lines are left out."""
    kind = ""
    while line := stream.readline().decode():
        name, _, value = line.strip().partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            return kind, value
    return "", ""


@pytest.mark.parametrize("is_unix", [False, True])
def test_the_page_and_all_that_it_loads(tmp_path: Path, is_unix: bool) -> None:
    with served(path=tmp_path / "web" if is_unix else None) as host:
        status, headers, body = host.ask("/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        for name in (*STYLES, *SCRIPTS):
            assert f'"{name}"' in body.decode()
            status, headers, _ = host.ask(f"/{name}")
            kind = "text/css" if name.endswith(".css") else "text/javascript"
            assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")


def test_no_script_and_no_style_stands_in_the_page() -> None:
    assert "'unsafe" not in POLICY
    with served() as host:
        body = host.ask("/")[2].decode()
        assert "<style" not in body
        assert " style=" not in body
        assert body.count("<script ") == body.count('<script src="') == len(SCRIPTS)
        assert "http" not in body, "nothing is asked of others"


def test_a_unix_socket_is_for_user_and_group(tmp_path: Path) -> None:
    with served(path=tmp_path / "web"):
        assert (tmp_path / "web").stat().st_mode & 0o777 == 0o660


def test_the_document() -> None:
    played = Played([Tenant("one", lambda second: 0.5)])
    teller = played.teller()
    played.play(teller, 11)
    with served(teller) as host:
        status, headers, body = host.ask("/document")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == teller.document()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404),
        ("GET", "/../serving.py", 404),
        ("GET", "//etc/passwd", 404),
        ("POST", "/", 405),
        ("DELETE", "/document", 405),
        ("HEAD", "/", 405),
    ],
)
def test_what_is_not_there(method: str, path: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    with served() as host:
        assert host.ask(path, method)[0] == status
        assert host.ask("/")[0] == 200
    assert caplog.text == "", "whoever asks wrongly fills no log"


def test_another_name_for_this_host_is_refused() -> None:
    with served() as host:
        for path in ("/", "/document", "/events"):
            status, _, body = host.ask(path, Host="evil.example")
            assert (status, b"127.0.0.1" in body) == (403, True)


def test_with_a_token(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), served(token=TOKEN) as host:
        for path in ("/", "/document", "/events", "/page.js", "/?token=wrong", f"/?tokens={TOKEN}"):
            status, headers, body = host.ask(path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert b"?token=TOKEN" in body
        assert host.ask("/", Authorization=f"Bearer {TOKEN}")[0] == 200
        status, headers, _ = host.ask(f"/?token={TOKEN}")
        assert (status, headers["location"]) == (303, "./")
        cookie = headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(f"{COOKIE}=")
        assert host.ask("/document", Cookie=cookie)[0] == 200
        assert host.ask("/document", Cookie=cookie, Host="elsewhere.example")[0] == 200
    assert TOKEN not in caplog.text


def test_events_come_to_all_who_read() -> None:
    with served() as host, contextlib.closing(host.events()) as one, contextlib.closing(host.events()) as other:
        assert one.headers["Content-Type"] == "text/event-stream"
        wait_until(lambda: len(host.server._streams) == 2, "both read")
        host.tell("second", b'{"at":1}')
        for stream in (one, other):
            assert next_event(stream) == ("second", '{"at":1}')


def test_a_stream_ends_when_its_reader_goes() -> None:
    with served() as host:
        stream = host.events()
        wait_until(lambda: host.server.has_readers, "somebody reads")
        stream.close()
        wait_until(lambda: not host.server.has_readers, "nobody reads any more")
        wait_until(lambda: not host.server._peers, "nothing is left of it")


def test_a_stream_ends_when_the_daemon_stops() -> None:
    with served() as host:
        stream = host.events()
        wait_until(lambda: host.server.has_readers, "somebody reads")
    with contextlib.closing(stream), contextlib.suppress(ConnectionError, http.client.IncompleteRead):
        assert next_event(stream) == ("", "")


def test_who_does_not_read_events_is_cut_off() -> None:
    with served() as host, host.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: host.server.has_readers, "it reads events")
        for _ in range(64):  # 16 MiB: more than sockets keep
            host.server.tell("second", b"x" * (256 << 10))
        wait_until(lambda: not host.server.has_readers, "it is cut off")
        assert host.ask("/")[0] == 200


@pytest.mark.parametrize("said", [b"", b"GET /", b"GET / HTTP/1.1\r\nX: ", b"\r\n"])
def test_fifty_who_say_no_more_keep_nobody_waiting(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as host, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(host.socket()) for _ in range(50)]
        for each in slow:
            each.sendall(said)
        assert host.ask("/")[0] == 200, "while they wait"
        monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
        late = stack.enter_context(host.socket())
        late.sendall(said)
        assert late.recv(4096) == b"", "it is cut off"
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("web") == 1, "one thread, however many they are"


def test_connections_are_bounded() -> None:
    with served() as host, contextlib.ExitStack() as stack:
        for _ in range(NR_CONNECTIONS):
            stack.enter_context(host.socket())
        wait_until(lambda: len(host.server._peers) == NR_CONNECTIONS, "all are there")
        with host.socket() as one_more, contextlib.suppress(ConnectionError):
            one_more.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one_more.recv(4096) == b""
        stack.close()
        wait_until(lambda: not host.server._peers, "all are gone")
        assert host.ask("/")[0] == 200


def test_streams_are_bounded() -> None:
    with served() as host, contextlib.ExitStack() as stack:
        for _ in range(NR_STREAMS):
            stack.enter_context(contextlib.closing(host.events()))
        status, headers, _ = host.ask("/events")
        assert (status, headers["retry-after"]) == (503, "10")
        assert host.ask("/")[0] == 200


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
)
def test_what_is_no_request_harms_nobody(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), served() as host:
        with host.socket() as strange, contextlib.suppress(ConnectionError):
            strange.sendall(said)
            strange.shutdown(socket.SHUT_WR)
            while strange.recv(4096):
                pass
        assert host.ask("/")[0] == 200
    assert caplog.text == ""


def test_who_goes_away_early_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), served() as host:
        for path in (b"/", b"/document", b"/events", b"/uPlot.iife.min.js"):
            with host.socket() as hasty:
                hasty.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert host.ask("/")[0] == 200
        wait_until(lambda: not host.server.has_readers, "they are gone")
    assert caplog.text == ""


def test_a_fault_costs_one_answer_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with served() as host:
        host.server._document = lambda: json.dumps(object()).encode()
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            host.ask("/document")
        assert host.ask("/")[0] == 200
    assert "a request for the page could not be answered" in caplog.text
