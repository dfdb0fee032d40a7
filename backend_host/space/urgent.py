"""Whether critical vGPUs go before all others: for as long as they took less of the last 10 s out of turn than they may.

Their accounts say what they took so, by all of their workers, those that have ended, too. Beyond it a critical vGPU waits for its turn as
others do, until enough of that is 10 s old. What a vGPU took before the first look at it is not counted: an earlier daemon may have. What it
took on one Gpu goes along to another.

Wrong when: a worker was taken over and counts too little. Its guest then has its GPU time before others, and still pays for it by its tags.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from backend_host.device.control import ControlPage
from backend_host.entitlement import WHOLE, Entitlement

WINDOW_NS = 10_000_000_000


@dataclass
class Used:
    """Out of turn, by one vGPU."""

    counted_ns: int
    """By its account, at the look before."""
    pieces: deque[tuple[int, int]] = field(default_factory=deque)
    """When, and how much more it was than at the look before."""
    in_window_ns: int = 0

    def look(self, now_ns: int, counted_ns: int) -> None:
        more_ns, self.counted_ns = counted_ns - self.counted_ns, counted_ns
        if more_ns > 0:
            self.pieces.append((now_ns, more_ns))
            self.in_window_ns += more_ns
        while self.pieces and self.pieces[0][0] <= now_ns - WINDOW_NS:
            self.in_window_ns -= self.pieces.popleft()[1]


class Urgent:
    """Of one Gpu, by looks of whoever calls. Thread-safe."""

    def __init__(
        self,
        page: ControlPage,
        criticals: Callable[[], Mapping[int, Entitlement]],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`criticals`: the critical vGPUs that there are, by their numbers."""
        self._page, self._criticals, self._clock = page, criticals, clock
        self._used: dict[int, Used] = {}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Says of each what it may now."""
        criticals = self._criticals()
        with self._lock:
            self._look(criticals)

    def leave(self, vgpu: int) -> Used | None:
        """It goes to another Gpu: what it took here by now, if it is critical."""
        with self._lock:
            used, account = self._used.get(vgpu), self._page.vgpu(vgpu)
            if used is not None and account is not None:
                used.look(self._clock(), account.out_of_turn_ns)
            return used

    def join(self, vgpu: int, used: Used) -> None:
        """It has come, with that, and has not computed here yet."""
        with self._lock:
            self._used[vgpu] = replace(used, counted_ns=0)

    def _look(self, criticals: Mapping[int, Entitlement]) -> None:
        for vgpu in self._used.keys() - criticals.keys():
            del self._used[vgpu]
            self._page.set_urgent(vgpu, is_urgent=False)
        now_ns = self._clock()
        for vgpu, entitlement in criticals.items():
            account = self._page.vgpu(vgpu)
            if account is None:
                continue  # it is gone by now
            used = self._used.setdefault(vgpu, Used(account.out_of_turn_ns))
            if account.out_of_turn_ns < used.counted_ns:  # another one has its number now
                used = self._used[vgpu] = Used(0)
            used.look(now_ns, account.out_of_turn_ns)
            may_ns = entitlement.most / WHOLE * WINDOW_NS
            self._page.set_urgent(vgpu, is_urgent=used.in_window_ns < may_ns)

    def part(self, vgpu: int) -> float:
        """Of the last 10 s, what this one took out of turn."""
        with self._lock:
            used = self._used.get(vgpu)
        return 0.0 if used is None else used.in_window_ns / WINDOW_NS
