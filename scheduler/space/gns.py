"""Guided neighbour search (G-Space, section 4.5): of the neighbours it looks only at the one that the micro-benchmark's surface puts first.

It moves there as long as that is better, then ends with a neighbour search.
"""

from scheduler.space.grid import Split
from scheduler.space.ns import neighbour_steps, rank
from scheduler.space.search import NEAREST, Outcome, Step, Steps, Walk


class GuidedSearch(Walk):
    """Quick where the micro-benchmark's surface has the slopes of the pair's."""

    name = "gns"
    predictor = NEAREST

    def start(self) -> Split:
        return self.given.grid.whole

    def steps(self) -> Steps:
        start = self.start()
        anchor = yield Step(start, f"{start}: where it begins")
        while (split := self._guess(anchor)) is not None:
            outcome = yield Step(split, f"{split}: predicted best of the neighbours of {anchor.split}")
            if rank(outcome) <= rank(anchor):
                break
            anchor = outcome
        yield from neighbour_steps(self, max(self.seen.values(), key=rank))

    def _guess(self, anchor: Outcome) -> Split | None:
        """Over the target the least slowdown, within it the greatest progress of those that should hold it; None: there is none."""
        predicted, target = self.given.predictions[self.predictor], self.given.target
        fresh = [split for split in self.given.grid.neighbours(anchor.split) if split not in self.seen]
        if not anchor.holds:
            return min(fresh, key=lambda split: predicted[split].slowdown_p95, default=None)
        able = [split for split in fresh if predicted[split].slowdown_p95 <= target]
        return max(able, key=lambda split: predicted[split].progress, default=None)
