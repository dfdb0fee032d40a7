"""How fast softgpu is beside plain C loops: `python -m benchmarks.softgpu_speed [--programs NAME ...] [--seconds S] [--json FILE]`.

Runs each benchmark program on softgpu and as the C loops of the same kernels, on the same number of cores, alternately and
several times; the ratio of the medians is softgpu's time over the loops' time. Beside it stands what the first launch costs
more with an empty cache of compiled kernels than with a warm one. Wrong when something else uses the cores, so the load at
the start is part of the report. The loops have the better of two ways to wait for each other: threads that spin are quicker
on idle cores, threads that sleep many times quicker on busy ones.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from backend_host.config import PACKAGE_ROOT
from benchmarks.build import NAMES, build
from benchmarks.command import command_line

AIM_RATIO = 2.0
AIM_COMPILE_S = 0.5
BUSY_LOAD = 0.5
WAIT_POLICIES = ("active", "passive")
"""Of OpenMP."""


class ProgramFailedError(Exception):
    """A benchmark program ended with an error, a wrong result among them."""


@dataclass(frozen=True)
class Row:
    """One program: medians over the repetitions, throughputs in `unit`, first rounds in fresh processes."""

    name: str
    unit: str
    size: int
    softgpu: float
    loops: float
    cold_s: float
    warm_s: float

    @property
    def ratio(self) -> float:
        """softgpu's time over that of the loops."""
        return self.loops / self.softgpu

    @property
    def compile_s(self) -> float:
        """What an empty cache adds to the first round."""
        return self.cold_s - self.warm_s


@dataclass
class Samples:
    """The repetitions of one program."""

    softgpu: list[float] = field(default_factory=list)
    loops: dict[str, list[float]] = field(default_factory=lambda: {policy: [] for policy in WAIT_POLICIES})
    cold_s: list[float] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)

    def row(self, name: str, unit: str, size: int) -> Row:
        """The medians; of the loops the better one."""
        median = statistics.median
        loops = max(median(throughputs) for throughputs in self.loops.values())
        return Row(name, unit, size, median(self.softgpu), loops, median(self.cold_s), median(self.warm_s))


@dataclass(frozen=True)
class Bench:
    """Where and how programs run. `folder` takes the device's state and the caches, and is the programs' current folder."""

    folder: Path
    library: Path
    nr_threads: int

    def run(self, program: Path, *arguments: str, cache: str = "cache", wait: str = "passive") -> dict[str, Any]:
        """One run in a process of its own: the program's report. ProgramFailedError when it gave none."""
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library),
            "FAIRGV_SOFTGPU_STATE": str(self.folder / "state"),
            "FAIRGV_SOFTGPU_CACHE": str(self.folder / cache),
            "FAIRGV_SOFTGPU_THREADS": str(self.nr_threads),
            "OMP_NUM_THREADS": str(self.nr_threads),
            "OMP_WAIT_POLICY": wait,
        }
        command = [str(program), "--json", *arguments]
        result = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ProgramFailedError(result.stderr.strip() or f"{program.name}: exit status {result.returncode}")
        report: dict[str, Any] = json.loads(result.stdout)
        return report

    def first_rounds(self, program: Path, repetition: int) -> tuple[float, float]:
        """Seconds with a cache folder that is empty, and with the same one filled; the results are checked."""
        cache = f"{program.name}-{repetition}"
        (self.folder / cache).mkdir(mode=0o700)
        cold = self.run(program, "--rounds", "1", cache=cache)
        warm = self.run(program, "--rounds", "1", "--no-check", cache=cache)
        return cold["first_round_s"], warm["first_round_s"]


def measure(bench: Bench, name: str, seconds: float, nr_repetitions: int) -> Row:
    """Both sides of one program in turn."""
    program = build(name)
    timed = ("--seconds", str(seconds), "--no-check")
    samples = Samples()
    report: dict[str, Any] = {}
    for repetition in range(nr_repetitions):
        cold_s, warm_s = bench.first_rounds(program, repetition)
        samples.cold_s.append(cold_s)
        samples.warm_s.append(warm_s)
        report = bench.run(program, *timed, cache=f"{name}-{repetition}")
        samples.softgpu.append(report["throughput"])
        for policy, throughputs in samples.loops.items():
            throughputs.append(bench.run(program, *timed, "--loops", wait=policy)["throughput"])
    return samples.row(name, report["unit"], report["size"])


def geometric_mean(rows: Sequence[Row]) -> float:
    """Of the ratios; NaN without rows."""
    return math.exp(statistics.fmean(math.log(row.ratio) for row in rows)) if rows else math.nan


def as_table(rows: Sequence[Row]) -> Table:
    """For people; the geometric mean is the last row."""
    table = Table(title=f"softgpu beside C loops; aims: ratio {AIM_RATIO:g}, compile {AIM_COMPILE_S} s")
    table.add_column("program")
    for heading in ("softgpu", "loops"):
        table.add_column(heading, justify="right")
    table.add_column("unit")
    for heading in ("ratio", "compile s", "warm s"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (f"{row.softgpu:.3g}", f"{row.loops:.3g}", row.unit, f"{row.ratio:.2f}")
        table.add_row(row.name, *figures, f"{row.compile_s:.2f}", f"{row.warm_s:.2f}")
    table.add_section()
    table.add_row("geometric mean", "", "", "", f"{geometric_mean(rows):.2f}", "", "")
    return table


def write_json(path: Path, options: argparse.Namespace, load: float, rows: Sequence[Row]) -> None:
    """Everything the table shows and what it was measured with."""
    document = {
        "device_name": "softgpu",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        "load_at_start": round(load, 2),
        "command": command_line("benchmarks.softgpu_speed", options.json),
        "nr_threads": options.threads,
        "nr_repetitions": options.repetitions,
        "seconds": options.seconds,
        "aim": {"ratio": AIM_RATIO, "compile_s": AIM_COMPILE_S},
        "results": {row.name: {**asdict(row), "ratio": row.ratio, "compile_s": row.compile_s} for row in rows},
        "geometric_mean": geometric_mean(rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def parse() -> argparse.Namespace:
    """The command line."""
    nr_cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="softgpu_speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each timed part (1)")
    parser.add_argument("--repetitions", type=int, default=3, help="of both sides (3)")
    parser.add_argument("--threads", type=int, default=nr_cores, help=f"of both sides (all cores: {nr_cores})")
    parser.add_argument(
        "--library", type=Path, default=PACKAGE_ROOT / "build/softgpu", metavar="FOLDER", help="of softgpu"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def measure_all(options: argparse.Namespace, console: Console) -> tuple[list[Row], int]:
    """The rows, and how many programs failed; a failure is told at once and the others go on."""
    rows, nr_failed = [], 0
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as folder, Progress(console=console) as progress:
        bench = Bench(Path(folder), options.library.resolve(), options.threads)
        (bench.folder / "cache").mkdir(mode=0o700)
        for name in progress.track(options.programs, description="softgpu and loops in turn"):
            try:
                rows.append(measure(bench, name, options.seconds, options.repetitions))
            except ProgramFailedError as error:
                console.print(str(error), highlight=False)
                nr_failed += 1
    return rows, nr_failed


def main() -> int:
    """Entry point; exit status 1 when a program failed."""
    options = parse()
    console = Console(stderr=True)
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        console.print(f"something else uses this machine (load {load:.1f}): the ratios will not repeat")
    rows, nr_failed = measure_all(options, console)
    if options.json:
        write_json(options.json, options, load, rows)
    Console().print(as_table(rows))
    return 1 if nr_failed else 0


if __name__ == "__main__":
    sys.exit(main())
