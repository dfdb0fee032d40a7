"""Guests of a long run, which check their results, and how they ended."""

import contextlib
import enum
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from backend_host.ipc import Connection
from tests.end_to_end.host import Host
from tests.endurance.processes import children

_ERROR = re.compile(r"cudaError|CUDA_ERROR|fairgv: |fairgv-run: ")


class Ending(enum.Enum):
    """How a program ended."""

    PASSED = "passed"
    ERROR = "error"
    """It was told an error, or was killed, which is right where something was done to it."""
    WRONG = "wrong"
    """It was told no error, and its results are not right."""
    HANG = "hang"


@dataclass(frozen=True)
class Ended:
    """The ending, and what the program had to say."""

    ending: Ending
    said: str


@dataclass
class Guest:
    """One program under `fairgv-run`, on the vGPU of its name."""

    vgpu: str
    command: subprocess.Popen[str]

    @classmethod
    def start(cls, host: Host, vgpu: str, *program: str, weight: int = 1) -> "Guest":
        return cls(vgpu, host.start(*program, options=("--vgpu", vgpu, "--weight", str(weight))))

    def program_pid(self) -> int | None:
        """Of the program itself; None before it runs, and after."""
        return next(children(self.command.pid), None)

    def end(self, limit_s: float) -> Ended:
        """Waits for it; one that has not ended after `limit_s` hangs, and is left as it is."""
        try:
            output, errors = self.command.communicate(timeout=max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            return Ended(Ending.HANG, "")
        status = self.command.returncode
        said = f"status {status}\n{output}{errors}"
        if status == 0:
            return Ended(Ending.PASSED, said)
        is_told = status >= 128 or status < 0 or _ERROR.search(output + errors)
        return Ended(Ending.ERROR if is_told else Ending.WRONG, said)

    def kill(self) -> None:
        """Whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.command.send_signal(signal.SIGKILL)
        self.command.communicate()


def ask(host: Host, operation: str) -> dict[str, Any]:
    """What a command asks the daemon, without a process for each."""
    with Connection(host.state_dir / "control.sock") as connection:
        return connection.ask(operation)


def await_served(host: Host, guests: list[Guest], limit_s: float) -> dict[str, int]:
    """The worker of each guest's program, by vGPU, once all have one. Those that ended before are left out."""
    deadline = time.monotonic() + limit_s
    while True:
        served = {
            vgpu["name"]: int(vgpu["clients"][0]["worker_pid"])
            for vgpu in ask(host, "status")["vgpus"]
            if vgpu["clients"]
        }
        awaited = [guest for guest in guests if guest.command.poll() is None and guest.vgpu not in served]
        if not awaited or time.monotonic() > deadline:
            return {guest.vgpu: served[guest.vgpu] for guest in guests if guest.vgpu in served}
        time.sleep(0.01)
