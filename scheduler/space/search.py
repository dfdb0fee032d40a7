"""What a search of a split is: a small class that is told what came of the split in use, and says which one to use next.

A search is pure: no I/O, no threads, no clock of its own; time is handed in with each outcome. The daemon and the replay of recorded surfaces
run the same classes. `whole.py` is the smallest one.

What all have in common stands in `Walk`. A split over the target is left at once for the best that is known to hold it, and for as long as more
than one round in 20 would be over the target: a search pays for its tries with time. Once settled, it stays until its split is over the target,
by 20 rounds or by one in a hundred of all; then the best of the others that it has seen takes its place.

Sharing has to gain something, too. While a round lasts best effort loses time, and with all of the GPU for the critical program the round would
be shorter: where critical time alone over the round, plus best effort's progress, is below 0.98, taking turns is better than the split.

Wrong when: outcomes are few. A program that computes once in a minute is searched for hours.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from scheduler.space.grid import Grid, Split
from scheduler.space.surface import Surface

LEAST_UTILISATION = 0.98
"""Of a split that is worth it. Turns reach 1; the rest is room for noise."""
SPARE = 0.5
"""Of how much slower the slow rounds are than the usual ones, which a split that is kept leaves to the target. The 95th percentile of 20 rounds
is a guess: what just held it exceeds it soon."""
MOST_OVER = 0.05
"""Of a search's rounds."""
NR_OVER = 2
"""Rounds over the target by which a split is known to be."""
KEPT_OVER = 0.01
"""Of the rounds of a split that is kept."""
MOST_WAITS = 50
"""Outcomes before a try is made in any case. Where rounds of the best split are often over the target, waiting has no end."""
_JUST_OVER = math.nextafter(1, 2)
NEAREST = "nearest"
LINEAR = "linear"
"""What predicts (predict.py)."""
MISSED = "the target is missed even with all of the GPU"


@dataclass(frozen=True)
class Outcome:
    """What came of one split, in as many rounds as were needed to know whether it holds the target."""

    split: Split
    load: float
    """What 95 of 100 rounds take at most, over what they may take: above 1 the target is missed."""
    usual: float
    """The same of the median round."""
    slowdown: float
    """Median time of a round over its time with all of the GPU."""
    progress: float
    """Of best effort while rounds last, over its own rate alone."""
    nr_rounds: int
    nr_over: int
    """Of these rounds, over the target."""
    now_ns: int

    @property
    def holds(self) -> bool:
        return self.load <= 1

    @property
    def is_safe(self) -> bool:
        """Whether it holds with something to spare."""
        return self.load + SPARE * (self.load - self.usual) <= 1

    @property
    def utilisation(self) -> float:
        """Critical time alone over the time that it took, plus best effort's progress."""
        return 1 / self.slowdown + self.progress


class MissingPredictionError(ValueError):
    """A search needs what the micro-benchmark's surfaces predict."""

    def __init__(self, search: str) -> None:
        super().__init__(f"{search} needs the surfaces of the micro-benchmark")


@dataclass(frozen=True)
class Given:
    """What a search begins with."""

    grid: Grid
    target: float
    """Slowdown; predictions are compared with it."""
    start: Split | None = None
    """Where the last search of this pair ended; None: it is a new pair."""
    predictions: Mapping[str, Surface] = field(default_factory=dict)
    """For this pair and this grid, by the name of what predicts (predict.py)."""


class Search(Protocol):
    """Of one pair of a critical and a best-effort program, for one target."""

    name: str

    @property
    def split(self) -> Split:
        """To be used now; of the grid."""

    @property
    def why(self) -> str:
        """One short sentence."""

    @property
    def is_settled(self) -> bool:
        """Nothing else is to be tried for now."""

    def tell(self, outcome: Outcome) -> None:
        """What came of the split in use. Outcomes of other splits are late, and ignored."""


class Step(NamedTuple):
    """What to use next."""

    split: Split
    why: str


Steps = Generator[Step, Outcome, None]


