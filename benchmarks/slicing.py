"""What slicing costs and what it gives: `python -m benchmarks.slicing [--device soft|cuda] [--json FILE]`.

Cost, the shape of the FairGV paper's Table 4: the time of a large product of matrices in so many parts over its time whole, for two sizes,
by events on the program's stream. Beside it stands the persistent variant, which nobody stops.

Gain: how long a vGPU that wakes waits for a small kernel while another one runs a long one, whole, in parts of the default length, and
persistently, beside the same alone. Medians and percentiles; the whole of what was measured is in the JSON.

Wrong when something else runs on the device, and where guest, worker and the device's threads have no core each: softgpu's figures show that
the programs run, and nothing more.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from backend_host.cli import start_in_background, wait_for_end
from backend_host.config import DEVICE_KINDS, PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from benchmarks.build import build
from benchmarks.command import command_line
from benchmarks.fairness import head_of_document

PARTS = (64, 128, 256, 512, 1024, 4096)
"""As in the paper's table."""
PERCENTS = (50, 90, 99)
WAYS: dict[str, dict[str, object]] = {
    "whole": {"slicing": "off"},
    "in parts": {"slicing": "boxes", "slicing_threshold_blocks": 1000},
    "persistent": {"slicing": "persistent", "slicing_threshold_blocks": 1000},
}
_START_S = 300.0


@dataclass(frozen=True)
class Sizes:
    """What is measured on a kind of device. `spin` is a long launch: blocks, and us of each thread; a part of it has `least_blocks` at least;
    `nr_wakes` sleeps of `sleep_us` beside it."""

    blocks: tuple[int, ...]
    parts: tuple[int, ...]
    nr_rounds: int
    spin: tuple[int, int]
    least_blocks: int
    nr_wakes: int
    sleep_us: int


SIZES = {
    "cuda": Sizes((600, 900), PARTS, 5, (40_000_000, 50), 1500, 300, 20_000),
    "soft": Sizes((16, 24), (4, 16, 64), 2, (2_000, 20), 2, 10, 20_000),
}


@dataclass(frozen=True)
class Cost:
    """One size in so many parts: median seconds, `slowdown` over the same whole less 1. `least_blocks` is what a part was told to have; parts
    are 0 for the persistent variant."""

    blocks: int
    parts: int
    least_blocks: int
    seconds: float
    slowdown: float


@dataclass(frozen=True)
class Wait:
    """What each small launch took, in us, alone or beside a long one of another vGPU in a way of `WAYS`; that one takes `others_s`."""

    way: str
    us: tuple[float, ...]
    others_s: float

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.us, percent))


@contextmanager
def _daemon(device: str, settings: dict[str, object]) -> Iterator[list[str]]:
    """A command prefix that runs a program as a guest of a daemon of its own."""
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as directory:
        state_dir = Path(directory)
        state_dir.chmod(0o711)  # workers of another user pass through
        start_in_background(load_config(None, state_dir=state_dir, device=device, **settings))
        try:
            yield [sys.executable, "-m", "backend_host.run", "--state-dir", directory, "--vgpu"]
        finally:
            with Connection(state_dir / "control.sock") as connection:
                pid = int(connection.ask("stop")["pid"])
            wait_for_end(pid)


def _json_of(command: Sequence[str]) -> dict[str, Any]:
    result = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE_ROOT, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {result.stderr.strip()}")
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def _seconds(program: Path, device: str, blocks: int, nr_rounds: int, **settings: object) -> float:
    """Median of a product's rounds."""
    with _daemon(device, settings) as guest:
        told = _json_of([*guest, "one", "--", str(program), "multiply", str(blocks), str(nr_rounds)])
    return float(statistics.median(told["seconds"]))


