"""What the device itself says about sharing: `python -m benchmarks.timeline [--device cuda] [--kernel-us US,...] [--plot FILE]`.

Two vGPUs of equal weight run kernels that write down when they began and ended, by the device's own clock, and the two logs are laid over each
other. That shows

- accounting: what each vGPU was charged beside the time that its kernels occupied the device, the moments between two kernels of one queue
  included, as a pair of events around them would;
- the hand-over: the gap between the last kernel of one vGPU and the first of the next. The device's own switch between two contexts is in it.

Wrong when the device's clock is coarse: its step is printed beside the result.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from backend_host.config import DEVICE_KINDS
from benchmarks.command import command_line
from benchmarks.fairness import Mixture, Result, head_of_document, log_path, measure

Spans = NDArray[np.uint64]
"""Shape (kernels, 2): begin and end of each, ns of the device's clock, in order."""

PERCENTS = (50, 90, 99)
SAME_QUEUE_NS = 20_000
"""Between two kernels of one vGPU, with none of another between them, no more than this belongs to the queue; more is a pause."""


@dataclass(frozen=True)
class Timeline:
    """One kernel length, and for each vGPU how long its kernels occupied the device and what it was charged; `gaps_us` of all hand-overs, and
    the `step_ns` of the device's clock."""

    kernel_us: float
    device_s: tuple[float, ...]
    charged_s: tuple[float, ...]
    gaps_us: tuple[float, ...]
    step_ns: int

    @property
    def errors(self) -> tuple[float, ...]:
        """Charged time over device time, less 1, of each vGPU."""
        return tuple(charged / device - 1 for charged, device in zip(self.charged_s, self.device_s, strict=True))

    def gap_us(self, percent: float) -> float:
        """A percentile of the gaps; NaN when the GPU never changed hands."""
        return float(np.percentile(self.gaps_us, percent)) if self.gaps_us else float("nan")


def merged(logs: Sequence[Spans]) -> tuple[Spans, NDArray[np.intp]]:
    """All kernels by their begin, and whose each is."""
    owners = np.concatenate([np.full(len(log), index, dtype=np.intp) for index, log in enumerate(logs)])
    spans = np.concatenate(logs)
    order = np.argsort(spans[:, 0], kind="stable")
    return spans[order], owners[order]


def device_seconds(logs: Sequence[Spans], *, are_queued: bool) -> tuple[float, ...]:
    """How long the device was occupied by each vGPU. `are_queued`: the next kernel is there when one ends, so the moments between count."""
    spans, owners = merged(logs)
    busy_ns = (spans[:, 1] - spans[:, 0]).astype(np.float64)
    between_ns = spans[1:, 0].astype(np.float64) - spans[:-1, 1].astype(np.float64)
    is_queue = are_queued & (owners[1:] == owners[:-1]) & (between_ns > 0) & (between_ns <= SAME_QUEUE_NS)
    busy_ns[1:] += np.where(is_queue, between_ns, 0)
    return tuple(float(busy_ns[owners == index].sum()) / 1e9 for index in range(len(logs)))


def gaps_us(logs: Sequence[Spans]) -> tuple[float, ...]:
    """Between the last kernel of one vGPU and the first of the next, for each hand-over."""
    spans, owners = merged(logs)
    between_ns = spans[1:, 0].astype(np.float64) - spans[:-1, 1].astype(np.float64)
    return tuple(float(gap) / 1e3 for gap in between_ns[owners[1:] != owners[:-1]])


def clock_step_ns(logs: Sequence[Spans]) -> int:
    """The least difference between two readings of the device's clock."""
    times = np.unique(np.concatenate([log.ravel() for log in logs]))
    return int(np.diff(times).min()) if len(times) > 1 else 0


def measure_timeline(kernel_us: float, queue: int, device: str, slice_ms: float | None, window_s: float) -> Timeline:
    """One run of two vGPUs."""
    mixture = Mixture((1, 1), (kernel_us,), (queue,))
    with tempfile.TemporaryDirectory(prefix="fairgv-timeline-") as directory:
        result: Result = measure("fair", mixture, device, slice_ms, window_s, (1.0, 1.0), Path(directory))
        logs = [np.fromfile(log_path(Path(directory), index), dtype=np.uint64).reshape(-1, 2) for index in range(2)]
    if any(len(log) == 0 for log in logs):
        sys.exit(f"no kernel of {kernel_us:g} us ended in a window of {window_s:g} s")
    charged_s = tuple(share.charged_s for share in result.shares)
    return Timeline(
        kernel_us, device_seconds(logs, are_queued=queue > 1), charged_s, gaps_us(logs), clock_step_ns(logs)
    )


def table(timelines: Sequence[Timeline]) -> Table:
    """One row for each kernel length."""
    found = Table("kernel us", "error of charges", "hand-overs", "gap us: median", "90 %", "99 %", "clock ns")
    for timeline in timelines:
        errors = " ".join(f"{100 * error:+.1f} %" for error in timeline.errors)
        gaps = (f"{timeline.gap_us(percent):.0f}" for percent in PERCENTS)
        found.add_row(f"{timeline.kernel_us:g}", errors, str(len(timeline.gaps_us)), *gaps, str(timeline.step_ns))
    return found


def plot(timelines: Sequence[Timeline], path: Path) -> None:
    """How the gaps are distributed, one line for each kernel length."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for timeline in timelines:
        gaps = np.sort(timeline.gaps_us)
        axes.step(gaps, np.arange(1, len(gaps) + 1) / len(gaps), where="post", label=f"{timeline.kernel_us:g} us")
    axes.set(xscale="log", xlabel="gap between two vGPUs' kernels, us", ylabel="part of hand-overs", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(title="kernels of")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def document(options: argparse.Namespace, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Everything that was measured, with how."""
    rows = [
        asdict(timeline)
        | {"errors": timeline.errors, "gap_percentiles_us": {percent: timeline.gap_us(percent) for percent in PERCENTS}}
        for timeline in timelines
    ]
    return head_of_document(options) | {"queue": options.queue, "timelines": rows}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="timeline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel-us", default="20,50,200,1000,10000", metavar="US,...", help="(default %(default)s)")
    parser.add_argument("--queue", type=int, default=256, metavar="N", help="launches in a row (default 256)")
    parser.add_argument("--slice-ms", type=float, metavar="MS", help="(default: the device's)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window (default 4)")
    parser.add_argument("--device", choices=DEVICE_KINDS, default="soft")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a PNG of how the gaps are distributed")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    options.command = command_line("benchmarks.timeline", options.json, options.plot)
    timelines = []
    for kernel_us in map(float, options.kernel_us.split(",")):
        Console(stderr=True).print(f"kernels of {kernel_us:g} us: {options.seconds:.0f} s")
        timelines.append(measure_timeline(kernel_us, options.queue, options.device, options.slice_ms, options.seconds))
    Console().print(table(timelines))
    if options.plot:
        plot(timelines, options.plot)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document(options, timelines), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
