"""How much slower the rounds of a critical program are, from when they began and ended.

Slowdown is the time of a round over what rounds of its signature, the same work, take alone (alone.py). One round in 53 gets all of the GPU,
also while a split stands, so that the comparison keeps up with the program. Of the last 20 rounds under a split the second slowest is the 95th
percentile. A split is over the target as soon as two of its rounds are: no later round could change that.

A target is a slowdown, or a time. Slowdowns are kept for both, since by them a split is worth it or not.

Good when: rounds of a signature take the same. Bad when: their work depends on data: then the target has to be a time.
Wrong when: no two rounds have the same signature. Such a program is never compared, and a search stays where it is.
"""

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import median

from scheduler.space.alone import Alone
from scheduler.space.grid import Split

NR_ROUNDS = 20
"""Of which the 95th percentile is taken."""
NR_MORE = NR_ROUNDS - math.ceil(0.95 * NR_ROUNDS)
"""Rounds that may be slower than the 95th percentile."""
WHOLE_EVERY = 53
"""One round in so many gets all of the GPU. A prime: of a program that does several kinds in turn each kind does."""
NR_TOLD = 1000
"""Rounds that statistics are of."""


@dataclass(frozen=True)
class Target:
    """How long a round may take: as a slowdown, or where `ns` is not 0, as a time."""

    slowdown: float = 0.0
    ns: int = 0


@dataclass(frozen=True)
class Verdict:
    """What rounds under one split came to."""

    load: float
    """95th percentile over the target."""
    usual: float
    """Median over the target."""
    slowdown: float
    """Median."""
    nr_rounds: int
    nr_over: int
    """Of these, over the target."""


@dataclass(frozen=True)
class Statistics:
    """Of the last 1,000 rounds that were compared, under any split but all of the GPU. Without rounds slowdowns are 0."""

    slowdown_p50: float
    slowdown_p95: float
    slowdown_p99: float
    nr_rounds: int
    """Of all times, as are the next ones."""
    nr_missed: int
    nr_whole: int
    """Rounds with all of the GPU."""


def percentile(values: Sequence[float], part: float) -> float:
    """The least value that so large a part of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


class Feedback:
    """Of one critical program. `whole` is the split that gives it all of the GPU."""

    def __init__(self, whole: Split, target: Target) -> None:
        self._whole, self._target = whole, target
        self._split = whole
        self._loads: deque[float] = deque(maxlen=NR_ROUNDS)
        self._slowdowns: deque[float] = deque(maxlen=NR_ROUNDS)
        self._told: deque[float] = deque(maxlen=NR_TOLD)
        self._alone = Alone()
        self._nr_since_whole = 0
        self._nr_rounds = self._nr_missed = self._nr_whole = 0

    def split_changed(self, split: Split) -> None:
        """From now on another split stands. Rounds under the former one do not count for it."""
        if split != self._split:
            self._split = split
            self.heard()

    @property
    def wants_whole(self) -> bool:
        """Whether the next round should have all of the GPU."""
        return self._nr_since_whole >= WHOLE_EVERY - 1

    def ran_alone(self, signature: Hashable, took_ns: int) -> None:
        """Best effort had no program from the round's begin to its end."""
        if took_ns > 0:
            self._alone.ran_alone(signature, took_ns)

    def round_ended(self, signature: Hashable, split: Split | None, took_ns: int) -> None:
        """`split`: what stood from the round's begin to its end; None: that changed, and the round says nothing."""
        if took_ns <= 0 or split is None:
            return
        is_whole = split == self._whole
        if is_whole:
            self._alone.had_whole(signature, took_ns)
        alone_ns = self._alone.time_ns(signature)
        if alone_ns is None:
            self._nr_since_whole = WHOLE_EVERY
            return
        self._nr_since_whole = 0 if is_whole else self._nr_since_whole + 1
        slowdown = took_ns / alone_ns
        load = took_ns / self._target.ns if self._target.ns else slowdown / self._target.slowdown
        self._count(is_whole, slowdown, load > 1)
        if split == self._split:
            self._loads.append(load)
            self._slowdowns.append(slowdown)

    def verdict(self) -> Verdict | None:
        """Of the rounds since the split changed; None: too few to say."""
        nr_over = sum(load > 1 for load in self._loads)
        if len(self._loads) < NR_ROUNDS and nr_over <= NR_MORE:
            return None
        loads = sorted(self._loads)
        return Verdict(loads[-1 - NR_MORE], median(loads), median(self._slowdowns), len(loads), nr_over)

    def heard(self) -> None:
        """The next verdict is of other rounds."""
        self._loads.clear()
        self._slowdowns.clear()

    def statistics(self) -> Statistics:
        """Slowdowns are of the last rounds, counters of all."""
        told = self._told or (0.0,)
        p50, p95, p99 = (percentile(told, part) for part in (0.5, 0.95, 0.99))
        return Statistics(p50, p95, p99, self._nr_rounds, self._nr_missed, self._nr_whole)

    def _count(self, is_whole: bool, slowdown: float, is_missed: bool) -> None:
        if is_whole:
            self._nr_whole += 1
        else:
            self._told.append(slowdown)
            self._nr_rounds += 1
            self._nr_missed += is_missed
