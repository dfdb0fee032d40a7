"""What a scheduling policy is: a small class over the events of a vGPU's life, the same in the daemon and in the simulator.

A policy is pure: no I/O, no threads, no clock of its own. Time is handed in with every event, in nanoseconds on any monotonic scale.
It says one thing, where each vGPU stands; who holds the GPU, and how long, is the caller's business. See `first_come.py` for the smallest
one, and CONTRIBUTING.md for what adding one touches.
"""

from fractions import Fraction
from typing import NamedTuple, Protocol, runtime_checkable


class Standing(NamedTuple):
    """Where a vGPU stands: its value if it were backlogged now, and how much that grows with each ns it uses.

    `budget_ns` is how long a turn of it may last while others wait; None: the slice.
    """

    value: float
    per_ns: float = 0.0
    budget_ns: int | None = None


class Policy(Protocol):
    """Ranks vGPUs: of the backlogged ones, the one of least standing is granted the GPU next, and of equals who has waited longest.

    vGPUs are named by small integers that the caller chose.
    """

    name: str

    def joined(self, vgpu: int, weight: int, now_ns: int) -> None:
        """A vGPU exists from now on; it is not backlogged. `weight` is at least 1."""

    def left(self, vgpu: int, now_ns: int) -> None:
        """The vGPU is gone, whatever it was doing. Unknown ones are ignored."""

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        """From now on its share follows the new weight; what it used before stays used."""

    def backlogged(self, vgpu: int, now_ns: int) -> None:
        """It has GPU work to submit and does not hold the GPU. Repeating it changes nothing."""

    def blocked(self, vgpu: int, now_ns: int) -> None:
        """It has nothing to submit any more."""

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        """It was granted the GPU: no longer backlogged until it says so again."""

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        """It used the GPU for `used_ns` more."""

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        """It is to wait as if it had used the GPU for `debt_ns` more: for what it did to others before, and not for a turn of now."""

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        """Where it stands, backlogged or not.

        The daemon publishes this for the workers, which hand the GPU over by themselves and know of later charges than the policy does.
        Infinite: behind all others; the simulator, whose policies hear of everything at once, grants such a vGPU nothing. Changes nothing:
        asking twice gives the same answer.
        """


@runtime_checkable
class Bounded(Protocol):
    """What a policy has besides when it keeps requests: shares of the GPU that a vGPU is to get whenever it has work for them.

    The limit is kept by the caller, a worker or the simulator, so it holds under every policy. Whoever is held back is blocked for the policy:
    one that waited and was never picked would keep virtual time back. A request needs a policy that is Bounded.
    """

    def bounds_changed(self, vgpu: int, request: float, limit: float, now_ns: int) -> None:
        """Shares of the GPU from 0 to 1; request 0: none, limit 1: none. Called after `joined`, and whenever they change.

        Unknown vGPUs are ignored. Bounds are forgotten when the vGPU leaves.
        """


def exact_share(share: float) -> Fraction:
    """A share of the GPU in thousandths, the nearest: people give percent with one decimal, which floats cannot hold."""
    return Fraction(round(share * 1000), 1000)
