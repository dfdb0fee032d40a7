"""First come, first served: whoever has waited longest is next. Weights are ignored.

Good when: all vGPUs have kernels of about the same length, or as the last resort that any other policy falls back to, because it cannot fail.
Bad when: fairness matters. A vGPU that fills its slice and one that uses a tenth of it get the same number of turns, not the same time.
"""

import math

from scheduler.policy import Standing


class FirstCome:
    """The order of becoming backlogged is the order of service. Each event costs O(1)."""

    name = "first-come"

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._queue: dict[int, int] = {}
        self._nr_arrivals = 0

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        self._members.add(vgpu)

    def left(self, vgpu: int, now_ns: int) -> None:
        self._members.discard(vgpu)
        self._queue.pop(vgpu, None)

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        pass

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        if vgpu in self._members and vgpu not in self._queue:
            self._queue[vgpu] = self._nr_arrivals
            self._nr_arrivals += 1

    def blocked(self, vgpu: int, now_ns: int) -> None:
        self._queue.pop(vgpu, None)

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        self._queue.pop(vgpu, None)

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        pass

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        pass

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return Standing(self._queue.get(vgpu, math.inf))
