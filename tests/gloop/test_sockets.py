"""Sockets on loopback: a server of event loops, its clients, and what is left when it ends."""

import contextlib
import errno
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.gloop.conftest import Runner


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def serving(runner: Runner, port: int, points: int = 0) -> Iterator[subprocess.Popen[str]]:
    """An echo server of three blocks; killed at the end if it still runs."""
    server = runner.start("sockets", "serve", port, 3, points=points)
    try:
        assert server.stdout
        assert server.stdout.readline() == "listens\n"
        yield server
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("points", [0, 1])
def test_what_is_sent_comes_back(runner: Runner, points: int) -> None:
    port = free_port()
    with serving(runner, port, points) as server:
        for nr_bytes in (10, 50_000, 300_000):
            result = runner.run("sockets", "ask", port, nr_bytes, 6, points=points)
            assert result.stdout == "right 6\n", result.stderr
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"from elsewhere")
            assert connection.recv(100) == b"from elsewhere"
        assert runner.run("sockets", "end", port).returncode == 0
        output, errors = server.communicate()
        assert (server.returncode, output) == (0, f"accept while it closes {-errno.ECANCELED}\n"), errors
    socket.create_server(("127.0.0.1", port)).close()


def test_calls_that_fail_give_minus_errno(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        result = runner.run("sockets", "errors", listening.getsockname()[1])
    assert [errno.errorcode[-int(number)] for number in result.stdout.split()] == [
        "EADDRINUSE",
        "ECONNREFUSED",
        "ENAMETOOLONG",
        "EADDRNOTAVAIL",
        "EBADF",
        "EBADF",
        "EBADF",
    ], result.stderr


def test_ctrl_c_leaves_no_thread_and_no_socket(runner: Runner) -> None:
    port = free_port()
    with serving(runner, port) as server, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        server.send_signal(signal.SIGINT)
        server.communicate()
        assert server.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
        assert connection.recv(1) == b""
    socket.create_server(("127.0.0.1", port)).close()


def test_a_kernel_that_only_waits_has_ended(runner: Runner) -> None:
    result = runner.run("refusals", "idle", free_port())
    assert result.stdout == "kernel has ended\naccepted 1\n", result.stderr
