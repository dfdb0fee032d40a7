"""Starts that fail: which ones a manager tries again, how often, and what those hear who wait. What systemd makes
of it is in tests/vm_install."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import ConfigError, DeviceUnavailableError, LastingError
from backend_host.service import failing
from backend_host.service.failing import GIVE_UP_STATUS, MOST_TRIES
from backend_host.service.manager import Manager

LATER = DeviceUnavailableError("the driver is not there yet")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """One that is there and says nothing."""
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


def test_what_the_operator_has_to_mend_is_not_tried_again(manager: Manager, tmp_path: Path) -> None:
    for error in (ConfigError("weight: -1"), LastingError("a wall is missing")):
        assert failing.exit_status(error, manager, tmp_path) == GIVE_UP_STATUS


def test_what_may_pass_is_tried_as_often_as_is_told(manager: Manager, tmp_path: Path) -> None:
    for _ in range(2):  # and once more after somebody started it by hand
        found = [failing.exit_status(LATER, manager, tmp_path) for _ in range(MOST_TRIES)]
        assert found == [1] * (MOST_TRIES - 1) + [GIVE_UP_STATUS]


def test_a_start_that_succeeds_begins_the_count_anew(manager: Manager, tmp_path: Path) -> None:
    for _ in range(MOST_TRIES - 1):
        failing.exit_status(LATER, manager, tmp_path)
    failing.forget(tmp_path)
    assert failing.exit_status(LATER, manager, tmp_path) == 1
    failing.forget(tmp_path / "nowhere")


def test_nobody_counts_where_nobody_starts_it_again(tmp_path: Path) -> None:
    found = {failing.exit_status(LATER, Manager(), tmp_path) for _ in range(MOST_TRIES + 1)}
    assert found == {1}
    assert not list(tmp_path.iterdir())


def test_a_count_that_cannot_be_written_is_none(manager: Manager, tmp_path: Path) -> None:
    assert failing.exit_status(LATER, manager, tmp_path / "nowhere") == 1


def test_the_manager_hears_why(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(60)
        manager = Manager(str(tmp_path / "notify"))
        failing.exit_status(LATER, manager, tmp_path)
        manager.close()
        assert heard.recv(4096).decode() == f"STATUS=failed: {LATER}"


START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
from backend_host import cli
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("text", "option", "status"),
    [("weight = 1", "soft", GIVE_UP_STATUS), ("devices = [7]", "soft", 1), ("", "cuda", 1)],
    ids=["a key that there is not", "a device that is not there", "no driver"],
)
def test_who_waits_is_told_or_waits_on(text: str, option: str, status: int, tmp_path: Path) -> None:
    """At the socket that a manager passes on: whoever it would start the daemon again for, at once and for ever."""
    state = tmp_path / "state"
    state.mkdir(mode=0o711)
    file = tmp_path / "config.toml"
    file.write_text(f'cuda_library = "{tmp_path}/none.so"\n{text}\n')
    path = state / "control.sock"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waits:
        listening.bind(str(path))
        listening.listen()
        waits.connect(str(path))
        waits.sendall(b'{"op": "status"}\n')
        arguments = [str(listening.fileno()), "--state-dir", str(state), "start", "--foreground"]
        child = subprocess.run(
            [sys.executable, "-c", START, *arguments, "--device", option, "--config", str(file)],
            pass_fds=[listening.fileno()],
            env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "NOTIFY_SOCKET": str(tmp_path / "notify")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == status, child.stderr
        if status == GIVE_UP_STATUS:
            waits.settimeout(60)
            answer = json.loads(waits.makefile().readline())
            assert "cannot start, and is not started again by itself" in answer["error"]
        else:
            waits.setblocking(False)
            with pytest.raises(BlockingIOError):
                waits.recv(1)
