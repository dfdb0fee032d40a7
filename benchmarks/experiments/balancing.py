"""Placement alone beside placement and moves, on a simulated host of several GPUs (figures 10 to 14 of the DCUDA paper).

Twenty programs of half a minute each (scheduler/simulator/host/programs.py) come one after the other, in orders at random, one each 7, 5 or
3 s. Each order is simulated with each mode of balancing, the first of which is what the others are compared with. All that decides is the
daemon's: placement, balancing, turns. What a move costs is from two H100s (scheduler/simulator/host/settings.py).

    fairgv-bench balancing --orders 50 --plot orders.png
    fairgv-bench balancing --orders 5 --arrivals 5 --balance off,balance,compact

A GPU's overloaded time is that in which its programs together want more than all of it; a program's time is that from its arrival to its end,
over that alone. Where all programs together want more than all GPUs, some GPU is overloaded wherever they are: the table says how much of the
time that is so.

Wrong when taken for a measurement: no GPU is used.
"""

import argparse
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number, positives
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, MORE, due, head
from scheduler.balance import BALANCE, MODES, OFF
from scheduler.simulator.host.command import orders
from scheduler.simulator.host.host import simulate_host
from scheduler.simulator.host.programs import PROGRAMS
from scheduler.simulator.host.report import HostReport
from scheduler.simulator.host.settings import HostSettings

KIND, LOAD = "order", "load"
PARTS = ("orders", "load")
SIMULATOR = "simulator"
ARRIVALS_S = (7.0, 5.0, 3.0)
PAPERS_S = 5.0
"""One program in so many seconds, where the paper says nothing else."""
DIGITS = 5
SIDES = ("placement alone", "placement and moves")
LEVELS = ("less than half", "half and more", "more than all")
"""Of a GPU that is wanted, as records have them in `levels`, GPU by GPU: parts of the time."""

Runs = Mapping[int, Record]
"""Of one interval and mode, by the order's number."""


def balance_modes(text: str) -> list[str]:
    """At least one to compare with, and one to compare."""
    found: list[str] = names_of(MODES)(text)
    if len(set(found)) < 2:
        raise argparse.ArgumentTypeError("two modes are compared at least, as off,balance")
    return list(dict.fromkeys(found))


def simulated(settings: HostSettings) -> HostReport:
    """As another process can call it."""
    return simulate_host(settings)


