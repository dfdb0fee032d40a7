"""`fairgv-host top` as it is called: on a terminal that is as it was afterwards, as text, as JSON, and beside a real daemon."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from backend_host.cli import host_command, main
from backend_host.ipc import Connection, Message, Server, Session
from backend_host.top.asking import Asker
from backend_host.top.figures import Looks
from tests.backend_host.top.looking import lines_of, press, status_at, view_of
from tests.end_to_end.host import Host, start_host, stop_host

WIDTH, HEIGHT = 80, 24
LEAVES_THE_SCREEN = "\x1b[?1049l"
SHOWS_THE_CURSOR = "\x1b[?25h"


class Terminal:
    """`top` on a terminal of its own."""

    def __init__(self, state_dir: Path, **environment: str) -> None:
        self.ours, self._terminal = pty.openpty()
        termios.tcsetwinsize(self._terminal, (HEIGHT, WIDTH))
        self.before = termios.tcgetattr(self._terminal)
        command = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(state_dir), "top", "--seconds", "3600"]
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        self.said = ""

    def wait_for(self, text: str) -> None:
        while text not in self.said:
            data = os.read(self.ours, 4096)
            assert data, self.said
            self.said += data.decode(errors="replace")

    def end(self) -> int:
        """Its exit status, once the terminal is as it was."""
        self.wait_for(LEAVES_THE_SCREEN)
        self.wait_for(SHOWS_THE_CURSOR)
        status = self.process.wait(60)
        assert termios.tcgetattr(self._terminal) == self.before
        assert "Traceback" not in self.said
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self._terminal)


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A daemon that is a second older at each question."""
    seconds = count()

    def answer(session: Session, request: Message) -> Message:
        return status_at(next(seconds))

    server = Server(tmp_path / "control.sock", answer)
    server.start()
    yield tmp_path
    server.stop()


@pytest.fixture
def terminal(state_dir: Path) -> Iterator[Terminal]:
    with contextlib.closing(Terminal(state_dir)) as terminal:
        terminal.wait_for("Hand-overs")
        yield terminal


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A daemon of softgpu with a program that computes until it is ended."""
    running = start_host(tmp_path_factory.mktemp("host"), nr_warm_workers=0)
    child = running.start("spin", "600000", options=("--vgpu", "busy", "--weight", "2"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    yield running
    child.terminate()
    child.communicate()
    stop_host(running)


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x03"])
def test_keys_end_it(terminal: Terminal, key: bytes) -> None:
    os.write(terminal.ours, key)
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_a_signal_leaves_the_terminal_as_it_was(terminal: Terminal, number: int, status: int) -> None:
    terminal.process.send_signal(number)
    assert terminal.end() == status


def test_once(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two looks, so that there are waits, as text without colours."""
    assert main(["--state-dir", str(state_dir), "top", "--once", "--seconds", "0.01"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    [row] = [line for line in printed.splitlines() if line.startswith("  vm1")]
    assert row.split()[:2] == ["vm1", "2"]
    assert all(text in row for text in ("┃", "20.0%", "30.0%", "2 ms", "2M/1G"))


def test_once_cuts_no_name_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a-machine-with-a-name-of-more-than-two-dozen-letters"
    server = Server(tmp_path / "control.sock", lambda session, request: status_at(1, [name]))
    server.start()
    assert main(["--state-dir", str(tmp_path), "top", "--once", "--seconds", "0.01"]) == 0
    server.stop()
    assert name in capsys.readouterr().out


def test_json(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--state-dir", str(state_dir), "top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == status_at(0)


def test_it_needs_a_terminal(state_dir: Path) -> None:
    ended = host_command(state_dir, "top")
    assert ended.returncode == 1
    assert "is none; see: fairgv-host top --once" in ended.stderr


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_it_needs_a_terminal_of_some_kind(state_dir: Path, kind: str) -> None:
    with contextlib.closing(Terminal(state_dir, TERM=kind)) as terminal:
        terminal.wait_for("set TERM to what it is")
        assert terminal.process.wait(60) == 1


@pytest.mark.parametrize("form", [[], ["--once"], ["--json"]])
def test_it_needs_a_daemon(tmp_path: Path, form: list[str]) -> None:
    if form:
        ended = host_command(tmp_path, "top", *form)
        assert ended.returncode == 1
        assert f"start one with: fairgv-host --state-dir {tmp_path} start" in ended.stderr
        return
    with contextlib.closing(Terminal(tmp_path)) as terminal:
        terminal.wait_for("start one with: fairgv-host --state-dir")
        assert terminal.process.wait(60) == 1
        assert LEAVES_THE_SCREEN not in terminal.said


def test_the_view_alone_pays_for_textual() -> None:
    source = "import sys, backend_host.cli, backend_host.top.command; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0


def test_beside_a_daemon(host: Host) -> None:
    """A look, another weight, and hand-overs, of softgpu."""

    async def play() -> None:
        asker = Asker(lambda: Connection(host.state_dir / "control.sock"))
        looks = Looks()
        app = view_of(asker, looks, looks.add(asker.ask("status")))
        async with app.run_test(size=(120, 24)) as pilot:
            await press(pilot, "space")
            [row] = [line.split() for line in lines_of(app) if line.startswith("▸ ")]
            assert row[1:3] == ["busy", "2"]
            await press(pilot, "plus", "enter")
            assert host.status()["vgpus"][0]["weight"] == 3
            [row] = [line.split() for line in lines_of(app) if line.startswith("▸ ")]
            assert row[1:3] == ["busy", "3"], "it is seen at once"
            await press(pilot, "h")
            assert any("busy" in line for line in lines_of(app))
            await press(pilot, "escape", "enter")
            assert any("spin" in line for line in lines_of(app))

    asyncio.run(play())
    printed = host_command(host.state_dir, "top", "--once", "--seconds", "0.01")
    assert printed.stderr == ""
    assert "busy" in printed.stdout