class Walk(ABC):
    """A search that is written as one generator: it yields the next split to try, and is sent its outcome. When it ends, the search settles."""

    name = ""
    predictor = ""
    """Whose prediction it needs; "": none."""
    is_blind = False
    """Keeps to the last split whatever comes of it."""

    def __init__(self, given: Given) -> None:
        if self.predictor and self.predictor not in given.predictions:
            raise MissingPredictionError(self.name)
        self.given = given
        self.seen: dict[Split, Outcome] = {}
        """The last outcome of each split."""
        self._wanted: Step | None = None
        """To be tried once it can be afforded."""
        self._nr_rounds = 0
        self._nr_over = 0
        self._start(self.steps(), MOST_OVER)
        self._now = next(self._steps)

    @property
    def split(self) -> Split:
        return self._now.split

    @property
    def why(self) -> str:
        return self._now.why

    @property
    def is_settled(self) -> bool:
        return self._is_settled

    @abstractmethod
    def steps(self) -> Steps:
        """Tries. The outcome of each is in `seen` when it is sent."""

    def best(self) -> Split:
        """The greatest progress of what was seen to hold the target and is worth it; (N, K) if there is none."""
        able = [each for each in self.seen.values() if each.is_safe and each.utilisation >= LEAST_UTILISATION]
        return max(able, key=lambda each: (each.progress, each.split)).split if able else self.given.grid.whole

    def tell(self, outcome: Outcome) -> None:
        if outcome.split != self.split:
            return
        self.seen[outcome.split] = outcome
        self._nr_rounds += outcome.nr_rounds
        self._nr_over += outcome.nr_over
        if self._is_settled:
            self.watch(outcome)
        elif outcome.split == self.given.grid.whole and not outcome.holds and not self.is_blind:
            self.settle(outcome, Step(outcome.split, MISSED))
        else:
            self._go_on(outcome)

    def watch(self, outcome: Outcome) -> None:
        """What came of the split that it has settled at."""
        if self.is_blind:
            return
        if self._nr_over > NR_OVER + KEPT_OVER * self._nr_rounds:
            self.seen[outcome.split] = replace(outcome, load=max(outcome.load, _JUST_OVER))
        if not self.seen[outcome.split].holds:
            self._now = self._end(outcome)
            self._nr_rounds = self._nr_over = 0

    def settle(self, outcome: Outcome, step: Step) -> None:
        """To stay for now."""
        self._is_settled, self._now = True, step
        self._nr_rounds = self._nr_over = 0

    def resume(self, steps: Steps, most_over: float) -> None:
        """Further tries, begun from where it is. Such steps that have none to begin with change nothing."""
        wanted = next(steps, None)
        if wanted is not None:
            self._start(steps, most_over)
            self._wanted = wanted

    def _start(self, steps: Steps, most_over: float) -> None:
        self._steps, self._most_over = steps, most_over
        self._is_settled = False
        self._wanted = None
        self._nr_rounds = self._nr_over = self._nr_waits = 0

    def _go_on(self, outcome: Outcome) -> None:
        if self._wanted is None:
            try:
                self._wanted = self._steps.send(outcome)
            except StopIteration:
                self.settle(outcome, self._end(outcome))
                return
        if outcome.holds and self._affords():
            self._now, self._wanted, self._nr_waits = self._wanted, None, 0
        else:
            self._nr_waits += 1
            self._now = self._back(outcome)

    def _affords(self) -> bool:
        is_paid = self._nr_over + NR_OVER <= self._most_over * (self._nr_rounds + NR_OVER)
        return is_paid or self._nr_waits >= MOST_WAITS

    def _back(self, outcome: Outcome) -> Step:
        back = self.best()
        if not outcome.holds:
            return Step(back, f"{outcome.split} is over the target: back to {back}")
        return Step(back, f"at {back} until a try may cost rounds over the target")

    def _end(self, outcome: Outcome) -> Step:
        if self.is_blind:
            return self._now
        split = self.best()
        if split != self.given.grid.whole:
            return Step(split, f"{split} is the best that holds the target")
        if outcome.split == split and not outcome.holds:
            return Step(split, MISSED)
        return Step(split, f"{split}: nothing else holds the target and gains by it")
