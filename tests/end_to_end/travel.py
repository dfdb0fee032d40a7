"""Programs whose vGPUs move to another Gpu, for the tests of moves by either way."""

import json
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from sys import executable
from typing import Any, ClassVar

from backend_host.cli import host_command
from backend_host.errors import RefusedError
from backend_host.ipc import Connection
from tests.end_to_end.host import Host, wait_until

KEPT, PAUSES = "kept_addresses", "pauses"
STAGES = ("", "preparing", "leaving", "changing", "returning", "done", "aborted", "failed")


def end_programs() -> None:
    """None outlives its test, and nothing is left of what they had."""
    hosts = {program.host.state_dir: program.host for program in Program.all}
    while Program.all:
        with Program.all.pop().child as child:
            child.kill()
    for host in hosts.values():
        wait_until(partial(has_nothing, host), "their vGPUs are gone, and no device has memory of theirs")


def has_nothing(host: Host) -> bool:
    return [(gpu["vgpus"], gpu["used_bytes"]) for gpu in devices(host)] == [([], 0), ([], 0)]


class Program:
    """One that computes once for each line, and says a line of it."""

    all: ClassVar[list["Program"]] = []

    def __init__(self, host: Host, vgpu: str, name: str = PAUSES) -> None:
        self.host = host
        self.all.append(self)
        self.child = host.start(name, options=("--vgpu", vgpu), stdin=subprocess.PIPE)
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self.child.stdout is not None
        return str(self.child.stdout.readline())

    def computes(self) -> str:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self._line()

    def ends(self) -> list[str]:
        """The lines that it said last."""
        output, errors = self.child.communicate(timeout=60)
        assert self.child.returncode == 0, (output, errors)
        return output.splitlines()


def devices(host: Host) -> list[dict[str, Any]]:
    """What `fairgv-host devices --json` prints, which takes a hundred times as long."""
    found: list[dict[str, Any]] = host.status()["gpus"]
    return found


def migrate(host: Host, vgpu: str, to: int | None = None) -> dict[str, Any]:
    """To the other Gpu, where nothing is said."""
    to = other(host, vgpu) if to is None else to
    answer = host_command(host.state_dir, "migrate", vgpu, "--to", str(to), "--json")
    assert answer.stdout, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    assert (answer.returncode, told["stage"]) == (0, "done"), told
    return told


def vgpu(host: Host, name: str) -> dict[str, Any]:
    [found] = [each for each in host.status()["vgpus"] if each["name"] == name]
    return dict(found)


def number(host: Host, name: str) -> int:
    """Of the Gpu that it is on."""
    return int(vgpu(host, name)["gpu_number"])


def other(host: Host, name: str) -> int:
    """The number of the Gpu that it is not on."""
    return 1 - number(host, name)


def begin_to_move(host: Host, name: str, stage: str) -> subprocess.Popen[str]:
    """Returns when the move has come to that stage, or was faster."""
    words = [executable, "-m", "backend_host.cli", "--state-dir", str(host.state_dir), "migrate", name]
    moving = subprocess.Popen(
        [*words, "--to", str(other(host, name))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: STAGES.index(stage_of(host, name)) >= STAGES.index(stage), f"it is {stage}")
    return moving


def stage_of(host: Host, name: str) -> str:
    """Of its move."""
    try:
        with Connection(host.state_dir / "control.sock") as connection:
            return str(connection.ask("migration", name=name)["migration"]["stage"])
    except RefusedError:
        return STAGES[0]


def go_together(host: Host, names: Sequence[str], nr_moves: int, go: Callable[[], dict[str, Any]]) -> None:
    """Programs of one vGPU, all of which are moved at once."""
    programs = [Program(host, "web", name) for name in names]
    for _ in range(nr_moves):
        for each in programs:
            each.computes()
        assert go()["plan"]["nr_programs"] == len(names)
    for each in programs:
        each.computes()
        assert each.ends()[-1] == "PASS"


def neighbours_run_on(host: Host, name: str, go: Callable[[], dict[str, Any]]) -> None:
    """One program moves to and fro beside two, one on each Gpu."""
    everybody = [Program(host, each, name) for each in ("moves", "one", "other")]
    if number(host, "one") == number(host, "other"):
        migrate(host, "other")
    for _ in range(2):
        for each in everybody:
            each.computes()
        go()
    for each in everybody:
        each.computes()
        assert each.ends()[-1] == "PASS"
