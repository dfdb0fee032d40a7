"""Who asks for metrics, over TCP and a UNIX socket: answers, mistakes, and those that keep others waiting."""

import logging
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend_host.address import Address
from backend_host.errors import FairGVError
from backend_host.metrics import server as module
from backend_host.metrics.server import MetricsServer
from backend_host.metrics.text import CONTENT_TYPE
from tests.backend_host.metrics.scraping import ask

TEXT = b"# HELP a A.\n# TYPE a gauge\na 1\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(address: Address, text: Callable[[], bytes] = lambda: TEXT) -> Iterator[None]:
    server = MetricsServer(address, text)
    server.start()
    try:
        yield
    finally:
        server.stop()


def test_over_tcp() -> None:
    port = free_port()
    with running(Address(host="127.0.0.1", port=port)):
        assert ask(port) == (200, CONTENT_TYPE, TEXT.decode())
        assert ask(port, "/metrics?collect[]=a")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_over_a_unix_socket_in_place_of_one_that_was_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with running(Address(path=path)):
        assert ask(path) == (200, CONTENT_TYPE, TEXT.decode())
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


def test_a_file_is_no_socket_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("mine")
    with pytest.raises(FairGVError, match=r"cannot serve metrics on .*m: Address already in use; set another address"):
        MetricsServer(Address(path=path), lambda: TEXT)
    assert path.read_text() == "mine"


def test_an_address_that_somebody_has() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(FairGVError, match=f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"):
            MetricsServer(Address(host="127.0.0.1", port=port), lambda: TEXT)


def test_elsewhere_it_says_where(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with running(Address(path=path)):
        for other in ("/", "/metricsx", "/../metrics"):
            assert ask(path, other)[::2] == (404, "the metrics are at /metrics\n")


def test_a_fault_is_told_in_the_log_and_costs_one_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, answers = tmp_path / "m", iter([b"", TEXT])

    def text() -> bytes:
        if answer := next(answers):
            return answer
        raise ZeroDivisionError("secret")

    with running(Address(path=path), text), caplog.at_level(logging.ERROR):
        assert ask(path)[::2] == (500, "the daemon's log says why\n")
        assert ask(path)[0] == 200
    assert "ZeroDivisionError: secret" in caplog.text


@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nX: "])
def test_who_says_no_more_is_cut_off_for_the_next(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "m"
    with running(Address(path=path)), socket.socket(socket.AF_UNIX) as slow:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_PATIENCE_S", 0.05)
            slow.connect(str(path))
            slow.sendall(said)
            while slow.recv(4096):
                pass
        assert ask(path)[0] == 200


def test_who_goes_away_early_harms_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m"
    with running(Address(path=path), lambda: TEXT * 100_000):
        for said in (b"GET /metrics HTTP/1.1\r\n\r\n", b"\r\n", b"nonsense\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as hasty:
                hasty.connect(str(path))
                hasty.sendall(said)
        assert ask(path)[0] == 200
    assert capfd.readouterr() == ("", "")
