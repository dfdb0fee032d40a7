"""What replays come to in the mean: the figures of the paper's Figure 10, and what predictions were off by, beside the paper's (section 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from scheduler.space.predict import errors
from scheduler.space.recorded import Pair
from scheduler.space.replay import Replayed
from scheduler.space.search import LINEAR, NEAREST
from scheduler.space.surface import Surface

PAPER_THROUGHPUT: Mapping[str, float] = MappingProxyType({"nn": 0.593, "ns": 0.751, "nn-srs": 0.836})
"""Over the optimum, where the text has a figure."""
PAPER_ERRORS: Mapping[str, tuple[float, float]] = MappingProxyType({NEAREST: (0.357, 0.351), LINEAR: (0.328, 0.62)})
"""Of best effort and of the critical program."""


@dataclass(frozen=True)
class Summary:
    """One search over all pairs and targets."""

    search: str
    nr_replays: int
    throughput: float
    """Progress at the end over the optimum's."""
    paper: float | None
    time: float
    """Until it settled, over brute force's."""
    rounds_over: float
    """Part of the rounds over the target until it settled, of all replays together."""
    settled_over: float
    """The same after it had settled."""
    tried: float
    """Splits, of one replay."""
    tried_over: float
    """Those of them over the target."""
    nr_over: int
    """Replays whose split at the end is over the target."""
    utilisation: float
    least_utilisation: float
    nr_better: int
    """Replays whose utilisation at the end is above that of turns, which is 1."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of a prediction in the mean over all pairs."""

    predictor: str
    best_effort: float
    critical: float
    paper_best_effort: float
    paper_critical: float


def summary(replays: Sequence[Replayed]) -> Summary:
    """Of replays of one search."""
    search = replays[0].search
    return Summary(
        search=search,
        nr_replays=len(replays),
        throughput=fmean(each.throughput for each in replays),
        paper=PAPER_THROUGHPUT.get(search),
        time=fmean(each.time for each in replays),
        rounds_over=sum(each.nr_over for each in replays) / sum(each.nr_rounds for each in replays),
        settled_over=sum(each.nr_settled_over for each in replays) / sum(each.nr_settled for each in replays),
        tried=fmean(each.nr_tried for each in replays),
        tried_over=fmean(each.nr_tried_over for each in replays),
        nr_over=sum(each.is_over for each in replays),
        utilisation=fmean(each.utilisation for each in replays),
        least_utilisation=min(each.utilisation for each in replays),
        nr_better=sum(each.utilisation > 1 and each.split != each.whole for each in replays),
    )


def prediction_errors(pairs: Sequence[Pair], predictions: Sequence[Mapping[str, Surface]]) -> list[Errors]:
    """`predictions`: of each pair."""
    found = []
    for predictor, paper in PAPER_ERRORS.items():
        of = [errors(each[predictor], pair.surface) for pair, each in zip(pairs, predictions, strict=True)]
        found.append(Errors(predictor, fmean(one for one, _ in of), fmean(other for _, other in of), *paper))
    return found
