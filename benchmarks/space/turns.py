"""Turns of a space's best-effort vGPUs among each other, beside those of fair vGPUs in no space: gaps between them, and shares by weight.

Processes of a space are one to the driver, so a turn there needs no switch of contexts. Gaps are by the device's clock, from the end of one
vGPU's last kernel to the begin of the next one's first; below 0 where both ran at the same time.

Wrong when the device's clock is coarse, or when a space's processes see different ones.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backend_host.config import Config
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.part import Part
from benchmarks.ratios import throughput_min_max_ratio
from benchmarks.sheet import Sheet
from benchmarks.space import live
from benchmarks.stretch import run_together
from benchmarks.style import MORE
from benchmarks.timeline import Spans, merged
from benchmarks.workloads import Workload, spin

GAPS, SHARES = "space gaps", "space shares"
INSIDE, OUTSIDE = WHERE = ("in a space", "in none")
WEIGHTS = (1, 2, 3)
SLICE_MS = 2.0
EDGE_PART = 0.25
PERCENTS = (50, 90, 99)


def _nr_records(options: argparse.Namespace) -> int:
    return 2 * len(WHERE)


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    sliced = replace(settings, slice_ms=settings.slice_ms or SLICE_MS)
    workload = spin(100, 64) if options.device == "cuda" else spin(1000, 8)
    with reporter.tolerating("turns"), live.serving(sliced) as config:
        for where in WHERE:
            head = {"where": where, "slice_ms": sliced.slice_ms}
            reporter.doing(f"gaps {where}")
            with reporter.tolerating(f"gaps {where}"):
                yield {"kind": GAPS, **head, **_gaps(config, where, workload, options.seconds)}
            reporter.doing(f"shares {where}")
            with reporter.tolerating(f"shares {where}"):
                yield {"kind": SHARES, **head, **_shares(config, where, workload, options.seconds)}


def _entitlements(where: str, space: str, weights: Sequence[int]) -> list[live.Entitlement]:
    return [live.best_effort(space, weight) if where == INSIDE else {"weight": weight} for weight in weights]


def _gaps(config: Config, where: str, workload: Workload, seconds: float) -> Record:
    space = "gaps"
    with (
        tempfile.TemporaryDirectory(prefix="fairgv-turns-") as folder,
        live.members(config, space, _entitlements(where, space, (1, 1))) as session,
    ):
        paths = [Path(folder) / f"{index}.spans" for index in range(2)]
        logged = [replace(workload, arguments=(*workload.arguments, "--log", str(path))) for path in paths]
        run_together(session, logged, seconds)
        found = gaps_us([np.fromfile(path, dtype=np.uint64).reshape(-1, 2) for path in paths])
    if not found:
        raise ProgramFailedError("no turn ended")
    return {"nr": len(found), "gaps_us": {str(each): float(np.percentile(found, each)) for each in PERCENTS}}


def gaps_us(logs: Sequence[Spans]) -> tuple[float, ...]:
    """From one vGPU's kernels to another's, at each hand-over."""
    spans, owners = merged(logs)
    ended = np.maximum.accumulate(spans[:-1, 1].astype(np.float64))
    is_gap = owners[1:] != owners[:-1]
    return tuple((spans[1:, 0].astype(np.float64) - ended)[is_gap] / 1e3)


def _shares(config: Config, where: str, workload: Workload, seconds: float) -> Record:
    edge_s, space = EDGE_PART * seconds, "shares"
    with live.members(config, space, _entitlements(where, space, WEIGHTS)) as session:
        [one] = run_together(session, [workload], seconds, edge_s)
        outcomes = run_together(session, [workload] * len(WEIGHTS), seconds, edge_s)
    throughputs = [outcome.throughput for outcome in outcomes]
    ratio = throughput_min_max_ratio(throughputs, [one.throughput] * len(WEIGHTS), WEIGHTS)
    return {"weights": list(WEIGHTS), "alone": one.throughput, "throughputs": throughputs, "min_max_ratio": ratio}


def _sheet(document: Document) -> Sheet | None:
    gaps = {each["where"]: each for each in records(document, GAPS)}
    shares = {each["where"]: each for each in records(document, SHARES)}
    rows = tuple(
        (
            where,
            *(f"{gaps[where]['gaps_us'][str(each)]:.1f}" if where in gaps else "-" for each in PERCENTS),
            str(gaps[where]["nr"]) if where in gaps else "-",
            f"{shares[where]['min_max_ratio']:.3f}" if where in shares else "-",
        )
        for where in WHERE
        if where in gaps or where in shares
    )
    if not rows:
        return None
    columns = ("vGPUs", "gap us, median", *(f"{each} %" for each in PERCENTS[1:]), "turns", "min-max ratio")
    notes = (
        f"Two vGPUs of equal weight, of best effort in a space and fair ones in none, by turns of {SLICE_MS:g} ms; gaps by the device's clock.",
        f"Shares of three, by weights of {':'.join(map(str, WEIGHTS))}.",
    )
    return Sheet("Turns within a space", columns, rows, notes)


def _figures(document: Document) -> dict[str, float]:
    found = {
        f"turns/{each['where']}/gap us/{percent}": each["gaps_us"][str(percent)]
        for each in records(document, GAPS)
        for percent in PERCENTS
    }
    return found | {f"turns/{each['where']}/min-max ratio": each["min_max_ratio"] for each in records(document, SHARES)}


def _draw(axes: Any, document: Document) -> str | None:
    shares = records(document, SHARES)
    if not shares:
        return None
    width = 0.8 / len(shares)
    for number, each in enumerate(shares):
        due = [weight / sum(each["weights"]) for weight in each["weights"]]
        got = [throughput / each["alone"] / part for throughput, part in zip(each["throughputs"], due, strict=True)]
        axes.bar([place + width * number for place in range(len(got))], got, width, label=each["where"])
    axes.axhline(1, color="grey")
    axes.set_xticks(
        [place + width * (len(shares) - 1) / 2 for place in range(len(WEIGHTS))],
        [f"weight {each}" for each in WEIGHTS],
    )
    axes.set_ylabel(f"throughput over what is due\n{MORE}")
    axes.legend(fontsize="x-small")
    gaps = {each["where"]: each["gaps_us"]["50"] for each in records(document, GAPS)}
    if INSIDE not in gaps or OUTSIDE not in gaps:
        return "Turns within a space"
    return f"Between two turns in a space there are {gaps[INSIDE]:.0f} us, in none {gaps[OUTSIDE]:.0f}"


PART = Part("turns", _nr_records, _measure, _sheet, _figures, _draw)
