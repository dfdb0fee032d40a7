"""The protocol of systemd, played by a test: what the daemon tells, what it is given, when it says that it is well."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from backend_host.service.duties import Duties
from backend_host.service.manager import Manager

PASSED_ON = """
import os, sys
from pathlib import Path
from backend_host.ipc import Server
from backend_host.service.manager import Manager
os.environ["LISTEN_PID"] = str(os.getpid())
listening = Manager.take(os.environ).listening(Path(sys.argv[1]))
assert listening.fileno() == 3 and not listening.get_inheritable()
server = Server(Path(sys.argv[1]), lambda session, request: {"uid": session.uid}, listening)
server.start()
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    """What a manager hears."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(60)
        yield notified


def told(heard: socket.socket) -> list[str]:
    """All that waits there now."""
    messages = []
    heard.setblocking(False)
    try:
        while True:
            messages.append(heard.recv(4096).decode())
    except BlockingIOError:
        return messages


def test_it_is_told_words_a_line_each(heard: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000", "PATH": "/bin"}
    manager = Manager.take(environment)
    assert environment == {"PATH": "/bin"}, "no child speaks for the daemon"
    assert manager.watchdog_ns == 30_000_000_000
    manager.tell(READY=1, STATUS="serves\none device")
    manager.tell(STOPPING=1)
    assert told(heard) == ["READY=1\nSTATUS=serves one device", "STOPPING=1"]
    manager.close()
    manager.tell(READY=1)
    assert told(heard) == []


def test_an_abstract_address() -> None:
    name = f"fairgv-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"\0{name}")
        manager = Manager.take({"NOTIFY_SOCKET": f"@{name}"})
        manager.tell(READY=1)
        assert notified.recv(4096) == b"READY=1"
        manager.close()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000"},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "-5"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "many", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_what_is_not_for_us_is_left_alone(environment: dict[str, str], tmp_path: Path) -> None:
    manager = Manager.take(environment)
    assert manager.watchdog_ns == 0
    assert manager.listening(tmp_path / "control.sock") is None
    manager.tell(READY=1)
    manager.close()


def test_a_watchdog_is_fed_while_all_keepers_look(heard: socket.socket, tmp_path: Path) -> None:
    looks = [3, 7]
    manager = Manager(str(tmp_path / "notify"), watchdog_ns=40_000_000)
    duties = Duties(manager, lambda: looks, lambda: None)
    duties.feed()
    assert told(heard) == ["WATCHDOG=1"]
    for stalled in ([3, 7], [4, 7], [3, 8]):
        looks[:] = stalled
        duties.feed()
        assert told(heard) == [], "a keeper that stands still is not well"
    looks[:] = [4, 8]
    duties.feed()
    assert told(heard) == ["WATCHDOG=1"]
    duties.stop()
    manager.close()


def test_duties_feed_and_reload(heard: socket.socket, tmp_path: Path) -> None:
    reloads: list[int] = []

    def reload() -> None:
        reloads.append(len(reloads))
        if len(reloads) == 1:
            raise FairGVError("not this time")
        manager.tell(STATUS="read again")

    nr = iter(range(1 << 30))
    manager = Manager(str(tmp_path / "notify"), watchdog_ns=4_000_000)
    duties = Duties(manager, lambda: [next(nr)], reload)
    duties.start()
    assert heard.recv(64) == b"WATCHDOG=1"
    duties.ask_to_reload()
    while not reloads:
        heard.recv(64)
    duties.ask_to_reload()
    while heard.recv(64) != b"STATUS=read again":
        pass
    duties.stop()
    assert len(reloads) == 2, "a refusal ends nothing"
    manager.close()


def test_a_reload_that_takes_long_starves_no_watchdog(heard: socket.socket, tmp_path: Path) -> None:
    """The manager would kill a daemon that is well."""
    is_begun, is_over = threading.Event(), threading.Event()

    def reload() -> None:
        is_begun.set()
        is_over.wait()

    nr = iter(range(1 << 30))
    manager = Manager(str(tmp_path / "notify"), watchdog_ns=4_000_000)
    duties = Duties(manager, lambda: [next(nr)], reload)
    duties.start()
    duties.ask_to_reload()
    assert is_begun.wait(30)
    told(heard)
    heard.settimeout(30)
    try:
        assert heard.recv(64) == heard.recv(64) == b"WATCHDOG=1"
    finally:
        is_over.set()
    duties.stop()
    manager.close()


def test_a_socket_that_was_passed_on(tmp_path: Path) -> None:
    """It serves there, and leaves the socket to whoever made it."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        passed = os.dup(listening.fileno())
        for _ in range(2):
            child = subprocess.Popen(
                [sys.executable, "-c", PASSED_ON, str(path)],
                stdin=subprocess.PIPE,
                env={**os.environ, "LISTEN_FDS": "1", "PYTHONPATH": str(PACKAGE_ROOT)},
                preexec_fn=lambda: os.dup2(passed, 3),  # noqa: PLW1509 - one thread
                close_fds=False,
            )
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(path))
                peer.sendall(b'{"op": "hello"}\n')
                assert peer.recv(4096) == b'{"uid": %d}\n' % os.getuid()
                child.communicate(b"")
                assert child.returncode == 0
                assert peer.recv(4096) == b""
        os.close(passed)
        assert path.is_socket()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_at_another_place(tmp_path: Path, kind: socket.SocketKind) -> None:
    script = PASSED_ON.replace("sys.argv[1])).f", "'/elsewhere')).f").replace(
        "Manager.take(os.environ).listening(Path(sys.argv[1]))",
        "Manager.take(os.environ).listening(Path('/elsewhere'))",
    )
    with socket.socket(socket.AF_UNIX, kind) as listening:
        listening.bind(str(tmp_path / "control.sock"))
        passed = os.dup(listening.fileno())
        result = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "control.sock")],
            env={**os.environ, "LISTEN_FDS": "1", "PYTHONPATH": str(PACKAGE_ROOT)},
            preexec_fn=lambda: os.dup2(passed, 3),
            close_fds=False,
            capture_output=True,
            text=True,
            check=False,
        )
        os.close(passed)
    assert result.returncode == 1
    assert "let it listen on /elsewhere" in result.stderr
