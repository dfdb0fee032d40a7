"""From all of the GPU for the critical program down to where its target still holds, then along that frontier by best effort's progress.

Where a pair has been before it begins where that ended. Else it halves n while 95 of 100 rounds stay below 0.9 of the target, goes by single
steps from there, and by halves between what holds and what does not. Then it takes a block less of each multiprocessor, and of more of them,
and does the same, block by block. It leaves out what cannot gain by what it has seen: what gives the critical program no more than a split that
was over the target, and what takes more of best effort than a split whose progress is not 2 % better than the best. When nothing is left, no
neighbour gains 2 %, and it settles. Where no split but (N, K) leaves best effort more than nothing, it takes all or nothing.

After 30 s it looks at the neighbours again, as programs change, but for one round in 200 over the target at most.

Good when: more for the critical program is less for best effort, by and large. Bad when: a kernel is fast with few blocks, slow with some more
and fast again: what lies behind a split that is over the target is never looked at.
"""

from collections.abc import Callable, Sequence

from scheduler.space.grid import NOTHING, Split
from scheduler.space.search import MOST_OVER, Given, Outcome, Step, Steps, Walk

NEAR = 0.9
"""Of the target: below it n is halved."""
GAIN = 1.02
"""Less progress more is not worth a try."""
LOOK_AGAIN_NS = 30_000_000_000
LOOK_AGAIN_OVER = 0.005
"""Of the rounds since it settled, to be spent on looking again: half of what a settled split may have over the target."""


class Climb(Walk):
    """See above."""

    name = "climb"

    def __init__(self, given: Given) -> None:
        self._settled_ns = 0
        super().__init__(given)

    def steps(self) -> Steps:
        whole, start = self.given.grid.whole, self.given.start
        if start is not None and start != whole:
            outcome = yield Step(start, f"{start}: where this pair ended last time")
            if outcome.holds:
                yield from self._tries(self._around)
                return
        yield Step(whole, f"{whole}: begins with all of the GPU")
        yield from self._tries(self._along)

    def settle(self, outcome: Outcome, step: Step) -> None:
        super().settle(outcome, step)
        self._settled_ns = outcome.now_ns

    def watch(self, outcome: Outcome) -> None:
        super().watch(outcome)
        if not outcome.holds and outcome.split != self.given.grid.whole:
            self.resume(self._tries(self._along), MOST_OVER)
        elif self.seen[outcome.split].holds and outcome.now_ns - self._settled_ns >= LOOK_AGAIN_NS:
            self._settled_ns = outcome.now_ns
            self.seen = {outcome.split: outcome}
            is_whole = outcome.split == self.given.grid.whole
            self.resume(self._tries(self._along if is_whole else self._around), LOOK_AGAIN_OVER)

    def _tries(self, choose: Callable[[], Split | None]) -> Steps:
        while (split := choose()) is not None:
            yield Step(split, f"{self.best()} holds the target: tries {split}")

    def _along(self) -> Split | None:
        """In the row of most blocks that has something to gain; when none has, to take nothing of best effort at all."""
        grid = self.given.grid
        for k in reversed(grid.ks):
            able = self._able([Split(n, k) for n in grid.ns])
            if able:
                return self._between(able)
        return next(iter(self._able([NOTHING])), None)

    def _around(self) -> Split | None:
        """The neighbour of the best that gives the critical program most."""
        able = self._able(self.given.grid.neighbours(self.best()))
        return able[0] if able else None

    def _between(self, row: Sequence[Split]) -> Split:
        """Half way, or one step from what is near the target."""
        last = row[-1]
        held = [each for each in self.seen.values() if each.split.k == last.k and each.split.gives(last) and each.holds]
        is_near = bool(held) and min(held, key=lambda each: each.split).load >= NEAR
        return last if is_near else row[len(row) // 2]

    def _able(self, splits: Sequence[Split]) -> list[Split]:
        """What may hold the target and gain."""
        best = self.seen.get(self.best())
        least = GAIN * best.progress if best is not None else 0.0
        return [split for split in splits if split not in self.seen and self._may_gain(split, least)]

    def _may_gain(self, split: Split, least: float) -> bool:
        for each in self.seen.values():
            if not each.holds and each.split.gives(split):
                return False
            if each.progress < least and split.gives(each.split):
                return False
        return True
