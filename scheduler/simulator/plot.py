"""Reports as a picture: what each vGPU got beside what is fair, and how long it waited. matplotlib is loaded only when asked for."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.simulator.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PlotError(Exception):
    """No picture can be drawn; the message says what to do."""


def save(figure: "Figure", path: Path) -> None:
    """Raises PlotError."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:
        raise PlotError(f"cannot draw {path}: {error}") from None


def require_matplotlib() -> None:
    """PlotError when it is not installed. Asked before a long simulation, not after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotError(
            "--plot needs matplotlib, which is not installed: pip install matplotlib, or FairGV's extra 'plot'"
        )


def _finding(reports: Sequence[Report]) -> str:
    """Who shares best."""
    best = max(reports, key=lambda report: report.min_max_ratio)
    if len(reports) == 1:
        return f"Under {best.policy} the min-max ratio of shares is {best.min_max_ratio:.3f}; 1 is fair"
    return f"Of {len(reports)} policies {best.policy} comes nearest to what is due: min-max ratio {best.min_max_ratio:.3f}; 1 is fair"


def plot(reports: Sequence[Report], path: Path) -> None:
    """Writes a picture in the format that the name ends with. PlotError when there is no such format, or it cannot be written."""
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    shares, waits = figure.subplots(1, 2)
    for report in reports:
        numbers = [vgpu.vgpu for vgpu in report.vgpus]
        label = f"{report.policy} ({report.min_max_ratio:.3f})"
        shares.plot(numbers, [vgpu.share for vgpu in report.vgpus], "o", label=label)
        waits.plot(numbers, [vgpu.wait_p99_ns / 1e6 for vgpu in report.vgpus], "o", label=report.policy)
    fair = reports[0].vgpus
    shares.plot([vgpu.vgpu for vgpu in fair], [vgpu.fair_share for vgpu in fair], "k_", markersize=14, label="due")
    shares.set(
        xlabel="vGPU", ylabel="part of its GPU", title="What each got, by policy (min-max ratio)", ylim=(0, None)
    )
    waits.set(xlabel="vGPU", ylabel="ms (\N{LEFTWARDS ARROW} less is better)", ylim=(0, None))
    waits.set_title("99 of 100 waits for the GPU are no longer")
    figure.suptitle(_finding(reports), x=0.01, ha="left", fontweight="bold")
    for axes in (shares, waits):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    save(figure, path)