def measure_costs(device: str, sizes: Sizes) -> list[Cost]:
    """Slowdown over the number of parts, for each size."""
    program = build("large")
    costs = []
    for blocks in sizes.blocks:
        whole_s = _seconds(program, device, blocks, sizes.nr_rounds, slicing="off")
        costs.append(Cost(blocks, 1, blocks * blocks, whole_s, 0.0))
        for parts in sizes.parts:
            least = -(-blocks * blocks // parts)
            settings = {"slicing_threshold_blocks": 1, "slicing_least_blocks": least, "slicing_part_us": 0}
            seconds = _seconds(program, device, blocks, sizes.nr_rounds, slicing="boxes", **settings)
            costs.append(Cost(blocks, parts, least, seconds, seconds / whole_s - 1))
        seconds = _seconds(program, device, blocks, sizes.nr_rounds, slicing="persistent", slicing_threshold_blocks=1)
        costs.append(Cost(blocks, 0, blocks * blocks, seconds, seconds / whole_s - 1))
    return costs


def _wait(program: Path, device: str, sizes: Sizes, way: str) -> Wait:
    settings = {"slicing_least_blocks": sizes.least_blocks, **WAYS[way]}
    with _daemon(device, settings) as guest:
        long = [*guest, "long", "--", str(program), "spin", *map(str, sizes.spin)]
        child = subprocess.Popen(long, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT)
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "ready\n":
                sys.exit("the long kernel did not start")
            wake = [*guest, "wakes", "--", str(program), "wake", str(sizes.nr_wakes), str(sizes.sleep_us)]
            told = _json_of(wake)
            output, _ = child.communicate(timeout=_START_S)
        finally:
            child.kill()
            child.wait()
    return Wait(way, tuple(told["us"]), float(json.loads(output)["first_s"]))


def measure_waits(device: str, sizes: Sizes) -> list[Wait]:
    """A small kernel's time alone, and beside a long one of another vGPU in each of the ways."""
    program = build("large")
    with _daemon(device, WAYS["whole"]) as guest:
        alone = _json_of([*guest, "wakes", "--", str(program), "wake", str(sizes.nr_wakes), str(sizes.sleep_us)])
    return [Wait("alone", tuple(alone["us"]), 0.0), *(_wait(program, device, sizes, way) for way in WAYS)]


def tables(costs: Sequence[Cost], waits: Sequence[Wait]) -> Iterator[Table]:
    """For people."""
    cost = Table("blocks", "parts", "blocks of a part", "s", "slowdown", title="a product of matrices in parts")
    for row in costs:
        parts = str(row.parts) if row.parts else "persistent"
        size = f"{row.blocks} x {row.blocks}"
        cost.add_row(size, parts, str(row.least_blocks), f"{row.seconds:.4g}", f"{100 * row.slowdown:.1f} %")
    yield cost
    wait = Table(
        "the other's kernel", "of s", *(f"{percent} %" for percent in PERCENTS), title="us that a small kernel takes"
    )
    for row_ in waits:
        wait.add_row(row_.way, f"{row_.others_s:.3g}", *(f"{row_.percentile(percent):.0f}" for percent in PERCENTS))
    yield wait


def document(options: argparse.Namespace, costs: Sequence[Cost], waits: Sequence[Wait]) -> dict[str, Any]:
    """Everything that was measured, with how."""
    percentiles = {wait.way: {str(percent): wait.percentile(percent) for percent in PERCENTS} for wait in waits}
    return head_of_document(options) | {
        "sizes": asdict(SIZES[options.device]),
        "costs": [asdict(cost) for cost in costs],
        "waits": [asdict(wait) for wait in waits],
        "percentiles_us": percentiles,
    }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="slicing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=[kind for kind in DEVICE_KINDS if kind in SIZES], default="soft")
    parser.add_argument("--only", choices=("costs", "waits"), help="one of the two measurements")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.load, options.slice_ms = os.getloadavg()[0], None
    options.command = command_line("benchmarks.slicing", options.json)
    sizes = SIZES[options.device]
    costs = measure_costs(options.device, sizes) if options.only != "waits" else []
    waits = measure_waits(options.device, sizes) if options.only != "costs" else []
    for table in tables(costs, waits):
        Console().print(table)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document(options, costs, waits), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
