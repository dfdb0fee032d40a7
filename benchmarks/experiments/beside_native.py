"""Each program alone: natively, with the device's slices, and with turns by bursts, as in figure 18 of the Gemini paper. For `clients`.

The three follow each other in each repetition, in an order that changes with it. A ratio is of two runs of one repetition.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.guests import NATIVE, Session, Setting, open_session, run
from benchmarks.ratios import estimate, geometric_mean
from benchmarks.sheet import Sheet
from benchmarks.workloads import Workload, parse_report, throughput, unit_of
from scheduler.elastic import Elastic
from scheduler.quota import QUOTAS

SLICES, BURSTS = "slices", "bursts"
SYSTEMS = (NATIVE, SLICES, BURSTS)
KIND = "alone"

Ratios = Mapping[str, list[float]]
"""By program, one for each repetition."""


def measured(
    workloads: Sequence[Workload], settings: Setting, seconds: float, number: int, tell: Reporter
) -> Iterator[Record]:
    """One record for each program, of one repetition."""
    with contextlib.ExitStack() as stack:
        sessions = {name: stack.enter_context(_session(name, settings, workloads)) for name in SYSTEMS}
        order = [SYSTEMS[(place + number) % len(SYSTEMS)] for place in range(len(SYSTEMS))]
        for workload in workloads:
            what = f"{workload.label}: alone"
            tell.doing(what)
            with tell.tolerating(what):
                reports = {name: _report(sessions[name], workload, seconds) for name in order}
                reached = {name: throughput(report) for name, report in reports.items()}
                if min(reached.values()) <= 0:
                    raise ProgramFailedError(f"nothing was done within {seconds:g} s")
                names = {"kind": KIND, "program": workload.label, "repetition": number}
                yield names | {"unit": unit_of(reports[NATIVE]), **{name: reached[name] for name in SYSTEMS}}


def _session(name: str, settings: Setting, workloads: Sequence[Workload]) -> contextlib.AbstractContextManager[Session]:
    if name == NATIVE:
        return open_session(NATIVE, settings)
    quota = dict(zip((SLICES, BURSTS), QUOTAS, strict=True))[name]
    setting = replace(settings, daemon={**settings.daemon, "quota": quota})
    return open_session(Elastic.name, setting, (1,), [workload.path() for workload in workloads])


def _report(session: Session, workload: Workload, seconds: float) -> Record:
    words = [*workload.arguments, "--seconds", f"{seconds:g}"]
    return parse_report(run(session, 0, workload.path(), words).checked(workload.program))


def ratios(document: Document, over: str = NATIVE, of: str = BURSTS) -> dict[str, list[float]]:
    """Time of one system over that of another, by program."""
    found: dict[str, list[float]] = {}
    for record in records(document, KIND):
        found.setdefault(record["program"], []).append(record[over] / record[of])
    return found


def mean(found: Ratios) -> float:
    """The geometric mean of the programs; NaN without any."""
    return geometric_mean([fmean(each) for each in found.values()])


def slowest(found: Ratios) -> tuple[str, float]:
    """The program whose time is the greatest, with that. There is one at least."""
    return max(((program, fmean(each)) for program, each in found.items()), key=lambda pair: pair[1])


def figures(document: Document) -> dict[str, float]:
    """By bursts: the slowest program and the mean of all over native; their mean over slices."""
    if not (found := ratios(document)):
        return {}
    return {
        "alone/slowest over native": slowest(found)[1],
        "alone/mean over native": mean(found),
        "alone/mean over slices": mean(ratios(document, SLICES)),
    }


def sheet(document: Document) -> Sheet | None:
    """Each program."""
    sides = [ratios(document, NATIVE, SLICES), ratios(document), ratios(document, SLICES)]
    rows = [(program, *(estimate(side[program]).text() for side in sides)) for program in sides[0]]
    if not rows:
        return None
    rows.append(("geometric mean", *(f"{mean(side):.3f}" for side in sides)))
    columns = ("program", "slices over native", "bursts over native", "bursts over slices")
    notes = ("Times; below 1 the first one is faster. Gemini's Figure 18: below 1.03, six models.",)
    return Sheet("Programs alone", columns, tuple(rows), notes)
