"""Shares by weight: completion times, min-max ratio and aggregated overhead of guests that all run one program (Figures 8 and 9 of the paper).

All guests work at once and are counted in one stretch, so none has the device to itself at the end, as it would if each stopped when its
work was done. A completion time is that of ten seconds of work at the throughput of the stretch. The min-max ratio is that of section 5.4.1
with what the program reaches alone, as a guest, for the ideal; the overhead is against native runs. Alone each program runs in the same
repetition.

Wrong when guests, workers and the device's threads have no core each: a guest that is not run cannot ask for its share.
"""

import argparse
import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Experiment, Reporter, amounts, natural_numbers, positives, setting, systems
from benchmarks.experiments.sharing import (
    COMPARED,
    IDLE_TOGETHER,
    Shared,
    compare,
    mixture,
    nr_compared,
    programs_of,
    shared,
    weights_of,
)
from benchmarks.guests import NATIVE
from benchmarks.paper import Finding, is_of_the_paper, paper
from benchmarks.ratios import Estimate, estimate
from benchmarks.sheet import Sheet
from benchmarks.style import at_least, head, limits, spread, told_whiskers
from benchmarks.systems import BURSTS, OURS, in_words

WORK_S = 10.0
"""Completion times are of so much work, about that of the paper's programs."""
BARS_WIDTH = 0.8
"""Of one guest in the plot."""
LEGENDS_ROOM = 1.3
"""Above the bars, over their height."""
NOTES = (
    f"Completion times: seconds for what takes {WORK_S:g} s alone, natively. Min-max ratio: 1 is fair. Overhead: 1 is none.",
    "Least: what the worst-off guest gets over its fair part; above 1 where programs leave each other time.",
    "Intervals are of 95 %.",
)


