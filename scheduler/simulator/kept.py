"""Turns that are kept to their ends, idle or not: what a GPU loses by tokens that are not given back (Gemini, sections 3.2 and 4.3).

A token of the paper's is good for its quota. While its holder has nothing to submit nobody else may, so what a quota is longer than the work is
idle time of the GPU. Here the holder pays for it, where others wait. After its end a token is asked for anew, with a new quota, by whoever has
a kernel next; where nobody waits that is the holder at once. The paper's revocation (section 3.5.3), by which a holder gives back what is too
short for one more kernel, is left out: it is what turns of this project do with all that they do not use.

For comparison in simulations alone: no worker keeps a turn.
"""

from scheduler.patience import Pauses
from scheduler.policy import Standing
from scheduler.simulator.turn import Turn


class KeptTurn(Turn):
    """One that ends by its slice, a limit or its policy, and never because it is idle or somebody came."""

    def begin_kernel(self, now_ns: int, slice_ns: int) -> None:
        super().begin_kernel(now_ns, slice_ns)
        if now_ns >= self.slice_ends_ns:
            self.renew(now_ns, slice_ns)

    def renew(self, now_ns: int, slice_ns: int) -> None:
        """One that is idle has nothing to ask for another slice for."""
        if self.idle_since_ns is None:
            super().renew(now_ns, slice_ns)

    def patience_ns(self, pauses: Pauses, now_ns: int, is_preemptive: bool, others_wait: bool, is_first: bool) -> int:
        assert self.idle_since_ns is not None
        return max(0, self.slice_ends_ns - self.idle_since_ns)

    def gives_way(self, own: Standing, first: Standing, first_since_ns: int, now_ns: int, *, stays: bool) -> bool:
        return False
