"""`fairgv-host top`: what `status` tells, again and again, in one screen. What does not fit is counted.

The terminal is as it was when this ends, whether by q, by a signal, or because the daemon did.
"""

import argparse
import contextlib
import math
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from backend_host import tables
from backend_host.errors import FairGVError
from backend_host.ipc import Message
from backend_host.sizes import format_time
from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals

QUIT = b"qQ"


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """`top` among the commands of fairgv-host."""
    parser = commands.add_parser(
        "top",
        help="like status, again and again",
        description="The Gpus, the vGPUs, the busiest first, and their programs, in one screen. The first of the shares is that of the "
        "interval. q and Ctrl-C end it, any other key looks again at once.",
    )
    parser.add_argument("--seconds", type=_seconds, default=1.0, help="between two looks (default 1)")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError("a number of seconds, more than 0")
    return seconds


def run(look: Callable[[], Message], seconds: float) -> int:
    """To its end; the exit status. `look`: what the daemon's status is now. FairGVError where there is no terminal, or no daemon any more."""
    if not sys.stdout.isatty():
        raise FairGVError("top draws on a terminal, and standard output is none; see: fairgv-host status")
    try:
        with raised_signals(), _keys() as key_within, Live(screen=True, auto_refresh=False) as live:
            before = status = look()
            while True:
                screen = screen_of(since(before, status), seconds, live.console.height)
                live.update(screen, refresh=True)
                if key_within(seconds) in QUIT:
                    return 0
                before, status = status, look()
    except InterruptedBySignalError as interruption:
        return 0 if interruption.exit_code == 128 + signal.SIGINT else interruption.exit_code


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bytes]]:
    """Waits for a key for so many seconds; an empty one is none. Where standard input is no terminal nothing can be pressed."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield lambda seconds: os.read(fd, 1) if select.select([fd], [], [], seconds)[0] else b"\0"
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> bytes:
    time.sleep(seconds)
    return b"\0"


def since(before: Message, now: Message) -> Message:
    """The status `now` with the shares of the time since `before` in place of those of the shortest window: of Gpus, and of vGPUs, of which the
    busiest come first. What is new has its own."""
    passed_ns = now["uptime_ns"] - before["uptime_ns"]
    gpus = _with_shares(before["gpus"], now["gpus"], "number", passed_ns)
    vgpus = _with_shares(before["vgpus"], now["vgpus"], "name", passed_ns)
    return {**now, "gpus": gpus, "vgpus": sorted(vgpus, key=lambda vgpu: -next(iter(vgpu["recent_shares"].values())))}


def _with_shares(before: Sequence[Message], now: Sequence[Message], key: str, passed_ns: int) -> list[Message]:
    earlier_ns = {entry[key]: entry["used_ns"] for entry in before}
    found = []
    for entry in now:
        shortest, *others = entry["recent_shares"].items()
        used_ns = entry["used_ns"] - earlier_ns.get(entry[key], entry["used_ns"] + 1)
        if used_ns >= 0 < passed_ns:  # else it is another one of that name, or the first look
            shortest = ("interval", used_ns / passed_ns)
        found.append({**entry, "recent_shares": dict([shortest, *others])})
    return found


@dataclass(frozen=True)
class _Section:
    """A part of the screen: `draw` makes it of its first so many rows, in as many lines and `nr_heads` more."""

    what: str
    nr_rows: int
    nr_heads: int
    draw: Callable[[int], RenderableType]

    @property
    def nr_lines(self) -> int:
        return self.nr_heads + self.nr_rows

    def within(self, nr_lines: int) -> RenderableType:
        """In so many lines; the last one tells how many rows have no place."""
        if self.nr_lines <= nr_lines:
            return self.draw(self.nr_rows)
        nr_shown = max(0, nr_lines - self.nr_heads - 1)
        more = _line(f"... and {self.nr_rows - nr_shown} more {self.what}")
        return Group(self.draw(nr_shown), more) if nr_shown else more


def screen_of(status: Message, seconds: float, height: int) -> RenderableType:
    """One screen of `height` lines."""
    gpus, vgpus, notes = status["gpus"], status["vgpus"], tables.notes(status)
    clients = tables.clients_of(vgpus)
    sections = [
        _Section("Gpus", len(gpus), 0, lambda nr: Group(*(_line(_gpu(gpu)) for gpu in gpus[:nr]))),
        _Section("vGPUs", len(vgpus) or 1, 1 if vgpus else 0, lambda nr: tables.vgpus(vgpus[:nr])),
        _Section("programs", len(clients), 1, lambda nr: tables.client_table(clients[:nr])),
        _Section("remarks", len(notes), 0, lambda nr: Group(*(_line(note.plain) for note in notes[:nr]))),
    ]
    sections = [section for section in sections if section.nr_rows]
    head = f"fairgv-host top, up {format_time(status['uptime_ns'])}, every {seconds:g} s; q ends it"
    parts: list[RenderableType] = [_line(head)]
    nr_lines = divide([section.nr_lines for section in sections], height - 1 - len(sections))
    for section, nr in zip(sections, nr_lines, strict=True):
        parts += [Text(""), section.within(nr)] if nr else []
    return Group(*parts)


def divide(wanted: Sequence[int], room: int) -> list[int]:
    """How many of `room` lines each gets that wants so many: all that it wants, or as many as any other that does not."""
    given = [0] * len(wanted)
    for nr_left, place in zip(
        range(len(wanted), 0, -1), sorted(range(len(wanted)), key=lambda at: wanted[at]), strict=True
    ):
        given[place] = max(0, min(wanted[place], room // nr_left))
        room -= given[place]
    return given


def _gpu(gpu: Message) -> str:
    return f"GPU {gpu['number']}: {tables.use(gpu)} ({gpu['name']})"


def _line(text: str) -> Text:
    return tables.printable(text)
