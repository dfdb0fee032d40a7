"""The daemon's end of a process of its own that opens a device library: started ahead, told what to do, and ended where it hangs."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Self

from backend_host.children import end
from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from backend_host.move.plan import DRIVER_BYTES_PER_S

READY_S = 60.0
"""To open a device library takes a driver 100s of ms, and seconds while it is busy."""
_READ_BYTES = 1 << 16
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class CheckpointError(FairGVError):
    """The process is not there, or cannot open the device library; the text says why."""


class DriverProcess:
    """One, for one errand. Use it `with`."""

    def __init__(self, module: str, library: str, errand_s: float) -> None:
        """Starts it: `python -m MODULE --library LIBRARY`. `errand_s`: how long it may take for what it is told, beside the time in which a
        driver moves memory. Raises CheckpointError."""
        self._errand_s = errand_s
        self._said = b""
        command = [sys.executable, "-m", module, "--library", library]
        environment = {name: value for name, value in os.environ.items() if name != _VISIBLE}  # it names them all
        try:
            self._child = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=PACKAGE_ROOT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise CheckpointError(f"no process that changes devices: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, whatever it is at."""
        end(self._child)

    def wait(self) -> None:
        """Until it is ready. Raises CheckpointError."""
        for message in self._messages(READY_S):
            if message.get("ready"):
                return
            raise CheckpointError(f"the device library cannot change devices: {message.get('failed')}")
        raise CheckpointError(
            f"the process that changes devices {self._how_it_ended(f'said nothing for {READY_S:g} s')}"
        )

    def _ask(self, what: object) -> None:
        """Tells it its errand. Raises OSError where it has ended."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{json.dumps(what)}\n".encode())
        self._child.stdin.flush()

    def _limit_s(self, moved_bytes: int) -> float:
        """For an errand on which the driver moves so much memory."""
        return self._errand_s + moved_bytes / DRIVER_BYTES_PER_S

    def _messages(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """What it says, to its end or for so long."""
        assert self._child.stdout is not None
        poll = select.poll()
        poll.register(self._child.stdout, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while True:
            line, is_whole, rest = self._said.partition(b"\n")
            if is_whole:
                self._said = rest
                yield json.loads(line)
            elif not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return
            elif data := os.read(self._child.stdout.fileno(), _READ_BYTES):
                self._said += data
            else:
                return

    def _how_it_ended(self, late: str) -> str:
        """When it says no more. `late`: what it is if it lives."""
        try:
            return f"ended with status {self._child.wait(1.0)}"
        except subprocess.TimeoutExpired:
            return late
