"""The control socket: answers, refusals, sessions that end when their connection does, descriptors, hostile lines."""

import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backend_host import ipc
from backend_host.errors import DaemonNotRunningError, DaemonRunningError, RefusedError
from backend_host.ipc import MAX_AT_ONCE, MAX_LINE_BYTES, Connection, Message, Server, Session

ALICE, BOB = 1001, 1002


class Peer:
    """A handler that records what it is asked."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def handle(self, session: Session, request: Message) -> Message:
        if request["op"] == "hold":
            session.at_end(self.ended.set)
        if request["op"] == "refuse":
            raise RefusedError("not today")
        if request["op"] == "file":
            session.send_fd = os.open("/dev/null", os.O_RDONLY)
        return {"echo": request, "uid": session.uid}


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def path(tmp_path: Path, peer: Peer) -> Iterator[Path]:
    server = Server(tmp_path / "control.sock", peer.handle)
    server.start()
    yield tmp_path / "control.sock"
    server.stop()


def test_ask_and_answer(path: Path) -> None:
    with Connection(path) as connection:
        assert connection.ask("first", number=1)["echo"] == {"op": "first", "number": 1}
        assert connection.ask("second")["uid"] == os.geteuid()


def test_an_answer_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is told once, and gets it."""
    monkeypatch.setattr(ipc, "SILENT_S", 0.0)
    is_told = threading.Event()

    def handle(session: Session, request: Message) -> Message:
        is_told.wait()
        return {"echo": request["op"]}

    told: list[str] = []

    def tell() -> None:
        told.append("silent")
        is_told.set()

    server = Server(tmp_path / "control.sock", handle)
    server.start()
    with Connection(tmp_path / "control.sock", tell) as connection:
        assert connection.ask("late")["echo"] == "late"
    server.stop()
    assert told == ["silent"]


def test_a_refusal_is_an_exception_and_the_connection_lives_on(path: Path) -> None:
    with Connection(path) as connection:
        with pytest.raises(RefusedError, match="not today"):
            connection.ask("refuse")
        assert connection.ask("fine")["echo"]["op"] == "fine"


def test_a_session_ends_with_its_connection(path: Path, peer: Peer) -> None:
    connection = Connection(path)
    connection.ask("hold")
    assert not peer.ended.is_set()
    connection.close()
    assert peer.ended.wait(10)


def test_a_descriptor_comes_with_the_answer(path: Path) -> None:
    with Connection(path) as connection:
        fd = connection.ask("file")["fd"]
    assert stat.S_ISCHR(os.fstat(fd).st_mode)
    os.close(fd)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"[1]\n", b'{"op": 3}\n', b"\xff\xfe\n", b"{" * 5000 + b"\n"])
