"""A search, and a surface that says what comes of its splits. Test code of several files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler.space.feedback import NR_ROUNDS
from scheduler.space.grid import Grid, Split
from scheduler.space.search import NR_OVER, Outcome, Search
from scheduler.space.surface import Point, Surface

WINDOW_NS = 20_000_000
Noise = Callable[[], float]


@dataclass(frozen=True)
class Told:
    """What a search was told, and what it asked for then."""

    outcome: Outcome
    after: Split


def flat(grid: Grid, points: Mapping[Split, tuple[float, float]]) -> Surface:
    """Of slowdowns without a spread, and progress."""
    return Surface(grid, {split: Point(slowdown, slowdown, progress) for split, (slowdown, progress) in points.items()})


def outcome_of(point: Point, split: Split, target: float, now_ns: int, noise: float = 1.0) -> Outcome:
    """As 20 rounds would tell it, or the first two if they are over the target."""
    load = point.slowdown_p95 * noise / target
    is_over = load > 1
    return Outcome(
        split,
        load=load,
        usual=point.slowdown_p50 * noise / target,
        slowdown=point.slowdown_p50 * noise,
        progress=point.progress,
        nr_rounds=NR_OVER if is_over else NR_ROUNDS,
        nr_over=NR_OVER if is_over else 0,
        now_ns=now_ns,
    )


def drive(
    search: Search, surface: Surface, target: float, most: int, noise: Noise = lambda: 1.0, now_ns: int = 0
) -> list[Told]:
    """Until it is settled, for `most` outcomes at most."""
    told: list[Told] = []
    while not search.is_settled and len(told) < most:
        now_ns += WINDOW_NS
        outcome = outcome_of(surface[search.split], search.split, target, now_ns, noise())
        search.tell(outcome)
        told.append(Told(outcome, search.split))
    return told
