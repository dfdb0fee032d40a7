"""What a machine's console says of its programs, whenever it comes."""

from types import SimpleNamespace
from typing import Any, cast

from benchmarks.guests.machine import MachineRunning

TOKEN = "@bench-1"


def console(text: str) -> Any:
    """A guest whose shell has written this, and which nothing more comes from: to wait for it fails."""
    return cast("Any", SimpleNamespace(results=lambda: [SimpleNamespace(output=text)], name="vm-0"))


def test_a_shell_that_was_there_before_anybody_looked_is_there() -> None:
    shell = MachineRunning(console(f"\n{TOKEN} 0"), TOKEN, "the shell", nr_read=0)
    assert shell.finish(0.0).exit_code == 0


def test_what_came_before_a_program_is_not_its_own() -> None:
    guest = console(f"\n{TOKEN} 0")
    running = MachineRunning(guest, TOKEN, "a program")
    guest.results = lambda: [SimpleNamespace(output=f"\n{TOKEN} 0\nhello\n\n{TOKEN} 3")]
    finished = running.finish(0.0)
    assert (finished.output, finished.exit_code) == ("hello\n", 3)
