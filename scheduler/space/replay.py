"""Runs a search over a recorded surface, round by round, with the daemon's classes.

A round takes what its split's percentiles say, with luck: evenly spread about the median, so that 5 in 100 exceed the 95th percentile. The same
seed gives the same luck. Progress is as it was recorded. After a search has settled it is watched for 500 rounds more, in which its split may
turn out to be over the target. The split at the end is judged by what was recorded.

Wrong when: programs change while a search goes on. A recorded surface stays as it is.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.space.feedback import NR_ROUNDS, Feedback, Target
from scheduler.space.grid import Split
from scheduler.space.recorded import Pair
from scheduler.space.registry import make_search
from scheduler.space.search import Given, Outcome, Search
from scheduler.space.surface import Point, Surface

NR_WATCHED = 500
"""Rounds after a search has settled."""


@dataclass(frozen=True)
class Replayed:
    """What one search came to with one pair and one target."""

    search: str
    pair: str
    target: float
    split: Split
    """At the end."""
    optimum: Split
    whole: Split
    throughput: float
    """Progress over the optimum's; 0 if the split is over the target, 1 if there is nothing to be had."""
    utilisation: float
    is_over: bool
    """The split at the end, by its recorded 95th percentile."""
    time: float
    """Until it settled, over the time that 20 rounds of every split take."""
    nr_rounds: int
    nr_over: int
    """Rounds over the target until it settled."""
    nr_tried: int
    nr_tried_over: int
    """Splits that turned out to be over the target."""
    nr_settled: int
    nr_settled_over: int
    """Rounds after it had settled."""
    why: str


@dataclass
class _Run:
    """A search at work."""

    search: Search
    feedback: Feedback
    pair: Pair
    target: float
    luck: random.Random
    now_ns: int = 0
    nr_rounds: int = 0
    nr_over: int = 0
    tried: dict[Split, bool] = field(default_factory=dict)

    def window(self) -> None:
        """Rounds under the search's split, until it can be told what came of them."""
        split = self.search.split
        self.feedback.split_changed(split)
        while (verdict := self.feedback.verdict()) is None:
            self._round(split)
        self.feedback.heard()
        self.tried[split] = self.tried.get(split, False) or verdict.load > 1
        self.search.tell(
            Outcome(
                split,
                load=verdict.load,
                usual=verdict.usual,
                slowdown=verdict.slowdown,
                progress=self.pair.surface[split].progress,
                nr_rounds=verdict.nr_rounds,
                nr_over=verdict.nr_over,
                now_ns=self.now_ns,
            )
        )

    def _round(self, split: Split) -> None:
        stands = self.pair.surface.grid.whole if self.feedback.wants_whole else split
        slowdown = draw(self.pair.surface[stands], self.luck)
        took_ns = round(slowdown * self.pair.alone_us * 1000)
        self.now_ns += took_ns
        self.nr_rounds += 1
        self.nr_over += slowdown > self.target
        self.feedback.round_ended("round", stands, took_ns)


def draw(point: Point, luck: random.Random) -> float:
    """A round's slowdown."""
    spread = (point.slowdown_p95 - point.slowdown_p50) / 0.45
    return max(0.01, point.slowdown_p50 + (luck.random() - 0.5) * spread)


def replay(name: str, pair: Pair, target: float, predictions: Mapping[str, Surface]) -> Replayed:
    """One search, from the beginning until it has been watched for a while."""
    grid = pair.surface.grid
    search = make_search(name, Given(grid, target, predictions=predictions))
    run = _Run(search, Feedback(grid.whole, Target(target)), pair, target, random.Random(f"{pair.name} {target}"))
    while not search.is_settled:
        run.window()
    time_us, nr_rounds, nr_over = run.now_ns / 1000, run.nr_rounds, run.nr_over
    nr_tried, nr_tried_over = len(run.tried), sum(run.tried.values())
    while run.nr_rounds < nr_rounds + NR_WATCHED:
        run.window()
    point, optimum = pair.surface[search.split], best_split(pair.surface, target)
    is_over = point.slowdown_p95 > target and search.split != grid.whole
    return Replayed(
        search=name,
        pair=pair.name,
        target=target,
        split=search.split,
        optimum=optimum,
        whole=grid.whole,
        throughput=0.0 if is_over else _part(point.progress, pair.surface[optimum].progress),
        utilisation=1 / point.slowdown_p50 + point.progress,
        is_over=is_over,
        time=time_us / brute_force_us(pair),
        nr_rounds=nr_rounds,
        nr_over=nr_over,
        nr_tried=nr_tried,
        nr_tried_over=nr_tried_over,
        nr_settled=run.nr_rounds - nr_rounds,
        nr_settled_over=run.nr_over - nr_over,
        why=search.why,
    )


def best_split(surface: Surface, target: float) -> Split:
    """The optimum: the greatest progress within the target of all that is worth it; (N, K) if there is none."""
    able = [split for split in surface.within(target) if is_worth(surface[split])]
    return max(able, key=lambda split: (surface[split].progress, split), default=surface.grid.whole)


def is_worth(point: Point) -> bool:
    """Whether the split is as good as taking turns."""
    return 1 / point.slowdown_p50 + point.progress >= 1


def brute_force_us(pair: Pair) -> float:
    """What 20 rounds of every split take."""
    return NR_ROUNDS * pair.alone_us * sum(pair.surface[split].slowdown_p50 for split in pair.surface.grid)


def _part(progress: float, most: float) -> float:
    return min(1.0, progress / most) if most > 0 else 1.0
