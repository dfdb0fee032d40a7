"""Bursts of GPU time: the workers' monitor (backend_host/worker/track/burst.c) for the simulator, the same to the ns.

A burst is what a program uses between two moments in which it has nothing on the device and wants nothing. A pause that is shorter than a
switch to another vGPU and back, or than a twentieth of the mean burst, ends none. Waiting for a turn or a limit is no pause, so a burst may
span turns. The last 32 are kept, and the pauses behind them (Gemini, section 3.5.2).

Wrong when: a program never pauses. It has no burst then.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

KEPT = 32
"""So many bursts are kept."""

SHORT_DIVISOR = 20
"""So much of the mean burst may be a pause within one: 5 %, as in the paper."""


class BurstView(NamedTuple):
    """What is known: nine in ten bursts are no longer than `percentile_ns`, the last one took `last_ns`; `gap_ns` is the mean pause."""

    percentile_ns: int = 0
    last_ns: int = 0
    gap_ns: int = 0


def _kept() -> deque[int]:
    return deque(maxlen=KEPT)


@dataclass(slots=True)
class Bursts:
    """Of one program. GPU time is what it has used so far, on a scale that never goes back; moments are after 0. All in ns."""

    nr: int = 0
    """That have ended."""
    _burst_ns: deque[int] = field(default_factory=_kept)
    _gap_ns: deque[int] = field(default_factory=_kept)
    _begun_gpu_ns: int = 0
    _quiet_gpu_ns: int = 0
    _quiet_since_ns: int = 0

    def pause(self, gpu_ns: int, now_ns: int) -> None:
        """The device has none of its work from now on, and it wants nothing so far."""
        self._quiet_gpu_ns, self._quiet_since_ns = gpu_ns, now_ns

    def resume(self, switch_ns: int, now_ns: int) -> bool:
        """It wants something again. True: that was a pause, and ended a burst."""
        since_ns, self._quiet_since_ns = self._quiet_since_ns, 0
        burst_ns, gap_ns = self._quiet_gpu_ns - self._begun_gpu_ns, now_ns - since_ns
        if not since_ns or not burst_ns or gap_ns <= switch_ns:
            return False
        mean_ns = _mean(self._burst_ns) if self.nr else burst_ns
        if gap_ns <= mean_ns // SHORT_DIVISOR:
            return False
        self.nr += 1
        self._burst_ns.append(burst_ns)
        self._gap_ns.append(gap_ns)
        self._begun_gpu_ns = self._quiet_gpu_ns
        return True

    def view(self) -> BurstView:
        """Zeros before a burst has ended."""
        if not self.nr:
            return BurstView()
        nr_most = (len(self._burst_ns) * 9 + 9) // 10
        return BurstView(sorted(self._burst_ns)[nr_most - 1], self._burst_ns[-1], _mean(self._gap_ns))


def _mean(values_ns: deque[int]) -> int:
    return sum(values_ns) // len(values_ns)
