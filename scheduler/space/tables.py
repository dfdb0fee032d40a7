"""Replays as text."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from scheduler.space.replay import Replayed
from scheduler.space.summary import Errors, Summary


def print_summaries(summaries: Sequence[Summary], console: Console) -> None:
    """A line for each search."""
    table = _table(
        f"All {summaries[0].nr_replays} replays, in the mean",
        ("search",),
        ("of optimum", "paper", "time", "over", "tried", "(over)", "settled", "ends", "use", "least", "better"),
    )
    for each in summaries:
        table.add_row(
            each.search,
            f"{each.throughput:.3f}",
            "-" if each.paper is None else f"{each.paper:.3f}",
            f"{each.time:.3f}",
            f"{each.rounds_over:.1%}",
            f"{each.tried:.1f}",
            f"{each.tried_over:.1f}",
            f"{each.settled_over:.1%}",
            str(each.nr_over),
            f"{each.utilisation:.2f}",
            f"{each.least_utilisation:.2f}",
            str(each.nr_better),
        )
    console.print(table)


def print_errors(all_errors: Sequence[Errors], console: Console) -> None:
    """A line for each prediction."""
    table = _table("Errors of predictions", ("by",), ("best effort", "paper", "critical", "paper"))
    for each in all_errors:
        values = (each.best_effort, each.paper_best_effort, each.critical, each.paper_critical)
        table.add_row(each.predictor, *(f"{value:.1%}" for value in values))
    console.print(table)


def print_replays(replays: Sequence[Replayed], console: Console) -> None:
    """A line for each pair, target and search."""
    table = _table(
        "Pair by pair",
        ("pair", "target", "search"),
        ("split", "optimum", "of optimum", "time", "over", "tried", "use"),
    )
    for each in replays:
        table.add_row(
            each.pair,
            f"{each.target:g}",
            each.search,
            str(each.split),
            str(each.optimum),
            f"{each.throughput:.3f}",
            f"{each.time:.3f}",
            f"{each.nr_over / each.nr_rounds:.1%}",
            str(each.nr_tried),
            f"{each.utilisation:.2f}",
        )
    console.print(table)


def _table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in names:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, no_wrap=True, justify="right")
    return table
