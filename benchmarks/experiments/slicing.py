"""What slicing costs and what it gives (Table 4 of the paper).

Cost: the time of a large product of matrices in so many parts, over its time whole, for two sizes, by events on the program's stream. Beside it
stands the persistent variant, which nobody stops here. What is less than that comes last, where there is time: very many parts, and the product
natively.

Gain: how long a vGPU that wakes waits for a small kernel while another one runs a long one, whole, in parts of the default length, and
persistently, beside the same alone.

Shares: what a tenant of endless long kernels and one of short ones get by weight (shares.py).

Wrong when something else runs on the device, and where guest, worker and the device's threads have no core each: softgpu's figures show that
the programs run, and nothing more.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from benchmarks.build import build
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, positive, setting
from benchmarks.experiments.shares import (
    draw_shares,
    measure_shares,
    nr_shares,
    share_figures,
    shares_sheet,
    shares_title,
)
from benchmarks.guests import NATIVE, Setting, open_session, run
from benchmarks.paper import Finding, paper
from benchmarks.sheet import Sheet
from benchmarks.style import GREY, LESS, head, log_axis
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

MEASURED = ("costs", "waits", "shares")
WAYS: Mapping[str, Mapping[str, object]] = {
    "whole": {"slicing": "off"},
    "in parts": {"slicing": "boxes", "slicing_threshold_blocks": 1000},
    "persistent": {"slicing": "persistent", "slicing_threshold_blocks": 1000},
}
PERCENTS = (50, 90, 99)
LIMIT_S = 300.0
LITTLE = 0.05
"""How much slower parts may be, for the head of the plot."""
LEAST_BLOCKS = 1500
"""Of a part: with as many the paper finds a slowdown below 5 %."""
SLOWDOWN = f"parts of {LEAST_BLOCKS} blocks and more/slowdown %"


@dataclass(frozen=True)
class Sizes:
    """What is measured on a kind of device. `spin` is a long launch: blocks, and us of each thread; a part of it has `least_blocks` at least;
    `nr_wakes` sleeps of `sleep_us` beside it. `further_parts` come last."""

    blocks: tuple[int, ...]
    parts: tuple[int, ...]
    nr_rounds: int
    spin: tuple[int, int]
    least_blocks: int
    nr_wakes: int
    sleep_us: int
    further_parts: tuple[int, ...] = ()


SIZES = {
    "cuda": Sizes((600, 900), (64, 128, 256, 512, 1024), 3, (40_000_000, 50), LEAST_BLOCKS, 300, 10_000, (4096,)),
    "soft": Sizes((16, 24), (4, 16, 64), 2, (2_000, 20), 2, 10, 20_000),
}


@dataclass(frozen=True)
class Way:
    """How a product runs. `parts`: 1 whole, 0 persistent, -1 natively; each part was told to have `least_blocks`."""

    parts: int
    least_blocks: int
    daemon: Mapping[str, object]

    @property
    def system(self) -> str:
        """For `open_session`."""
        return NATIVE if self.parts < 0 else OURS


class Slicing(Experiment):
    """`fairgv-bench slicing`."""

    name = "slicing"
    summary = "what launches in parts cost, and what others gain (Table 4)"
    repetitions = 1
    seconds = 6.0
    subjects: ClassVar[Subjects] = {
        "cost": ("blocks", "parts", "least_blocks"),
        "wait": ("way",),
        "share": ("way",),
        "share alone": ("way", "workload"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which of them; how long kernels are."""
        parser.add_argument(
            "--only",
            type=names_of(MEASURED),
            default=list(MEASURED),
            metavar="NAME,...",
            help=f"of {', '.join(MEASURED)} (default all)",
        )
        parser.add_argument(
            "--kernel-seconds",
            type=positive,
            metavar="S",
            help="of the long kernels of shares (default 10; 1 on softgpu)",
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each way of each size, for each way to wait, and for each run of shares."""
        sizes = SIZES[options.device]
        nr = {
            "costs": sum(len(_ways(blocks, sizes)) + len(_further_ways(blocks, sizes)) for blocks in sizes.blocks),
            "waits": 1 + len(WAYS),
            "shares": nr_shares(options.device),
        }
        return int(options.repetitions * sum(nr[name] for name in set(options.only)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Costs, waits, shares, further costs."""
        settings, sizes = setting(options), SIZES[options.device]
        for repetition in range(options.repetitions):
            measurements = (
                ("costs", _measure_costs(_ways, settings, sizes, reporter)),
                ("waits", _measure_waits(settings, sizes, reporter)),
                ("shares", measure_shares(options, settings, reporter)),
                ("costs", _measure_costs(_further_ways, settings, sizes, reporter)),
            )
            for record in itertools.chain(*(measured for name, measured in measurements if name in options.only)):
                yield {**record, "repetition": repetition}

    def sheets(self, document: Document) -> list[Sheet]:
        """Costs, waits and shares."""
        return [sheet for sheet in (_costs(document), _waits(document), shares_sheet(document)) if sheet is not None]

    def findings(self, document: Document) -> list[Finding]:
        """The greatest slowdown by parts that are as large as the paper wants them."""
        slowdown = self.figures(document).get(SLOWDOWN)
        return [] if slowdown is None else [Finding("slicing", "", slowdown)]

    def figures(self, document: Document) -> dict[str, float]:
        """The greatest slowdown by parts of many blocks, how much longer a small kernel takes beside each way, all min-max ratios."""
        slowdowns = [
            slowdown
            for (_, parts, least), slowdown in _slowdowns(document).items()
            if parts > 1 and least >= LEAST_BLOCKS
        ]
        found = {SLOWDOWN: 100 * max(slowdowns)} if slowdowns else {}
        waits = {name: float(np.median(us)) for name, us in _wait_us(document).items()}
        found |= {f"{name}/wait us over alone": us - waits["alone"] for name, us in waits.items() if "alone" in waits}
        return found | share_figures(document)

    def plot(self, document: Document, figure: Any) -> None:
        """Slowdown over the blocks of a part, the paper's beside it; min-max ratios."""
        has_shares, has_costs = (bool(records(document, kind)) for kind in ("share", "cost"))
        panels = [_draw_slowdowns] * (has_costs or not has_shares) + [draw_shares] * has_shares
        figure.set_size_inches(9 * len(panels), 5)
        for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            draw(axes, document)
        head(figure, _title(document) if has_costs else shares_title(document), document)


def _title(document: Document) -> str:
    """From which size of parts on they cost little."""
    found = sorted((least, slowdown) for (_, parts, least), slowdown in _slowdowns(document).items() if parts > 1)
    above = [least for least, _ in found if all(slowdown < LITTLE for other, slowdown in found if other >= least)]
    if not above:
        return "What it costs to run a large kernel in parts"
    return f"Large kernels in parts of {above[0]:,} blocks or more run less than {100 * LITTLE:g} % slower than whole"


def _draw_slowdowns(axes: Any, document: Document) -> None:
    found = _slowdowns(document)
    for blocks in dict.fromkeys(blocks for blocks, _, _ in found):
        points = {least: 100 * each for (of, parts, least), each in found.items() if of == blocks and parts > 0}
        axes.plot(list(points), list(points.values()), "o-", label=f"of {blocks} x {blocks} blocks")
    for (size, table), marker in zip(paper()["table4"].items(), "s^", strict=True):
        theirs = {int(least): percent for least, percent in table["slowdown_percent"].items()}
        axes.plot(list(theirs), list(theirs.values()), f"{marker}:", color=GREY, label=f"the paper's, {size}")
    log_axis(axes.xaxis, [10.0**exponent for exponent in range(2, 7)])
    axes.set(xlabel="blocks of a part", ylabel=f"slower than whole, %\n{LESS}")
    axes.legend(title="kernels")


def _ways(blocks: int, sizes: Sizes) -> list[Way]:
    persistent = Way(0, blocks * blocks, {"slicing": "persistent", "slicing_threshold_blocks": 1})
    return [
        Way(1, blocks * blocks, {"slicing": "off"}),
        *(_in_boxes(blocks, parts) for parts in sizes.parts),
        persistent,
    ]


def _further_ways(blocks: int, sizes: Sizes) -> list[Way]:
    return [*(_in_boxes(blocks, parts) for parts in sizes.further_parts), Way(-1, blocks * blocks, {})]


def _in_boxes(blocks: int, parts: int) -> Way:
    least = -(-blocks * blocks // parts)
    daemon = {"slicing_threshold_blocks": 1, "slicing_least_blocks": least, "slicing_part_us": 0}
    return Way(parts, least, {"slicing": "boxes", **daemon})


def _measure_costs(
    ways: Callable[[int, Sizes], list[Way]], settings: Setting, sizes: Sizes, reporter: Reporter
) -> Iterator[Record]:
    for blocks in sizes.blocks:
        for way in ways(blocks, sizes):
            reporter.doing(f"{blocks} x {blocks} blocks, {_parts(way.parts)}")
            with reporter.tolerating(f"{blocks} x {blocks} blocks, {_parts(way.parts)}"):
                seconds = _seconds(blocks, way, settings, sizes.nr_rounds)
                found = {"blocks": blocks, "parts": way.parts, "least_blocks": way.least_blocks}
                yield {"kind": "cost", **found, "seconds": seconds}


def _measure_waits(settings: Setting, sizes: Sizes, reporter: Reporter) -> Iterator[Record]:
    for name in ("alone", *WAYS):
        reporter.doing(f"a small kernel, the other's {name}")
        with reporter.tolerating(f"a small kernel, the other's {name}"):
            yield _wait(name, settings, sizes)


def _seconds(blocks: int, way: Way, settings: Setting, nr_rounds: int) -> float:
    """Median of a product's rounds."""
    with open_session(way.system, replace(settings, daemon=way.daemon)) as session:
        arguments = ["multiply", str(blocks), str(nr_rounds)]
        told = parse_report(run(session, 0, build("large"), arguments).checked("large"))
    return float(statistics.median(told["seconds"]))


def _wait(name: str, settings: Setting, sizes: Sizes) -> Record:
    """What each small launch takes, in us, alone or beside a long one of another vGPU; that one takes `others_s`."""
    daemon = {"slicing_least_blocks": sizes.least_blocks, **WAYS.get(name, WAYS["whole"])}
    small = ["wake", str(sizes.nr_wakes), str(sizes.sleep_us)]
    with open_session(OURS, replace(settings, daemon=daemon), (1, 1)) as session:
        if name == "alone":
            told = parse_report(run(session, 1, build("large"), small).checked("large"))
            return {"kind": "wait", "way": name, "us": told["us"], "others_s": None}
        other = session.start(0, build("large"), ["spin", *map(str, sizes.spin)])
        try:
            if (line := other.read_line(time.monotonic() + LIMIT_S)) != "ready":
                raise ProgramFailedError(f"large said: {line}")
            told = parse_report(run(session, 1, build("large"), small).checked("large"))
            others = parse_report(other.finish(LIMIT_S).checked("large"))
        finally:
            other.stop()
    return {"kind": "wait", "way": name, "us": told["us"], "others_s": others["first_s"]}


def _parts(parts: int) -> str:
    return {-1: "native", 0: "persistent", 1: "whole"}.get(parts, str(parts))


def _medians(document: Document) -> dict[tuple[int, int, int], float]:
    """Seconds by blocks of an edge, parts and blocks of a part."""
    found: dict[tuple[int, int, int], list[float]] = {}
    for record in records(document, "cost"):
        found.setdefault((record["blocks"], record["parts"], record["least_blocks"]), []).append(record["seconds"])
    return {key: statistics.median(each) for key, each in found.items()}


def _slowdowns(document: Document) -> dict[tuple[int, int, int], float]:
    """Over the same product whole, less 1; none where that was not measured."""
    medians = _medians(document)
    whole = {blocks: seconds for (blocks, parts, _), seconds in medians.items() if parts == 1}
    return {key: seconds / whole[key[0]] - 1 for key, seconds in medians.items() if key[0] in whole}


def _costs(document: Document) -> Sheet | None:
    slowdowns = _slowdowns(document)
    rows = []
    for key, seconds in sorted(_medians(document).items()):  # natively, persistently, whole, in parts
        blocks, parts, least = key
        theirs = paper()["table4"].get(f"{blocks}x{blocks}", {"slowdown_percent": {}})["slowdown_percent"]
        nearest = next((f"{percent:.1f}" for of, percent in theirs.items() if abs(int(of) - least) <= 1), "-")
        slowdown = f"{100 * slowdowns[key]:+.1f}" if key in slowdowns else "-"
        beside = nearest if parts > 0 else "-"
        rows.append((f"{blocks} x {blocks}", _parts(parts), str(least), f"{seconds:.4g}", slowdown, beside))
    if not rows:
        return None
    columns = ("blocks", "parts", "blocks of a part", "s", "slowdown %", "paper, Table 4")
    return Sheet("A product of matrices in parts", columns, tuple(rows), ("Slowdown: against the same product whole.",))


def _wait_us(document: Document) -> dict[str, list[float]]:
    """Of all repetitions, by what the other one does."""
    found: dict[str, list[float]] = {}
    for record in records(document, "wait"):
        found.setdefault(record["way"], []).extend(record["us"])
    return found


def _waits(document: Document) -> Sheet | None:
    rows = []
    for name, us in _wait_us(document).items():
        other = statistics.median(
            record["others_s"] or 0 for record in records(document, "wait") if record["way"] == name
        )
        figures = (f"{np.percentile(us, percent):.0f}" for percent in PERCENTS)
        rows.append((name, f"{other:.3g}" if other else "-", *figures))
    if not rows:
        return None
    columns = ("the other's kernel", "of s", "us, median", "90 %", "99 %")
    return Sheet("What a small kernel takes beside a long one", columns, tuple(rows))
