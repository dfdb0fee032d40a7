"""What rounds of a critical program take alone, by their signature: what slowdowns are over.

Rounds while the space has no program of best effort are alone. While it has one, those are that get all of the GPU, one in 53. But best effort
has to leave first, and the caches are cold then: on an H100 such rounds took 3 to 10 % longer. So of the first ones behind rounds that were
alone it is kept how much longer they took, and what later ones take counts for so much less. That way the comparison keeps up with a program
whose rounds become longer.

Wrong when: a program becomes slower by itself in the moment in which best effort comes. That is taken for best effort's doing until a round is
alone again.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

NR_COMPARED = 20
"""Rounds whose median is the time of a signature."""
MOST_SIGNATURES = 64
"""Kept of one program; a guest chooses its signatures, and may make a new one each time."""


def _few() -> deque[int]:
    return deque(maxlen=NR_COMPARED)


@dataclass
class _Times:
    """In ns."""

    alone: deque[int] = field(default_factory=_few)
    whole: deque[int] = field(default_factory=_few)
    """With all of the GPU, beside best effort, since the last one that was alone."""
    longer: float = 0.0
    """The first ones of those over those alone; 0: not known yet."""


class Alone:
    """Of one critical program."""

    def __init__(self) -> None:
        self._times: OrderedDict[Hashable, _Times] = OrderedDict()

    def ran_alone(self, signature: Hashable, took_ns: int) -> None:
        """There was no best effort."""
        times = self._of(signature)
        times.alone.append(took_ns)
        times.whole.clear()
        times.longer = 0.0

    def had_whole(self, signature: Hashable, took_ns: int) -> None:
        """There was, and the round got all of the GPU."""
        times = self._of(signature)
        times.whole.append(took_ns)
        if times.alone and not times.longer and len(times.whole) == NR_COMPARED:
            times.longer = max(1.0, median(times.whole) / median(times.alone))

    def time_ns(self, signature: Hashable) -> float | None:
        """None: no such round is known."""
        times = self._times.get(signature)
        if times is None:
            return None
        if times.alone and not times.longer:
            return median(times.alone)
        return median(times.whole) / (times.longer or 1.0)

    def _of(self, signature: Hashable) -> _Times:
        times = self._times.setdefault(signature, _Times())
        self._times.move_to_end(signature)
        if len(self._times) > MOST_SIGNATURES:
            self._times.popitem(last=False)
        return times
