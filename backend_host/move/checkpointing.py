"""The daemon's end of the process that changes the device of workers (checkpoint.py): started ahead, told to go, and ended where it hangs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend_host.move.checkpoint import CHECKPOINT, LOCK, RETURN, UNLOCK
from backend_host.move.driver_process import DriverProcess

CHANGE_S = 60.0


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


class Checkpointer(DriverProcess):
    """One process, for one change. Use it `with`."""

    def __init__(self, library: str, change_s: float = CHANGE_S) -> None:
        """Starts it. Raises CheckpointError."""
        super().__init__("backend_host.move.checkpoint", library, change_s)

    def change(self, pids: Sequence[int], origin: str, target: str, fixed_bytes: int = 0) -> Outcome:
        """Puts these processes from one device on the other, by their UUIDs. `fixed_bytes`: what they have there still, all together."""
        limit_s = self._limit_s(2 * fixed_bytes)
        seen = {pid: _Seen() for pid in pids}
        ms: dict[str, float] = {}
        try:
            self._ask({"pids": list(pids), "from": origin, "to": target})
        except OSError as error:
            return Outcome(False, {}, f"the process that changes devices has ended: {error.strerror}", {})
        is_done = False
        for message in self._messages(limit_s):
            if message.get("done"):
                is_done = True
                break
            _note(seen[message["pid"]], message, ms)
        late = f"came to no end within {limit_s:.0f} s"
        ended = "" if is_done else f"the process that changes devices {self._how_it_ended(late)}"
        has_changed = bool(seen) and all(each.results.get(CHECKPOINT) == 0 for each in seen.values())
        has_changed = has_changed and not any(RETURN in each.results for each in seen.values())
        stuck = {pid: _why(each, ended) for pid, each in seen.items() if each.is_locked}
        return Outcome(has_changed and len(stuck) < len(seen), stuck, _first_error(seen) or ended, ms)


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
