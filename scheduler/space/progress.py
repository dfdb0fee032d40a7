"""How much of its own rate best effort keeps while rounds of a critical program last.

A kernel's counter says how many blocks it has taken. Its own rate is what it takes alone, with no round and no split; the mean of the last ten
stretches. Until a kernel has run alone its first rate beside a round stands for it, so that splits can be compared all the same.

Wrong when: a kernel's blocks differ much in length, or clocks differ between what ran alone and what ran beside a round.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from statistics import fmean

NR_ALONE = 10
"""Stretches alone whose mean is a kernel's own rate."""
MOST_KERNELS = 64
"""Kept of one program; a guest may make a new kernel each time."""


class _Rates:
    """Of one kernel, in blocks per ns."""

    def __init__(self) -> None:
        self.alone: deque[float] = deque(maxlen=NR_ALONE)
        self.first_beside = 0.0

    @property
    def own(self) -> float:
        return fmean(self.alone) if self.alone else self.first_beside


class Progress:
    """Of the best-effort programs of a space, together."""

    def __init__(self) -> None:
        self._rates: OrderedDict[Hashable, _Rates] = OrderedDict()
        self._worth_ns = self._time_ns = 0.0

    def ran_alone(self, kernel: Hashable, nr_blocks: int, took_ns: int) -> None:
        """It took so many blocks in a stretch without a round and without a split. An empty stretch says nothing."""
        if took_ns > 0 and nr_blocks > 0:
            self._of(kernel).alone.append(nr_blocks / took_ns)

    def ran_beside(self, kernel: Hashable, nr_blocks: int, took_ns: int) -> None:
        """It took so many blocks in a stretch of a round."""
        if took_ns <= 0:
            return
        rates = self._of(kernel)
        rates.first_beside = rates.first_beside or nr_blocks / took_ns
        self._worth_ns += nr_blocks / rates.own if rates.own else 0.0
        self._time_ns += took_ns

    def take(self) -> float:
        """Of the stretches beside rounds since it was last asked for: time that their blocks take alone, over the time they took; 0 without
        any.

        1 is all of its own rate; it may be a little more.
        """
        found = self._worth_ns / self._time_ns if self._time_ns else 0.0
        self._worth_ns = self._time_ns = 0.0
        return found

    def _of(self, kernel: Hashable) -> _Rates:
        rates = self._rates.setdefault(kernel, _Rates())
        self._rates.move_to_end(kernel)
        if len(self._rates) > MOST_KERNELS:
            self._rates.popitem(last=False)
        return rates
