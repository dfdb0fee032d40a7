"""The daemon's end of the process that takes contexts off a device and brings them back (process.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend_host.move.checkpoint import CHECKPOINT, LOCK, UNLOCK
from backend_host.move.driver_process import DriverProcess
from backend_host.sleep.process import FREED, LAY, ROOM, WAKE

ERRAND_S = 60.0


@dataclass(frozen=True)
class Laid:
    """`off`: these have nothing on the device, and had so many bytes there. `on`: why these go on as before. Where others are nobody knows."""

    off: Mapping[int, int]
    on: Mapping[int, str]
    ms: Mapping[str, float]


@dataclass(frozen=True)
class Woken:
    """`on`: these go on. `lost`: why nobody can bring these back. Others stay as they are: there is no room for them, or nobody was there."""

    on: frozenset[int]
    lost: Mapping[int, str]
    ms: Mapping[str, float]


@dataclass
class _Heard:
    """What the process said: of each pid the results of its steps, and the step that began and has not ended."""

    results: dict[int, dict[str, int]] = field(default_factory=dict)
    begun: dict[int, str] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    freed: dict[int, int] = field(default_factory=dict)
    """Bytes."""
    hung: str = ""
    """Where it lives and comes to no end."""

    def note(self, message: Mapping[str, Any]) -> None:
        """One more word."""
        pid, step, result = message["pid"], message["step"], message.get("result")
        if result is None:
            self.begun[pid] = step
            return
        self.begun.pop(pid, None)
        if step == FREED:
            self.freed[pid] = message["bytes"]
            return
        steps = self.results.setdefault(pid, {})
        steps.pop(step, None)  # the last one stands last
        steps[step] = result
        self.ms[step] = max(self.ms.get(step, 0.0), message["ms"])

    def failed(self, pid: int) -> str:
        """Which step failed; "": none is known to have."""
        for step, result in self.results.get(pid, {}).items():
            if result:
                return f"{step} of worker {pid} gives CUDA error {result}"
        return ""


class Errand(DriverProcess):
    """One process, for one errand. Use it `with`."""

    def __init__(self, library: str, errand_s: float = ERRAND_S) -> None:
        """Starts it. Raises CheckpointError."""
        super().__init__("backend_host.sleep.process", library, errand_s)

    def lay(self, pids: Sequence[int], device: str, context_bytes: int, fixed_bytes: int = 0) -> Laid:
        """Takes the contexts of these processes off this device, by its UUID. `context_bytes`: what one takes there; `fixed_bytes`: what they
        have there, all together."""
        lay = {"do": LAY, "pids": list(pids), "device": device, "context_bytes": context_bytes}
        heard = self._done(lay, fixed_bytes)
        done = {pid: heard.results.get(pid, {}) for pid in pids if pid not in heard.begun}
        off = {pid: heard.freed.get(pid, 0) for pid, steps in done.items() if steps == {LOCK: 0, CHECKPOINT: 0}}
        is_on = {pid: steps.get(LOCK, 0) != 0 or steps.get(UNLOCK) == 0 for pid, steps in done.items()}
        return Laid(off, {pid: heard.failed(pid) for pid in done if is_on[pid]}, heard.ms)

    def wake(self, wanted: Mapping[int, int], device: str, context_bytes: int) -> Woken:
        """Brings the contexts of processes back onto the device, of which each takes so many bytes."""
        wake = {"do": WAKE, "bytes": dict(wanted), "device": device, "context_bytes": context_bytes}
        heard = self._done(wake, sum(wanted.values()))
        lost = {pid: f"its {step} did not end: {heard.hung}" for pid, step in heard.begun.items() if heard.hung}
        on = set()
        for pid, steps in heard.results.items():
            step, result = list(steps.items())[-1]
            if (step, result) == (UNLOCK, 0):
                on.add(pid)
            elif result and step != ROOM and pid not in heard.begun:
                lost[pid] = heard.failed(pid)
        return Woken(frozenset(on), lost, heard.ms)

    def _done(self, what: object, moved_bytes: int) -> _Heard:
        heard, limit_s = _Heard(), self._limit_s(moved_bytes)
        try:
            self._ask(what)
        except OSError:
            return heard  # it has ended
        for message in self._messages(limit_s):
            if message.get("done"):
                return heard
            heard.note(message)
        if self._child.poll() is None:
            heard.hung = f"the process {self._how_it_ended(f'came to no end within {limit_s:.0f} s')}"
        return heard
