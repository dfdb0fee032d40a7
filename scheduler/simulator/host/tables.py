"""Runs of a host as text: a line for each interval and mode, means over orders, beside those of the first mode."""

from collections.abc import Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from scheduler.simulator.host.command import Run

Groups = dict[tuple[float, str], list[Run]]


def by_mode(runs: Sequence[Run]) -> Groups:
    """Of each interval in s and mode all orders."""
    found: Groups = {}
    for run in runs:
        found.setdefault((run.settings.interval_ns / 1e9, run.settings.balance), []).append(run)
    return found


def mean(runs: Sequence[Run], name: str) -> float:
    """Of one figure, over orders that have it; 0 where none has."""
    values = [value for run in runs if (value := run.report.figures()[name]) is not None]
    return fmean(values) if values else 0.0


def print_runs(runs: Sequence[Run], console: Console) -> None:
    """Wide enough for 80 columns. Where there is one order, its moves as well."""
    groups, first = by_mode(runs), runs[0].settings.balance
    title = f"{runs[0].settings.nr_gpus} GPUs, {len(runs[0].settings.programs)} programs; means of {1 + max(run.order for run in runs)} orders"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in ("one in", "balance"):
        table.add_column(heading, no_wrap=True)
    for heading in ("overloaded", "used", "time", "<= 1.2", "Jain", "equals", "kJ", "moves"):
        table.add_column(heading, no_wrap=True, justify="right")
    for (interval_s, mode), some in groups.items():
        before = mean(groups[interval_s, first], "overloaded")
        overloaded = mean(some, "overloaded")
        less = f" {overloaded / before - 1:+.0%}" if mode != first and before else ""
        equals = mean(some, "equals")
        table.add_row(
            f"{interval_s:g} s",
            mode,
            f"{overloaded:.1%}{less}",
            f"{mean(some, 'utilisation'):.1%}",
            f"{mean(some, 'mean_slowdown'):.3f}",
            f"{mean(some, 'unharmed'):.0%}",
            f"{mean(some, 'jain'):.3f}",
            f"{equals:.3f}" if equals else "-",
            f"{mean(some, 'joules') / 1000:.1f}",
            f"{mean(some, 'nr_moves'):.1f}",
        )
    console.print(table)
    for run in runs if max(run.order for run in runs) == 0 else ():
        for move in run.report.moves:
            console.print(f"{move.at_ns / 1e9:7.1f} s  {move.told}", markup=False, highlight=False, soft_wrap=True)
