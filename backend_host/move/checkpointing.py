"""The daemon's end of the process that changes the device of workers (checkpoint.py): started ahead, told to go, and ended where it hangs."""

import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from backend_host.move.checkpoint import CHECKPOINT, LOCK, RETURN, UNLOCK

READY_S = 60.0
"""To open a device library takes a driver 100s of ms, and seconds while it is busy."""
CHANGE_S = 60.0
"""What stays on the device is moved by the driver, at about 1 GB/s (docs/lab/memory.md)."""
_READ_BYTES = 1 << 16
_VISIBLE = "CUDA_VISIBLE_DEVICES"

log = logging.getLogger("fairgv.moves")


class CheckpointError(FairGVError):
    """The process is not there, or cannot open the device library; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """What has come of a change. `has_changed`: processes are on the other device, else where they were; but for those that are `stuck`: nobody
    can bring them back. `reason`: what went wrong first. `ms`: how long each step took, of all processes together."""

    has_changed: bool
    stuck: Mapping[int, str]
    reason: str
    ms: Mapping[str, float]


@dataclass
class _Seen:
    """What the process said of one pid."""

    step: str = ""
    result: int | None = 0
    """Of that step; None: it has not ended."""
    results: dict[str, int] = field(default_factory=dict)

    @property
    def is_locked(self) -> bool:
        """For all that is known."""
        if self.step == LOCK:
            return self.result in (0, None)
        return bool(self.step) and not (self.step == UNLOCK and self.result == 0)


class Checkpointer:
    """One process, for one change. Use it `with`."""

    def __init__(self, library: str, change_s: float = CHANGE_S) -> None:
        """Starts it. Raises CheckpointError."""
        self._change_s = change_s
        self._said = b""
        command = [sys.executable, "-m", "backend_host.move.checkpoint", "--library", library]
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
        self._child.kill()
        with self._child:
            pass

    def wait(self) -> None:
        """Until it is ready. Raises CheckpointError."""
        for message in self._messages(READY_S):
            if message.get("ready"):
                return
            raise CheckpointError(f"the device library cannot change devices: {message.get('failed')}")
        raise CheckpointError(f"the process that changes devices {self._how_it_ended(READY_S)}")

    def change(self, pids: Sequence[int], origin: str, target: str) -> Outcome:
        """Puts these processes from one device on the other, by their UUIDs."""
        assert self._child.stdin is not None
        seen = {pid: _Seen() for pid in pids}
        ms: dict[str, float] = {}
        try:
            self._child.stdin.write(f"{json.dumps({'pids': list(pids), 'from': origin, 'to': target})}\n".encode())
            self._child.stdin.flush()
        except OSError as error:
            return Outcome(False, {}, f"the process that changes devices has ended: {error.strerror}", {})
        is_done = False
        for message in self._messages(self._change_s):
            if message.get("done"):
                is_done = True
                break
            _note(seen[message["pid"]], message, ms)
        ended = "" if is_done else f"the process that changes devices {self._how_it_ended(self._change_s)}"
        has_changed = bool(seen) and all(each.results.get(CHECKPOINT) == 0 for each in seen.values())
        has_changed = has_changed and not any(RETURN in each.results for each in seen.values())
        stuck = {pid: _why(each, ended) for pid, each in seen.items() if each.is_locked}
        return Outcome(has_changed and len(stuck) < len(seen), stuck, _first_error(seen) or ended, ms)

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

    def _how_it_ended(self, timeout_s: float) -> str:
        """When it says no more."""
        try:
            return f"ended with status {self._child.wait(1.0)}"
        except subprocess.TimeoutExpired:
            return f"said nothing for {timeout_s:g} s"


def _note(seen: _Seen, message: Mapping[str, Any], ms: dict[str, float]) -> None:
    step, result = message["step"], message.get("result")
    seen.step, seen.result = step, result
    if result is not None:
        seen.results.setdefault(step, result)
        ms[step] = max(ms.get(step, 0.0), message["ms"])


def _first_error(seen: Mapping[int, _Seen]) -> str:
    for step in (LOCK, CHECKPOINT, "restore", UNLOCK):
        for pid, each in seen.items():
            if each.results.get(step):
                return f"{step} of worker {pid} gives CUDA error {each.results[step]}"
    return ""


def _why(seen: _Seen, ended: str) -> str:
    return f"its {seen.step} gives CUDA error {seen.result}" if seen.result else f"its {seen.step} did not end: {ended}"
