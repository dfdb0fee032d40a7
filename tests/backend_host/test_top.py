"""`fairgv-host top`: what fits a screen and how much more there is, the shares of an interval, keys, and a terminal that is as it was."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from backend_host import top
from backend_host.errors import FairGVError
from backend_host.ipc import Message, Server
from tests.backend_host.told import status_of

WIDTH, HEIGHT = 80, 24
LEAVES_THE_SCREEN = "\x1b[?1049l"
SHOWS_THE_CURSOR = "\x1b[?25h"


def many(nr_vgpus: int, nr_clients: int = 1, nr_remarks: int = 0) -> Message:
    """A host with so many vGPUs, each with so many programs, some of which there is a remark about."""
    message = status_of()
    [vgpu] = message["vgpus"]
    message["vgpus"] = [
        {
            **vgpu,
            "name": f"vm{nr}",
            "clients": vgpu["clients"] * nr_clients,
            "totals": {**vgpu["totals"], "limited_ns": int(nr < nr_remarks)},
        }
        for nr in range(nr_vgpus)
    ]
    return message


def lines_of(message: Message, height: int = HEIGHT) -> list[str]:
    console = Console(width=WIDTH)
    with console.capture() as capture:
        console.print(top.screen_of(message, 1.0, height))
    return capture.get().splitlines()


def test_what_fits_is_there() -> None:
    lines = lines_of(many(3, nr_remarks=1))
    assert "q ends it" in lines[0]
    assert not any("more" in line for line in lines)
    assert sum(line.startswith("vm") for line in lines) == 3 + 3 + 1


@pytest.mark.parametrize(("nr_vgpus", "nr_clients"), [(40, 1), (2, 60), (64, 64), (40, 0)])
def test_what_does_not_fit_is_counted(nr_vgpus: int, nr_clients: int) -> None:
    lines = lines_of(many(nr_vgpus, nr_clients))
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    heads = [place for place, line in enumerate(lines) if line.startswith("vGPU ")]
    sections = [lines[begin:end] for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True)]
    for section, nr, what in zip(sections, (nr_vgpus, nr_vgpus * nr_clients), ("vGPUs", "programs"), strict=False):
        nr_shown = sum(line.startswith("vm") for line in section)
        assert nr_shown > 0
        assert (f"... and {nr - nr_shown} more {what}" in section) == (nr_shown < nr)


@given(st.integers(0, 70), st.integers(0, 3), st.integers(0, 70), st.integers(1, 60))
def test_a_screen_is_no_longer_than_the_terminal(nr_vgpus: int, nr_clients: int, nr_remarks: int, height: int) -> None:
    assert len(lines_of(many(nr_vgpus, nr_clients, nr_remarks), height)) <= height


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(-5, 100))
def test_lines_are_divided(wanted: list[int], room: int) -> None:
    given_lines = top.divide(wanted, room)
    assert all(0 <= got <= want for got, want in zip(given_lines, wanted, strict=True))
    assert sum(given_lines) == min(sum(wanted), max(0, room))
    less = [got for got, want in zip(given_lines, wanted, strict=True) if got < want]
    assert not less or max(given_lines) <= max(less) + 1, "nobody has more than one that wants more"


def test_shares_are_those_of_the_interval() -> None:
    """3 s pass; one vGPU uses 2 s of them, another nothing, a third has come meanwhile, a fourth is another one of its name."""
    before, now = many(4), many(4)
    now["uptime_ns"] += 3 * 10**9
    now["gpus"][0]["used_ns"] += 3 * 10**9
    now["vgpus"][1]["used_ns"] += 2 * 10**9
    before["vgpus"][3]["used_ns"] += 10**9
    del before["vgpus"][2]
    found = top.since(before, now)
    first = {vgpu["name"]: next(iter(vgpu["recent_shares"].items())) for vgpu in found["vgpus"]}
    assert first == {
        "vm1": ("interval", pytest.approx(2 / 3)),
        "vm2": ("1", 0.5),
        "vm3": ("1", 0.5),
        "vm0": ("interval", 0),
    }
    assert list(first) == ["vm1", "vm2", "vm3", "vm0"], "the busiest first"
    assert found["gpus"][0]["recent_shares"]["interval"] == pytest.approx(1.0)
    assert list(found["vgpus"][0]["recent_shares"]) == ["interval", "10", "60"]


def test_the_first_look_has_no_interval() -> None:
    message = many(2)
    assert top.since(message, message)["vgpus"] == message["vgpus"]


def test_it_needs_a_terminal() -> None:
    with pytest.raises(FairGVError, match="see: fairgv-host status"):
        top.run(lambda: many(1), 1.0)


class Screen:
    """`top` on a terminal of its own; `more` ends the daemon."""

    def __init__(self, state_dir: Path) -> None:
        self.ours, self._terminal = pty.openpty()
        self.before = termios.tcgetattr(self._terminal)
        command = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(state_dir), "top", "--seconds", "3600"]
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)},
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
        status = self.process.wait(60)
        assert termios.tcgetattr(self._terminal) == self.before
        assert SHOWS_THE_CURSOR in self.said
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self._terminal)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    server = Server(tmp_path / "control.sock", lambda session, request: many(3))
    server.start()
    screen = Screen(tmp_path)
    with contextlib.closing(screen):
        screen.wait_for("q ends it")
        yield screen
    server.stop()


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x03"])
def test_keys_end_it(screen: Screen, key: bytes) -> None:
    screen.wait_for("program")
    os.write(screen.ours, key)
    assert screen.end() == 0
    assert "Traceback" not in screen.said


def test_another_key_looks_again(screen: Screen) -> None:
    screen.wait_for("program")
    screen.said = ""
    os.write(screen.ours, b" ")
    screen.wait_for("vm2")
    os.write(screen.ours, b"q")
    assert screen.end() == 0


def test_a_signal_leaves_the_terminal_as_it_was(screen: Screen) -> None:
    screen.wait_for("program")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end() == 128 + signal.SIGTERM
