"""What a tenant of endless long kernels and one of short kernels get of a device by weight: the third part of `fairgv-bench slicing`.

The long one's launches go in parts, persistently, or whole because their image has no PTX; beside these stands the driver's own time slicing of
two native programs, which knows no weights. A long kernel is a given amount of work, not of time, so one that is kept off the device makes no
progress; its blocks count, in the one stretch of both. What each program reaches alone is measured in the same repetition and in the same way.

Wrong when guests, workers and the device's threads have no core each. Natively on softgpu, which serves kernels one after the other, the short
one gets a kernel for each long one.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from benchmarks.devices import compute_capability
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.experiments.sharing import ALONE_FRACTION, Mixture, Shared, alone, share, together
from benchmarks.guests import NATIVE, Setting
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome
from benchmarks.style import MORE, at_least, due, limits, spread
from benchmarks.systems import OURS
from benchmarks.workloads import Workload, endless, spin, unit_of

AIM = 0.98
"""Of the min-max ratio, at least."""
WEIGHTS = ((1, 1), (1, 3), (3, 1))
"""The long one's first."""
SHORT = spin(50, 256)
BARS_WIDTH = 0.8
NOTES = (
    f"Beside {SHORT.label}; the long one's weight and part first. Of alone: throughput over what the program reaches alone in the same way.",
    "Min-max ratio by weight: 1 is fair. Overhead of sharing: 1 is none. Intervals are of 95 %.",
)


@dataclass(frozen=True)
class Way:
    """How the long launches go: whether their image has PTX, what the daemon is told; `system` as for `open_session`."""

    has_ptx: bool
    daemon: Mapping[str, object] = field(default_factory=dict)
    system: str = OURS

    @property
    def is_in_parts(self) -> bool:
        """Persistent kernels are such parts, too."""
        return self.has_ptx and self.system != NATIVE

    @property
    def weights(self) -> tuple[tuple[int, int], ...]:
        """Natively there are none."""
        return WEIGHTS[:1] if self.system == NATIVE else WEIGHTS


WAYS: Mapping[str, Way] = {
    "in parts": Way(True, {"slicing": "boxes"}),
    "persistent": Way(True, {"slicing": "persistent"}),
    "whole without PTX": Way(False),
    "without PTX, time slices": Way(False, {"preemption": "driver"}),
    NATIVE: Way(True, system=NATIVE),
}


@dataclass(frozen=True)
class Lengths:
    """Of long kernels on a kind of device, and of their blocks, 110 us on an H200; what makes their launches large ones there."""

    kernel_s: float
    nr_rounds: int
    daemon: Mapping[str, object]


LENGTHS: Mapping[str, Lengths] = {
    "cuda": Lengths(10.0, 1000, {}),
    "soft": Lengths(1.0, 200, {"slicing_threshold_blocks": 600, "slicing_least_blocks": 8}),
}


def ways_on(device: str) -> dict[str, Way]:
    """softgpu runs PTX alone."""
    return {name: way for name, way in WAYS.items() if way.has_ptx or device == "cuda"}


def nr_shares(device: str) -> int:
    """How many records `measure_shares` makes."""
    ways = ways_on(device).values()
    nr_short = len({way.system for way in ways})
    return nr_short + sum(1 + len(way.weights) for way in ways)


@dataclass
class _Tenants:
    """Both programs on one device, and what they were found to reach alone in this repetition, by way and program."""

    options: argparse.Namespace
    setting: Setting
    reached: dict[tuple[str, Workload], float] = field(default_factory=dict)

    @property
    def kernel_s(self) -> float:
        """Of the long one."""
        return float(self.options.kernel_seconds or LENGTHS[self.setting.device].kernel_s)

    def long(self, way: Way) -> Workload:
        """The program whose kernels are long."""
        nr_rounds = LENGTHS[self.setting.device].nr_rounds
        return endless(self.kernel_s, nr_rounds, None if way.has_ptx else compute_capability())

    def setting_of(self, way: Way) -> Setting:
        """With what the daemon is told."""
        return replace(self.setting, daemon={**LENGTHS[self.setting.device].daemon, **way.daemon})

    def measure_alone(self, name: str, way: Way, workload: Workload) -> Record:
        """`name` is the way's for the long program, the system's for the short one, to which ways are the same. ProgramFailedError."""
        outcome = alone(workload, way.system, self.setting_of(way), self.options.seconds * ALONE_FRACTION)
        if workload != SHORT:
            _check_parts(way, outcome)
        self.reached[name, workload] = outcome.throughput
        found = {"workload": workload.label, "throughput": outcome.throughput, "unit": unit_of(outcome.report)}
        return {"kind": "share alone", "way": name, **found}

    def measure_together(self, name: str, way: Way, weights: tuple[int, int]) -> Record:
        """ProgramFailedError, also when it is not known what a program reaches alone."""
        workloads = (self.long(way), SHORT)
        keys = list(zip((name, way.system), workloads, strict=True))
        if not all(key in self.reached for key in keys):
            raise ProgramFailedError("what the programs reach alone was not measured")
        mixed = Mixture(name, weights, workloads)
        outcomes = together(way.system, mixed, self.setting_of(way), self.options.seconds)
        _check_parts(way, outcomes[0])
        guests = [
            share(weight, workload, outcome, self.reached[key], None)
            for weight, workload, outcome, key in zip(weights, workloads, outcomes, keys, strict=True)
        ]
        length = {"kernel_s": self.kernel_s, "kernel_blocks": outcomes[0].report["kernel_blocks"]}
        return {"kind": "share", "way": name, **length, "window_s": self.options.seconds, "guests": guests}


