"""Who is granted the GPU next under a policy, chosen by standing as workers (backend_host/worker/page/outlook.c) and the simulator do.

Test code of several files.
"""

import math
from typing import Generic, TypeVar

from scheduler.policy import Policy, Standing

P = TypeVar("P", bound=Policy)


class Choosing(Generic[P]):
    """A policy, told what this is told, and beside it who waits, the longest waiting first."""

    def __init__(self, policy: P) -> None:
        self.policy = policy
        self.name = policy.name
        self._members: set[int] = set()
        self._waiting: dict[int, None] = {}

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        self._members.add(vgpu)
        self.policy.joined(vgpu, weight, now_ns)

    def left(self, vgpu: int, now_ns: int) -> None:
        self._members.discard(vgpu)
        self._waiting.pop(vgpu, None)
        self.policy.left(vgpu, now_ns)

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        self.policy.weight_changed(vgpu, weight, now_ns)

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        if vgpu in self._members:
            self._waiting.setdefault(vgpu)
        self.policy.backlogged(vgpu, now_ns)

    def blocked(self, vgpu: int, now_ns: int) -> None:
        self._waiting.pop(vgpu, None)
        self.policy.blocked(vgpu, now_ns)

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        self._waiting.pop(vgpu, None)
        self.policy.dispatched(vgpu, now_ns)

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        self.policy.charged(vgpu, used_ns, now_ns)

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        self.policy.indebted(vgpu, debt_ns, now_ns)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return self.policy.standing(vgpu, now_ns)

    def pick(self, now_ns: int) -> int | None:
        """Of those that wait the one of least standing, of equals the longest waiting. None: nobody, or nobody whom the policy lets run."""
        standings = {vgpu: self.policy.standing(vgpu, now_ns).value for vgpu in self._waiting}
        choice = min(standings, key=standings.__getitem__, default=None)
        return None if choice is None or standings[choice] == math.inf else choice


def tell(policy: Choosing[P], event: tuple[str, int, int, int], now_ns: int) -> None:
    """One event of a random history: its name, a vGPU, an amount. "next" is a turn of whoever is picked, who stays the holder."""
    kind, vgpu, amount, _ = event
    if kind in ("joined", "weight_changed"):
        getattr(policy, kind)(vgpu, 1 + amount % 9, now_ns)
    elif kind in ("charged", "indebted"):
        getattr(policy, kind)(vgpu, amount, now_ns)
    elif kind == "next":
        choice = policy.pick(now_ns)
        if choice is not None:
            policy.dispatched(choice, now_ns)
            policy.charged(choice, amount, now_ns)
    else:
        getattr(policy, kind)(vgpu, now_ns)