def simulated_all(found: Sequence[tuple[int, HostSettings]]) -> Iterator[tuple[int, HostSettings, HostReport]]:
    """Each with its number, in this order; as many at a time as there are cores."""
    with multiprocessing.get_context("spawn").Pool(
        os.cpu_count(), signal.signal, (signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        reports = pool.imap(simulated, [settings for _, settings in found])
        for (number, settings), report in zip(found, reports, strict=True):
            yield number, settings, report


def by_mode(document: Document) -> dict[tuple[float, str], dict[int, Record]]:
    """Runs by interval in s and mode; of two of one order the newer."""
    found: dict[tuple[float, str], dict[int, Record]] = {}
    for record in records(document, KIND):
        found.setdefault((record["interval_s"], record["balance"]), {})[record["order"]] = record
    return found


def intervals(document: Document) -> list[float]:
    """In s, the longest first."""
    return sorted({interval_s for interval_s, _ in by_mode(document)}, reverse=True)


def pairs(document: Document, interval_s: float, mode: str) -> list[tuple[Record, Record]]:
    """Of each order the run with placement alone, and that with the mode."""
    found = by_mode(document)
    before, after = found.get((interval_s, OFF), {}), found.get((interval_s, mode), {})
    return [(before[order], after[order]) for order in sorted(before.keys() & after.keys())]


def over(some: Sequence[tuple[Record, Record]], name: str) -> float:
    """One figure's mean with the mode over that of placement alone."""
    return fmean(after[name] for _, after in some) / (fmean(before[name] for before, _ in some) or 1.0)


class Balancing(Experiment):
    """`fairgv-bench balancing`."""

    name = "balancing"
    summary = "placement alone beside moves between GPUs, in simulation (DCUDA's Figures 10 to 14); uses no device"
    repetitions = 1
    subjects: ClassVar[Subjects] = {
        KIND: ("interval_s", "balance", "order", "gpus"),
        LOAD: ("interval_s", "balance", "gpus"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """What comes, and how often."""
        told = ",".join(f"{each:g}" for each in ARRIVALS_S)
        parser.add_argument(
            "--parts",
            type=names_of(PARTS),
            default=list(PARTS),
            metavar="NAME,...",
            help=f"of {', '.join(PARTS)}: what programs get, and how much of each GPU is wanted in the first order (all)",
        )
        parser.add_argument(
            "--arrivals",
            type=positives,
            default=list(ARRIVALS_S),
            metavar="S,...",
            help=f"one program in so many s ({told})",
        )
        parser.add_argument(
            "--balance",
            type=balance_modes,
            default=[OFF, BALANCE],
            metavar="MODE,...",
            help=f"of {', '.join(MODES)}, compared with the first one (default {OFF},{BALANCE})",
        )
        parser.add_argument(
            "--orders", type=natural_number, default=50, metavar="N", help="of the programs (default 50)"
        )
        parser.add_argument("--gpus", type=natural_number, default=4, metavar="N", help="of the host (default 4)")

    def device(self, options: argparse.Namespace) -> str:
        """None is used."""
        return SIMULATOR

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each order, interval and mode, and of the first order one of the GPUs' load."""
        found = _wanted(options)
        nr_first = sum(order == 0 for order, _ in found)
        return len(found) * ("orders" in options.parts) + nr_first * ("load" in options.parts)

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Orders are the outermost loop, so that an early end leaves whole ones."""
        found = _wanted(options)
        reporter.doing(f"{len({order for order, _ in found})} orders on {options.gpus} GPUs")
        for order, settings, report in simulated_all(found):
            if "orders" in options.parts:
                yield record_of(order, settings, report)
            if "load" in options.parts and order == 0:
                yield _load_of(settings, report)

    def sheets(self, document: Document) -> list[Sheet]:
        """Means over orders."""
        found = by_mode(document)
        rows = []
        for interval_s in intervals(document):
            for mode in dict.fromkeys(mode for _, mode in found):
                if runs := found.get((interval_s, mode)):
                    rows.append(_row(document, interval_s, mode, runs))
        names = (
            "one in",
            "mode",
            "orders",
            "overloaded",
            "over off",
            "more wanted than all have",
            "used",
            "time over alone",
        )
        columns = (*names, "slowed by a fifth at most", "Jain", "equals", "kJ", "moves")
        notes = (
            "Means over orders of the same programs, in simulation. Overloaded: of the GPUs' time. Jain: of how fast all programs are.",
            "Equals: Jain's index of programs that share a GPU and each want all of it.",
        )
        return [Sheet("Programs that arrive and end", columns, tuple(rows), notes)] if rows else []

    def findings(self, document: Document) -> list[Finding]:
        """At the paper's interval, where it has one; its most is of any."""
        found = []
        if some := pairs(document, PAPERS_S, BALANCE):
            what = f"one program in {PAPERS_S:g} s, {len(some)} orders"
            after = [after for _, after in some]
            found += [
                Finding("dcuda_overloaded", what, over(some, "overloaded")),
                Finding("dcuda_utilisation", what, over(some, "utilisation")),
                Finding("dcuda_unharmed", what, fmean(each["unharmed"] for each in after)),
                Finding("dcuda_jain", what, fmean(each["jain"] for each in after)),
            ]
        best = [
            (min(after["mean_slowdown"] / before["mean_slowdown"] for before, after in some), interval_s)
            for interval_s in intervals(document)
            if (some := pairs(document, interval_s, BALANCE))
        ]
        if best:
            least, interval_s = min(best)
            found.append(Finding("dcuda_time", f"the best order, one program in {interval_s:g} s", least))
        return found

    def figures(self, document: Document) -> dict[str, float]:
        """By interval and mode: overloaded and mean time over those of placement alone, programs that are hardly slowed, Jain's indices."""
        found = {}
        for interval_s, mode in by_mode(document):
            if mode != OFF and (some := pairs(document, interval_s, mode)):
                place, after = f"{interval_s:g} s/{mode}", [after for _, after in some]
                found[f"{place}/overloaded"] = over(some, "overloaded")
                found[f"{place}/time"] = over(some, "mean_slowdown")
                found[f"{place}/unharmed"] = fmean(each["unharmed"] for each in after)
                if equals := [each["equals"] for each in after if each["equals"] is not None]:
                    found[f"{place}/equals"] = fmean(equals)
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Figure 12: the mean time of a program, order by order."""
        some = _papers(document)
        axes = figure.subplots()
        some.sort(key=lambda pair: pair[0]["mean_slowdown"])
        _draw(axes, some, "mean_slowdown")
        axes.set(xlabel="order of the programs, the best one first", ylabel=f"mean time over alone\n{LESS}")
        due(axes, "alone", y=1)
        axes.legend(loc="upper left")
        before, after = (fmean(pair[place]["mean_slowdown"] for pair in some) - 1 for place in (0, 1))
        longer = [f"{100 * each:.1f} %" for each in (after, before)]
        finding = f"With moves programs take {longer[0]} longer than alone, with placement alone {longer[1]}"
        head(figure, finding, document, _told(some))


def plot_harm(document: Document, figure: Any) -> None:
    """Figure 13: how many programs are hardly slowed down, and Jain's index."""
    some = _papers(document)
    harm, equal = figure.subplots(1, 2)
    for axes, name, label in (
        (harm, "unharmed", "programs slowed by 20 % at most"),
        (equal, "jain", "Jain's index"),
    ):
        _draw(axes, sorted(some, key=lambda pair, name=name: pair[0][name]), name)  # type: ignore[misc]
        axes.set(xlabel="order, the worst one first", ylabel=f"{label}\n{MORE}")
    harm.legend(loc="lower right")
    harm.set_ylim(0, 1.05)
    before, after = (fmean(pair[place]["unharmed"] for pair in some) for place in (0, 1))
    parts = [f"{100 * each:.0f} %" for each in (after, before)]
    finding = f"With moves {parts[0]} of the programs are slowed by 20 % at most, {parts[1]} with placement alone"
    head(figure, finding, document, _told(some))


def plot_load(document: Document, figure: Any) -> None:
    """Figure 10: for which part of the time how much of each GPU was wanted, in the first order, with placement alone and with moves."""
    both = _loads(document)
    if both is None:
        raise NotMeasurableError(f"a plot wants the load of GPUs with the modes {OFF} and {BALANCE}")
    sides = figure.subplots(1, 2, sharey=True)
    for axes, record, title in zip(sides, both, SIDES, strict=True):
        below = [0.0] * record["gpus"]
        names = [f"GPU {number}" for number in range(record["gpus"])]
        for level, label in enumerate(LEVELS):
            parts = [100 * each[level] for each in record["levels"]]
            axes.bar(names, parts, width=0.6, bottom=below, label=label)
            below = [low + more for low, more in zip(below, parts, strict=True)]
        axes.set_title(title)
    sides[0].set_ylabel("% of the time")
    figure.legend(*sides[0].get_legend_handles_labels(), loc="outside right center", title="wanted of a GPU")
    before, after = (f"{100 * fmean(each[-1] for each in record['levels']):.1f} %" for record in both)
    finding = f"In one order GPUs are overloaded for {after} of the time with moves, {before} without"
    interval_s = both[0]["interval_s"]
    notes = [f"The first order of {len(PROGRAMS)} programs, one in {interval_s:g} s, simulated."]
    if some := pairs(document, interval_s, BALANCE):
        means = [f"{100 * fmean(pair[place]['overloaded'] for pair in some):.1f} %" for place in (1, 0)]
        notes.append(f"Overloaded in the mean of {len(some)} orders: {means[0]} and {means[1]}.")
    head(figure, finding, document, *notes)


def has_loads(document: Document) -> bool:
    """What `plot_load` draws is there."""
    return _loads(document) is not None


def _loads(document: Document) -> tuple[Record, Record] | None:
    """With placement alone and with moves, at the paper's interval, or else at the longest that has both."""
    found = {(record["interval_s"], record["balance"]): record for record in records(document, LOAD)}
    for interval_s in (PAPERS_S, *sorted({interval_s for interval_s, _ in found}, reverse=True)):
        if {(interval_s, OFF), (interval_s, BALANCE)} <= found.keys():
            return found[interval_s, OFF], found[interval_s, BALANCE]
    return None


def all_settings(options: argparse.Namespace) -> list[tuple[int, HostSettings]]:
    """Each with the number of its order. A repetition has other orders, and other pauses."""
    return [
        (order, HostSettings(programs, round(interval_s * 1e9), options.gpus, mode, seed=seed))
        for seed in range(options.repetitions)
        for order, programs in enumerate(orders(list(PROGRAMS.values()), options.orders, seed), options.orders * seed)
        for interval_s in options.arrivals
        for mode in options.balance
    ]


def _wanted(options: argparse.Namespace) -> list[tuple[int, HostSettings]]:
    """Of the load alone the first order is enough."""
    return [each for each in all_settings(options) if "orders" in options.parts or each[0] == 0]


def record_of(order: int, settings: HostSettings, report: HostReport) -> Record:
    """Of one simulation."""
    figures = {name: value if value is None else round(value, DIGITS) for name, value in report.figures().items()}
    return {
        "kind": KIND,
        "interval_s": settings.interval_ns / 1e9,
        "balance": settings.balance,
        "order": order,
        "gpus": settings.nr_gpus,
        **figures,
    }


def _load_of(settings: HostSettings, report: HostReport) -> Record:
    return {
        "kind": LOAD,
        "interval_s": settings.interval_ns / 1e9,
        "balance": settings.balance,
        "gpus": settings.nr_gpus,
        "levels": [
            [round(each / report.duration_ns, DIGITS) for each in (device.low_ns, device.middle_ns, device.over_ns)]
            for device in report.devices
        ],
    }


def _row(document: Document, interval_s: float, mode: str, runs: Runs) -> tuple[str, ...]:
    some = pairs(document, interval_s, mode)
    is_compared = mode != OFF and bool(some)

    def mean(name: str) -> float:
        return fmean(run[name] for run in runs.values())

    equals = [run["equals"] for run in runs.values() if run["equals"] is not None]
    return (
        f"{interval_s:g} s",
        mode,
        str(len(runs)),
        f"{mean('overloaded'):.1%}",
        f"{over(some, 'overloaded'):.3f}" if is_compared else "-",
        f"{mean('beyond'):.1%}",
        f"{mean('utilisation'):.1%}",
        estimate([run["mean_slowdown"] for run in runs.values()]).text(3),
        f"{mean('unharmed'):.1%}",
        f"{mean('jain'):.3f}",
        f"{fmean(equals):.3f}" if equals else "-",
        f"{mean('joules') / 1000:.1f}",
        f"{mean('nr_moves'):.1f}",
    )


def _papers(document: Document) -> list[tuple[Record, Record]]:
    """At the paper's interval, or else at the first there is. NotMeasurableError where nothing is to be compared."""
    for interval_s in (PAPERS_S, *intervals(document)):
        if some := pairs(document, interval_s, BALANCE):
            return some
    raise NotMeasurableError(f"a plot wants the modes {OFF} and {BALANCE}")


def _draw(axes: Any, some: Sequence[tuple[Record, Record]], name: str) -> None:
    for place, label in enumerate(SIDES):
        axes.plot(range(1, len(some) + 1), [pair[place][name] for pair in some], "o", markersize=4, label=label)


def _told(some: Sequence[tuple[Record, Record]]) -> str:
    interval_s, nr_gpus = some[0][0]["interval_s"], some[0][0]["gpus"]
    return f"A dot is an order of {len(PROGRAMS)} programs, one in {interval_s:g} s, on {nr_gpus} simulated GPUs."