def test_lines_that_are_no_request(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(line)
        assert b'"error"' in raw.recv(4096)
    with Connection(path) as connection:
        assert "echo" in connection.ask("still there")


def test_a_request_without_an_end_is_not_read(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        with contextlib.suppress(OSError):  # it is cut off in the middle
            raw.sendall(b'{"op": "first", "name": "' + b"x" * MAX_LINE_BYTES + b'"}\n')
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(4096) == b""


def test_only_the_owner_may_open_the_socket(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(DaemonNotRunningError, match=f"start one with: fairgv-host --state-dir {tmp_path} start$"):
        Connection(tmp_path / "control.sock")


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(path: Path, peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(DaemonRunningError):
        Server(path, peer.handle)
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    server = Server(stale, peer.handle)
    server.start()
    with Connection(stale) as connection:
        assert "echo" in connection.ask("hello")
    server.stop()


def test_who_waits_for_an_answer_is_told_that_there_is_none(tmp_path: Path) -> None:
    is_asked, is_over = threading.Event(), threading.Event()

    def answer(session: Session, request: Message) -> Message:
        is_asked.set()
        is_over.wait()
        return {}

    server = Server(tmp_path / "control.sock", answer)
    server.start()
    connection = Connection(tmp_path / "control.sock")

    def abandon() -> None:
        is_asked.wait()
        connection.abandon()

    other = threading.Thread(target=abandon)
    other.start()
    with connection, pytest.raises(DaemonNotRunningError):
        connection.ask("wait")
    connection.abandon()  # nobody waits any more
    other.join()
    is_over.set()
    server.stop()


def test_a_peer_that_does_not_read_keeps_no_daemon_from_its_start(tmp_path: Path, peer: Peer) -> None:
    """Of whom the daemon before had a request, and whose socket is full."""
    server = Server(tmp_path / "other.sock", peer.handle)
    ours, theirs = socket.socketpair()
    session = Session(os.getuid())
    session.at_end(peer.ended.set)
    failed: list[OSError] = []

    def adopt() -> None:
        try:
            server.adopt(ours, session, {"name": "vm"})
        except OSError as error:
            failed.append(error)

    with theirs, ours:
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(4096))
        ours.setblocking(True)
        thread = threading.Thread(target=adopt, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
    assert len(failed) == 1
    assert peer.ended.is_set()
    server.stop()


def test_a_peer_of_the_daemon_before_is_answered_and_served(tmp_path: Path, peer: Peer) -> None:
    server = Server(tmp_path / "other.sock", peer.handle)
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rb") as reader:
        server.adopt(ours, Session(os.getuid()), {"name": "vm"})
        assert json.loads(reader.readline()) == {"name": "vm"}
        theirs.sendall(b'{"op": "a"}\n')
        assert json.loads(reader.readline())["echo"] == {"op": "a"}
    server.stop()


@contextlib.contextmanager
def peers_of(server: Server, uids: Sequence[int], *, are_trusted: bool = False) -> Iterator[list[socket.socket]]:
    """Of these users. `are_trusted`: as whoever admits them says."""
    with contextlib.ExitStack() as stack:
        peers = []
        for uid in uids:
            ours, theirs = socket.socketpair()
            session = Session(uid)
            session.is_trusted |= are_trusted
            server.adopt(ours, session)
            peers.append(stack.enter_context(theirs))
        yield peers
    server.stop()


def answer_of(peer: socket.socket) -> Message:
    with peer.makefile("rb") as reader:
        answer: Message = json.loads(reader.readline())
        return answer


def test_of_a_user_so_many_requests_are_answered_at_once(tmp_path: Path) -> None:
    """And no fewer, while there are as many."""
    guard, group, are_asked = threading.Lock(), threading.Barrier(MAX_AT_ONCE), threading.Event()
    nr, most = 0, 0

    def answer(session: Session, request: Message) -> Message:
        nonlocal nr, most
        with guard:
            nr += 1
            most = max(most, nr)
        are_asked.wait()
        group.wait()
        with guard:
            nr -= 1
        return {}

    server = Server(tmp_path / "other.sock", answer)
    with peers_of(server, [ALICE] * 20 * MAX_AT_ONCE) as peers:
        for peer in peers:
            peer.sendall(b'{"op": "status"}\n')
        are_asked.set()
        assert [answer_of(peer) for peer in peers] == [{}] * len(peers)
    assert most == MAX_AT_ONCE


@pytest.mark.parametrize("other", [BOB, os.geteuid()])
def test_a_user_who_asks_for_much_keeps_no_other_waiting(tmp_path: Path, other: int) -> None:
    are_begun, is_over = threading.Barrier(MAX_AT_ONCE + 1), threading.Event()

    def answer(session: Session, request: Message) -> Message:
        if session.uid == ALICE:
            are_begun.wait()
            is_over.wait()
        return {"uid": session.uid}

    server = Server(tmp_path / "other.sock", answer)
    with peers_of(server, [ALICE] * MAX_AT_ONCE + [other]) as peers:
        for peer in peers[:-1]:
            peer.sendall(b'{"op": "list"}\n')
        are_begun.wait()
        peers[-1].sendall(b'{"op": "list"}\n')
        assert answer_of(peers[-1]) == {"uid": other}
        is_over.set()
        for peer in peers[:-1]:
            assert answer_of(peer) == {"uid": ALICE}


def test_who_is_trusted_waits_for_none_of_its_own_requests(tmp_path: Path) -> None:
    are_begun, is_over = threading.Barrier(MAX_AT_ONCE + 1), threading.Event()

    def answer(session: Session, request: Message) -> Message:
        if request["op"] == "attach":
            are_begun.wait()
            is_over.wait()
        return {}

    server = Server(tmp_path / "other.sock", answer)
    with peers_of(server, [ALICE] * (MAX_AT_ONCE + 1), are_trusted=True) as peers:
        for peer in peers[:-1]:
            peer.sendall(b'{"op": "attach"}\n')
        are_begun.wait()
        peers[-1].sendall(b'{"op": "stop"}\n')
        assert answer_of(peers[-1]) == {}
        is_over.set()
        for peer in peers[:-1]:
            assert answer_of(peer) == {}


def test_an_answer_that_nobody_reads_keeps_nobody_waiting(tmp_path: Path) -> None:
    are_made = threading.Semaphore(0)

    def answer(session: Session, request: Message) -> Message:
        are_made.release()
        return {"text": "x" * request["bytes"]}

    server = Server(tmp_path / "other.sock", answer)
    with peers_of(server, [ALICE] * (MAX_AT_ONCE + 1)) as peers:
        for peer in peers[:-1]:
            peer.sendall(b'{"op": "list", "bytes": 10000000}\n')
            are_made.acquire()
        peers[-1].sendall(b'{"op": "list", "bytes": 1}\n')
        assert answer_of(peers[-1]) == {"text": "x"}
        for peer in peers[:-1]:
            peer.close()
