"""What a metric is, and which ones the table of counters gives.

Every counter that operators may see is a metric of its vGPU, by rules: a counter that only grows is a Prometheus counter, with the sum over
the programs that ended; what says how things are now is a gauge, with the sum over the programs there are. ns become seconds. A counter of
times by their length is a histogram.

Wrong when: what a counter says of one program adds up to nothing, as an error or the mean of times does. Such have no metric.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, Literal

from backend_host.counters import Counter
from backend_host.statistics import VGpuStatistics

NS = 1_000_000_000
PREFIX = "fairgv_vgpu_"
Number = int | float
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Histogram:
    """How many values are no larger than each bound, the last of which is +Inf, and what all values sum to."""

    bounds: Sequence[str]
    counts: Sequence[int]
    sum: float


@dataclass(frozen=True)
class Metric:
    """`read` gives its value of what it is told of, a vGPU say, a Number; None: there is none. That of a histogram is a Histogram. With a
    `label` it is a dictionary: a Number for each of the label's values, which are words of ours."""

    name: str
    kind: Kind
    help: str
    read: Callable[[Any], Any]
    label: str = ""

    @property
    def unit(self) -> str:
        """For people."""
        word = self.name.removesuffix("_total").rpartition("_")[2]
        return word if word in ("seconds", "bytes", "ratio") else ""


def of_counters(counters: Iterable[Counter], by_hand: Iterable[str]) -> tuple[Metric, ...]:
    """One metric for each counter of which operators may see something, but for those that are named, which others tell of."""
    table = tuple(counters)
    told = {*by_hand, *(counter.sum for counter in table)}
    metrics = (_of_counter(counter) for counter in table if counter.is_shown and counter.name not in told)
    return tuple(metric for metric in metrics if metric is not None)


def _of_counter(counter: Counter) -> Metric | None:
    if counter.bounds_ns:
        return Metric(PREFIX + _plain(counter.sum) + "_seconds", "histogram", counter.help, _histogram(counter))
    if counter.keep == "sum":
        name = f"{PREFIX}{_measured(counter)}_total"
        label = counter.shown_name if counter.each else ""
        return Metric(name, "counter", counter.help, _total(counter), label)
    if counter.unit in ("count", "bytes"):
        return Metric(PREFIX + _measured(counter), "gauge", counter.help, _sum(counter))
    return None


def _measured(counter: Counter) -> str:
    """The counter's name with its unit, as Prometheus has it."""
    return _plain(counter.name) + {"ns": "_seconds", "bytes": "_bytes"}.get(counter.unit, "")


def _plain(name: str) -> str:
    return name.removeprefix("nr_").removesuffix("_ns").removesuffix("_bytes")


def _total(counter: Counter) -> Callable[[VGpuStatistics], Any]:
    name = counter.shown_name
    if counter.unit == "ns":
        return lambda vgpu: getattr(vgpu.totals, name) / NS
    return attrgetter(f"totals.{name}")


def _sum(counter: Counter) -> Callable[[VGpuStatistics], Any]:
    of_client = attrgetter(counter.name)
    return lambda vgpu: sum(map(of_client, vgpu.clients))


def _histogram(counter: Counter) -> Callable[[VGpuStatistics], Histogram]:
    words, counts_of, sum_of = counter.words, attrgetter(f"totals.{counter.name}"), attrgetter(f"totals.{counter.sum}")
    bounds = (*(repr(bound / NS) for bound in counter.bounds_ns), "+Inf")

    def read(vgpu: VGpuStatistics) -> Histogram:
        counts = counts_of(vgpu)
        return Histogram(bounds, [*accumulate(map(counts.get, words, repeat(0)))], sum_of(vgpu) / NS)

    return read