def measure_shares(options: argparse.Namespace, setting: Setting, reporter: Reporter) -> Iterator[Record]:
    """One repetition: what is reached alone, then both at once by equal weights, then by others."""
    tenants, ways = _Tenants(options, setting), ways_on(options.device)
    shorts = {way.system: way for way in ways.values()}
    programs = [(name, way, tenants.long(way)) for name, way in ways.items()]
    programs += [(system, way, SHORT) for system, way in shorts.items()]
    for name, way, workload in programs:
        what = f"{workload.label} alone, {name}"
        reporter.doing(what)
        with reporter.tolerating(what):
            yield tenants.measure_alone(name, way, workload)
    for weights in WEIGHTS:
        for name, way in ways.items():
            if weights in way.weights:
                what = f"shares {_colons(weights)}, {name}"
                reporter.doing(what)
                with reporter.tolerating(what):
                    yield tenants.measure_together(name, way, weights)


def _check_parts(way: Way, outcome: Outcome) -> None:
    """ProgramFailedError when the long one's launches did not go as they should."""
    if outcome.nr_parts is not None and (outcome.nr_parts > 0) != way.is_in_parts:
        raise ProgramFailedError(f"its launches went {'whole' if way.is_in_parts else 'in parts'}")


def shares_sheet(document: Document) -> Sheet | None:
    """One row for each way and weights; None when there are none."""
    rows = []
    for (name, weights), runs in _runs(document).items():
        charged = [run.charged_min_max_ratio for run in runs if run.charged_min_max_ratio is not None]
        rows.append(
            (
                name,
                _colons(weights) if charged else "-",
                *(estimate(parts).text() for parts in zip(*map(_of_alone, runs), strict=True)),
                estimate([run.min_max_ratio for run in runs]).text(),
                f"{AIM:g}" if charged else "-",
                estimate(charged).text() if charged else "-",
                estimate([run.overhead for run in runs]).text(),
                str(len(runs)),
            )
        )
    if not rows:
        return None
    columns = ("the long kernels", "weights", "long, of alone", "short, of alone", "min-max ratio", "aim", "of charges")
    title = f"Shares of a tenant of endless kernels of {records(document, 'share')[0]['kernel_s']:g} s"
    return Sheet(title, (*columns, "overhead", "repetitions"), tuple(rows), NOTES)


def share_figures(document: Document) -> dict[str, float]:
    """The min-max ratio of each way and weights."""
    return {
        f"{name}/{_colons(weights)}/min-max ratio": estimate([run.min_max_ratio for run in runs]).mean
        for (name, weights), runs in _runs(document).items()
    }


def shares_title(document: Document) -> str:
    """The least ratio of each way."""
    least: dict[str, float] = {}
    for (way, _), runs in _runs(document).items():
        least[way] = min(least.get(way, 1.0), fmean(run.min_max_ratio for run in runs))
    said = ", ".join(f"{at_least(ratio)} {way}" for way, ratio in least.items())
    return f"What the worse-off guest has of its due, over the other's, beside long kernels: {said}"


def draw_shares(axes: Any, document: Document) -> None:
    """Min-max ratios as bars, the aim as a line."""
    runs = _runs(document)
    ways = list(dict.fromkeys(name for name, _ in runs))
    every = list(dict.fromkeys(weights for _, weights in runs))
    width = BARS_WIDTH / len(every)
    for number, weights in enumerate(every):
        mine = {ways.index(name): each for (name, of), each in runs.items() if of == weights}
        ratios = [[run.min_max_ratio for run in each] for each in mine.values()]
        places = [place - BARS_WIDTH / 2 + (number + 0.5) * width for place in mine]
        ink = axes.xaxis.label.get_color()
        label = f"weights {_colons(weights)}"
        axes.bar(places, list(map(fmean, ratios)), width, yerr=spread(ratios), ecolor=ink, label=label)
    due(axes, f"aim, {AIM:g}", y=AIM)
    axes.set(ylabel=f"min-max ratio\n{MORE}", ylim=limits([1]), xlim=(-0.5, len(ways) - 0.5), xticks=range(len(ways)))
    axes.set_xticklabels(ways)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(every) + 1)


def _runs(document: Document) -> dict[tuple[str, tuple[int, ...]], list[Shared]]:
    """All repetitions of each way and weights, those of one way together."""
    found: dict[tuple[str, tuple[int, ...]], list[Shared]] = {}
    ways = list(dict.fromkeys(record["way"] for record in records(document, "share")))
    for record in sorted(records(document, "share"), key=lambda record: ways.index(record["way"])):
        run = Shared(record)
        found.setdefault((record["way"], tuple(int(weight) for weight in run.weights)), []).append(run)
    return found


def _of_alone(run: Shared) -> tuple[float, ...]:
    return tuple(guest["throughput"] / guest["alone"] for guest in run.record["guests"])


def _colons(weights: tuple[int, ...]) -> str:
    return ":".join(map(str, weights))
