"""Guests of a long run, which check their results, and how they ended."""

import contextlib
import enum
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


def ending_of(status: int, said: str) -> Ending:
    """Of a program with this status, or the signal as a negative one, that said so much."""
    if status == 0:
        return Ending.PASSED
    is_told = status >= 128 or status < 0 or _ERROR.search(said)
    return Ending.ERROR if is_told else Ending.WRONG


class Program(Protocol):
    """Something that computes and checks, and that things can happen to."""

    @property
    def vgpu(self) -> str: ...
    def has_ended(self) -> bool: ...
    def signal(self, number: int) -> None: ...
    def end(self, limit_s: float) -> Ended: ...
    def kill(self) -> None: ...


@dataclass
class Guest:
    """One program under `fairgv-run`, on the vGPU of its name."""

    vgpu: str
    command: subprocess.Popen[str]

    @classmethod
    def start(cls, host: Host, vgpu: str, *program: str, weight: int = 1) -> "Guest":
        return cls(vgpu, host.start(*program, options=("--vgpu", vgpu, "--weight", str(weight))))

    def has_ended(self) -> bool:
        return self.command.poll() is not None

    def signal(self, number: int) -> None:
        """To the program itself, once it runs."""
        for pid in children(self.command.pid):
            send(pid, number)

    def end(self, limit_s: float) -> Ended:
        """Waits for it; one that has not ended after `limit_s` hangs, and is left as it is."""
        try:
            output, errors = self.command.communicate(timeout=max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            return Ended(Ending.HANG, "")
        status = self.command.returncode
        return Ended(ending_of(status, output + errors), f"status {status}\n{output}{errors}")

    def kill(self) -> None:
        """Whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.command.send_signal(signal.SIGKILL)
        self.command.communicate()


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def ask(host: Host, operation: str) -> dict[str, Any]:
    """What a command asks the daemon, without a process for each."""
    with Connection(host.state_dir / "control.sock") as connection:
        return connection.ask(operation)


def await_served(host: Host, guests: Sequence[Program], limit_s: float) -> dict[str, int]:
    """The worker of each guest's program, by vGPU, once all have one. Those that ended before are left out."""
    deadline = time.monotonic() + limit_s
    while True:
        served = {
            vgpu["name"]: int(vgpu["clients"][0]["worker_pid"])
            for vgpu in ask(host, "status")["vgpus"]
            if vgpu["clients"]
        }
        awaited = [guest for guest in guests if not guest.has_ended() and guest.vgpu not in served]
        if not awaited or time.monotonic() > deadline:
            return {guest.vgpu: served[guest.vgpu] for guest in guests if guest.vgpu in served}
        time.sleep(0.01)