class MinMaxRatio(Experiment):
    """`fairgv-bench mmr`."""

    name = "mmr"
    summary = "shares by weight: completion times, min-max ratio, aggregated overhead (Figures 8 and 9)"
    guest_kinds = ("process", "vm")
    has_systems = True
    seconds = 6.0
    subjects = COMPARED

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Programs and weights; how `spin` works."""
        parser.add_argument(
            "--program",
            type=programs_of,
            default=list(paper()["figure8"]["programs"]),
            metavar="NAME,...",
            help="in all guests at once, one after the other (default: those of Figure 8); spin: kernels of given lengths",
        )
        parser.add_argument("--weights", type=weights_of, default=(1, 2, 3), help="one guest each (default 1:2:3)")
        parser.add_argument("--kernel-us", type=positives, default=[500.0], metavar="US,...", help="of spin (500)")
        parser.add_argument(
            "--queue", type=natural_numbers, default=[256], metavar="N,...", help="launches in a row (256)"
        )
        parser.add_argument("--sleep-us", type=amounts, default=[0.0], metavar="US,...", help="after each row (0)")
        parser.add_argument("--bursts", action="store_true", help=f"beside them: {OURS} with turns by bursts")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for what is reached alone, one for each system."""
        return nr_compared(len(options.program), options, _systems(options))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """See `compare`."""
        mixtures = [mixture(program, options) for program in options.program]
        return compare(mixtures, _systems(options), options, setting(options), reporter)

    def sheets(self, document: Document) -> list[Sheet]:
        """One for all guests of the same weights, with one row for each program and system."""
        return [_sheet(part) for part in _by_weights(document)]

    def findings(self, document: Document) -> list[Finding]:
        """Of the default policy, which is the paper's, with slices and by bursts."""
        return [
            finding
            for part in _by_weights(document)
            for (label, system), runs in shared(part).items()
            if is_of_the_paper(label)
            for finding in (
                _of_claims(label, system, runs) if system == OURS else _of_bursts(label, system, runs, shared(part))
            )
        ]

    def figures(self, document: Document) -> dict[str, float]:
        """Of each mixture under each system; beside the driver's own sharing, where that was measured, what the default policy gets done; by
        bursts the ratio over that with slices."""
        found = {}
        together = {key: estimate([each.together for each in runs]).mean for key, runs in shared(document).items()}
        for (label, system), runs in shared(document).items():
            found[f"{label}/{system}/min-max ratio"] = estimate([each.min_max_ratio for each in runs]).mean
            found[f"{label}/{system}/least"] = estimate([each.least for each in runs]).mean
            found[f"{label}/{system}/together"] = together[label, system]
            if system == BURSTS and (label, OURS) in together:
                slices = found[f"{label}/{OURS}/min-max ratio"]
                found[f"{label}/bursts over slices"] = found[f"{label}/{BURSTS}/min-max ratio"] / slices
            if system == NATIVE and (label, OURS) in together:
                found[f"{label}/together over the driver's"] = together[label, OURS] / together[label, NATIVE]
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Completion times as bars, the ideal ones as lines."""
        found = shared(document)
        panels = list(dict.fromkeys(label for label, _ in found))
        figure.set_size_inches(max(6, 4.5 * len(panels)), 5)
        for axes, label in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, label, {system: runs for (of, system), runs in found.items() if of == label})
        repeated = told_whiskers([[each.least for each in runs] for runs in found.values()])
        head(figure, _title(found), document, f"The time for work of {WORK_S:g} s alone.", *repeated)


def _systems(options: argparse.Namespace) -> list[str]:
    """Turns by bursts last."""
    return [*systems(options), *([BURSTS] if options.bursts else [])]


def _by_weights(document: Document) -> list[Document]:
    """The same, with the runs of each set of weights by themselves."""
    found: dict[tuple[int, ...], list[Record]] = {}
    for record in records(document, "together"):
        found.setdefault(tuple(guest["weight"] for guest in record["guests"]), []).append(record)
    return [{**document, "records": runs} for runs in found.values()]


def _sheet(document: Document) -> Sheet:
    """One row for each program and system."""
    columns = (
        "program",
        "policy",
        "min-max ratio",
        "least",
        "of charges",
        "overhead",
        "completion s",
        "repetitions",
    )
    rows = [
        (
            label,
            system,
            estimate([each.min_max_ratio for each in runs]).text(),
            estimate([each.least for each in runs]).text(),
            _optional([each.charged_min_max_ratio for each in runs]),
            estimate([each.overhead for each in runs]).text(),
            _completion(runs),
            str(len(runs)),
        )
        for (label, system), runs in shared(document).items()
    ]
    guests = f"{len(_weights(document))} guests ({document.get('guests', 'process')})"
    title = f"Shares of {guests}, weights {_colons(_weights(document))}"
    return Sheet(title, columns, tuple(rows), NOTES)


def _title(found: Mapping[tuple[str, str], list[Shared]]) -> str:
    """What the worst-off guest gets, by system, at its worst."""
    least: dict[str, float] = {}
    for (_, system), runs in found.items():
        least[system] = min(least.get(system, math.inf), fmean(each.least for each in runs))
    said = ", ".join(f"{at_least(value)} with {in_words(system)}" for system, value in least.items())
    return f"What the worst-off guest gets of its due: {said}"


def _draw(axes: Any, label: str, kinds: dict[str, list[Shared]]) -> None:
    """One program under each system."""
    weights = next(iter(kinds.values()))[0].weights
    width = BARS_WIDTH / len(kinds)
    ideals = [WORK_S * sum(weights) / weight for weight in weights]
    drawn = [*ideals]
    for number, (system, runs) in enumerate(kinds.items()):
        times = list(zip(*(each.completion_times(WORK_S) for each in runs), strict=True))
        places = [index - BARS_WIDTH / 2 + (number + 0.5) * width for index in range(len(times))]
        ratio = fmean(each.min_max_ratio for each in runs)
        drawn += [most for each in times for most in each]
        label_of = f"{in_words(system)}, min-max ratio {ratio:.2f}"
        axes.bar(
            places,
            list(map(fmean, times)),
            width,
            yerr=spread(times),
            ecolor=axes.xaxis.label.get_color(),
            label=label_of,
        )
    ink = axes.xaxis.label.get_color()
    for index, ideal in enumerate(ideals):
        edges = [index - BARS_WIDTH / 2, index + BARS_WIDTH / 2]
        axes.plot(edges, [ideal, ideal], color=ink, linewidth=1, linestyle=":", label="" if index else "due")
    axes.set(
        title=label,
        xlabel="guest (weight)",
        ylabel="seconds",
        ylim=limits([LEGENDS_ROOM * most for most in drawn]),
        xticks=range(len(weights)),
    )
    axes.set_xticklabels([f"{index + 1} ({weight:g})" for index, weight in enumerate(weights)])
    axes.legend()


def _weights(document: Document) -> list[int]:
    return next(
        [guest["weight"] for guest in record["guests"]]
        for record in document["records"]
        if record["kind"] == "together"
    )


def _colons(weights: list[int]) -> str:
    return ":".join(map(str, weights))


def _optional(ratios: list[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return estimate(known).text() if known else "-"


def _times(runs: list[Shared]) -> list[Estimate]:
    times = [each.completion_times(WORK_S) for each in runs]
    return [estimate([one[index] for one in times]) for index in range(len(times[0]))]


def _completion(runs: list[Shared]) -> str:
    """With the ideal ones behind."""
    weights = runs[0].weights
    ideal = (WORK_S * sum(weights) / weight for weight in weights)
    return (
        f"{' '.join(f'{time.mean:.1f}' for time in _times(runs))} (ideal {' '.join(f'{time:.0f}' for time in ideal)})"
    )


def _of_bursts(
    label: str, system: str, runs: list[Shared], found: Mapping[tuple[str, str], list[Shared]]
) -> Iterator[Finding]:
    """The min-max ratio of six guests that fill the GPU, by bursts; beside it that with slices."""
    six = list(map(float, paper()["figure9"]["weights"]))
    if system != BURSTS or (label, OURS) not in found or list(map(float, runs[0].weights)) != six:
        return
    if estimate([each.together for each in runs]).mean <= IDLE_TOGETHER:
        slices = estimate([each.min_max_ratio for each in found[label, OURS]]).mean
        ours = estimate([each.min_max_ratio for each in runs]).mean
        yield Finding("six_guests_bursts", f"{label}; {slices:.3f} with slices", ours)


def _of_claims(label: str, system: str, runs: list[Shared]) -> Iterator[Finding]:
    """The min-max ratio of programs that fill the GPU; what the worst-off gets, and how much all do, of those that leave it to each other."""
    weights = [int(weight) for weight in runs[0].weights]
    guests = {tuple(paper()[f"figure{number}"]["weights"]): name for number, name in ((8, "three"), (9, "six"))}
    if tuple(weights) not in guests:
        return
    name, detail = guests[tuple(weights)], f"{label}, {system}"
    together = estimate([each.together for each in runs]).mean
    if together > IDLE_TOGETHER:
        least = estimate([each.least for each in runs]).mean
        yield Finding(f"{name}_guests_least", f"{detail}, {together:.2f} of one alone together", least)
    else:
        yield Finding(f"{name}_guests", detail, estimate([each.min_max_ratio for each in runs]).mean)
    if name == "six":
        yield Finding("six_guests_overhead", detail, estimate([each.overhead for each in runs]).mean)
