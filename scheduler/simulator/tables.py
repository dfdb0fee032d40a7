"""Reports as text: a line for each vGPU, or for each kind of vGPU where there are many, and a line that compares policies."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from scheduler.simulator.report import Report, VgpuReport

MAX_LINES = 32
"""More vGPUs than this are shown by weight, workload and bounds."""


def print_reports(reports: Sequence[Report], console: Console) -> None:
    """A table for each policy, then one that compares them."""
    for report in reports:
        console.print(_vgpu_table(report))
        console.print()
        if any(vgpu.nr_answered for vgpu in report.vgpus):
            console.print(_requests_table(report))
            console.print()
    console.print(_policy_table(reports))


def _groups(report: Report) -> Iterator[tuple[str, list[VgpuReport]]]:
    """What makes a line: its name and its vGPUs."""
    if len(report.vgpus) <= MAX_LINES:
        yield from ((str(vgpu.vgpu), [vgpu]) for vgpu in report.vgpus)
        return
    kinds: dict[tuple[int, str, float, float], list[VgpuReport]] = {}
    for vgpu in report.vgpus:
        kinds.setdefault((vgpu.weight, vgpu.workload, vgpu.request, vgpu.limit), []).append(vgpu)
    yield from ((f"{len(members)} x", members) for _, members in sorted(kinds.items()))


def _table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """Narrow enough for 80 columns."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in names:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, no_wrap=True, justify="right")
    return table


def _vgpu_table(report: Report) -> Table:
    bounds = _given_bounds(report)
    is_by_weight = not bounds and not any(vgpu.nr_answered for vgpu in report.vgpus)
    headings = (
        "weight",
        *bounds,
        "GPU ms",
        *(("/weight",) if is_by_weight else ()),
        "share",
        "fair",
        "x",
        "p50",
        "p99",
        "max",
    )
    title = f"{report.policy}: {report.duration_ns / 1e9:g} s, GPUs: {report.nr_gpus}; waits in ms"
    table = _table(title, ("vGPU", "workload"), headings)
    for name, vgpus in _groups(report):
        cells = [_bound(vgpus[0], bound) for bound in bounds]
        table.add_row(name, vgpus[0].workload, str(vgpus[0].weight), *cells, *_cells(vgpus, is_by_weight))
    return table


def _given_bounds(report: Report) -> list[str]:
    """Those of request and limit that any vGPU has. They take the place of /weight, which tells little then, as where programs pause."""
    given = {
        "request": any(vgpu.request > 0 for vgpu in report.vgpus),
        "limit": any(vgpu.limit < 1 for vgpu in report.vgpus),
    }
    return [bound for bound, is_given in given.items() if is_given]


def _bound(vgpu: VgpuReport, bound: str) -> str:
    share, none = (vgpu.request, 0.0) if bound == "request" else (vgpu.limit, 1.0)
    return "-" if share == none else f"{share * 100:.4g} %"


def _requests_table(report: Report) -> Table:
    """Of those that answer requests; the last line is of all. Means: of times and turns of a request, length and overuse of a turn."""
    table = _table(
        "requests answered; times in ms, held and useful in GPUs",
        ("vGPU", "workload"),
        ("answered", "mean", "turns", "turn", "overuse", "held", "useful"),
    )
    groups = [
        (name, answering[0].workload, answering)
        for name, vgpus in _groups(report)
        if (answering := [vgpu for vgpu in vgpus if vgpu.nr_answered])
    ]
    everybody = [vgpu for _, _, answering in groups for vgpu in answering]
    for name, workload, vgpus in (*groups, ("all", "", everybody)):
        nr_answered = sum(vgpu.nr_answered for vgpu in vgpus)
        nr_turns = sum(vgpu.nr_turns for vgpu in vgpus)
        table.add_row(
            name,
            workload,
            str(nr_answered),
            f"{fmean(vgpu.answer_ns for vgpu in vgpus) / 1e6:.1f}",
            f"{nr_turns / nr_answered:.2f}",
            f"{fmean(vgpu.turn_ns for vgpu in vgpus) / 1e6:.1f}",
            f"{sum(vgpu.overuse_ns for vgpu in vgpus) / nr_turns / 1e6:.2f}",
            f"{sum(vgpu.held_ns for vgpu in vgpus) / report.duration_ns:.3f}",
            f"{sum(vgpu.throughput for vgpu in vgpus):.3f}",
        )
    return table


def _cells(vgpus: Sequence[VgpuReport], is_by_weight: bool) -> list[str]:
    """Means; of x the range, of waits the longest."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    fairness = [vgpu.fairness for vgpu in vgpus]
    digits = 3 if len(vgpus) == 1 else 2
    least, most = f"{min(fairness):.{digits}f}", f"{max(fairness):.{digits}f}"
    return [
        f"{mean([vgpu.gpu_ns for vgpu in vgpus]) / 1e6:.1f}",
        *([f"{mean([vgpu.normalised_ns for vgpu in vgpus]) / 1e6:.1f}"] if is_by_weight else []),
        f"{mean([vgpu.share for vgpu in vgpus]):.3f}",
        f"{mean([vgpu.fair_share for vgpu in vgpus]):.3f}",
        least if least == most else f"{least}-{most}",
        *(f"{max(getattr(vgpu, f'wait_{name}_ns') for vgpu in vgpus) / 1e6:.1f}" for name in ("p50", "p99", "max")),
    ]


def _policy_table(reports: Sequence[Report]) -> Table:
    headings = ("min-max ratio", "utilisation", "overhead", "hand-overs")
    table = _table("all vGPUs together", ("policy",), headings)
    for report in reports:
        table.add_row(
            report.policy,
            f"{report.min_max_ratio:.4f}",
            f"{report.utilisation:.3f}",
            f"{report.overhead:.3f}",
            str(report.nr_handovers),
        )
    return table
