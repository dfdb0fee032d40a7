"""Runs of a host as a picture: overloaded time and mean time of a program, order by order. matplotlib is loaded only when asked for."""

from collections.abc import Sequence
from pathlib import Path

from scheduler.simulator.host.command import Run
from scheduler.simulator.host.tables import by_mode, mean
from scheduler.simulator.plot import require_matplotlib, save


def plot_runs(runs: Sequence[Run], path: Path) -> None:
    """Writes a picture in the format that the name ends with. PlotError when there is no such format, or it cannot be written."""
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    groups = by_mode(runs)
    intervals = list(dict.fromkeys(interval_s for interval_s, _ in groups))
    figure = Figure(figsize=(11, 1 + 3 * len(intervals)), layout="constrained")
    rows = figure.subplots(len(intervals), 2, squeeze=False)
    for row, interval_s in zip(rows, intervals, strict=True):
        for (of_s, mode), some in groups.items():
            if of_s == interval_s:
                numbers = [run.order for run in some]
                row[0].plot(numbers, [100 * run.report.overloaded for run in some], "o", label=mode)
                row[1].plot(numbers, [run.report.mean_slowdown for run in some], "o", label=mode)
        row[0].set(
            ylabel="overloaded, % (\N{LEFTWARDS ARROW} less is better)",
            title=f"one program in {interval_s:g} s",
            ylim=(0, None),
        )
        row[1].set(ylabel="mean time over alone (\N{LEFTWARDS ARROW} less)", ylim=(1, None))
        row[0].legend()
    for axes in rows[-1]:
        axes.set_xlabel("order")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(_finding(runs), x=0.01, ha="left", fontweight="bold")
    save(figure, path)


def _finding(runs: Sequence[Run]) -> str:
    told = [
        f"{mode} {mean(some, 'overloaded'):.1%} at one in {interval_s:g} s"
        for (interval_s, mode), some in by_mode(runs).items()
    ]
    return "GPUs are overloaded: " + ", ".join(told[:4])
