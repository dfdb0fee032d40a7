"""Reads what a guest of `initramfs.py` reports on its serial console, byte by byte as it comes, and tells the result of
each command.

Wrong when: the kernel prints into a program's output; only an emergency does at the log level that the images ask for.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from backend_host.vm.initramfs import GuestCommand


class Progress(enum.Enum):
    """What a guest has just told."""

    READY = "ready"
    BEGUN = "begun"
    ENDED = "ended"
    DONE = "done"


@dataclass(frozen=True)
class CommandResult:
    """`exit_code` as a shell gives it (128 + signal); None while the command runs, or when the guest ended before it
    did.
    """

    command: GuestCommand
    output: str
    exit_code: int | None


class GuestOutput:
    """Feed it the console; it keeps the commands' results, and the rest for the case that something went wrong."""

    def __init__(self, marker: str, commands: Sequence[GuestCommand]) -> None:
        self._marker = marker.encode() + b" "
        self._commands = list(commands)
        self._buffer = b""
        self._lines: dict[int, list[bytes]] = {}
        self._exit_codes: dict[int, int] = {}
        self._running: int | None = None
        self._other: list[bytes] = []
        self.is_ready = False
        self.is_done = False

    def feed(self, data: bytes) -> list[tuple[Progress, int]]:
        """Takes what the console delivered; returns the news in it, each with its command's number (0 where none)."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        news = (self._line(line.rstrip(b"\r")) for line in lines)
        return [item for item in news if item]

    def results(self) -> list[CommandResult]:
        """One per command, in their order."""
        return [
            CommandResult(
                command,
                b"\n".join(self._lines.get(number, [])).decode(errors="replace").rstrip("\n"),
                self._exit_codes.get(number),
            )
            for number, command in enumerate(self._commands)
        ]

    def console(self) -> str:
        """What firmware, kernel and init said outside of the commands."""
        return b"\n".join([*self._other, self._buffer]).decode(errors="replace")

    def _line(self, line: bytes) -> tuple[Progress, int] | None:
        if not line.startswith(self._marker):
            (self._other if self._running is None else self._lines[self._running]).append(line)
            return None
        word, *numbers = line.removeprefix(self._marker).decode().split()
        match word:
            case "ready":
                # Also after a reset, which may have come while a command ran.
                self.is_ready, self._running = True, None
                self._lines.clear()
                self._exit_codes.clear()
                return Progress.READY, 0
            case "begin":
                self._running = int(numbers[0])
                self._lines[self._running] = []
                return Progress.BEGUN, self._running
            case "end":
                ended = int(numbers[0])
                self._exit_codes[ended] = int(numbers[1])
                self._running = None
                return Progress.ENDED, ended
            case _:
                self.is_done = True
                return Progress.DONE, 0
