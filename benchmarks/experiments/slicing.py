"""What slicing costs (Table 4 of the paper), and what it gives.

Cost: the time of a large product of matrices in so many parts over its time whole, for two sizes, by events on the program's stream. Beside it
stands the persistent variant, which nobody stops.

Gain: how long a vGPU that wakes waits for a small kernel while another one runs a long one, whole, in parts of the default length, and
persistently, beside the same alone.

Wrong when something else runs on the device, and where guest, worker and the device's threads have no core each: softgpu's figures show that
the programs run, and nothing more.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend_host.cli import start_in_background, wait_for_end
from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from benchmarks.build import build
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter
from benchmarks.grid import Grid
from benchmarks.paper import Finding

PARTS = (64, 128, 256, 512, 1024, 4096)
"""As in the paper's table."""
PERCENTS = (50, 90, 99)
LEAST_BLOCKS = 1500
"""Of a part that the paper calls large enough."""
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
        raise ProgramFailedError(f"{' '.join(command)}: {result.stderr.strip()}")
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def _seconds(program: Path, device: str, blocks: int, nr_rounds: int, **settings: object) -> float:
    """Median of a product's rounds."""
    with _daemon(device, settings) as guest:
        told = _json_of([*guest, "one", "--", str(program), "multiply", str(blocks), str(nr_rounds)])
    return float(statistics.median(told["seconds"]))


def _costs(program: Path, device: str, sizes: Sizes, blocks: int) -> Iterator[Record]:
    """One size: whole, in each number of parts, persistently. Parts are 0 for the last."""
    whole_s = _seconds(program, device, blocks, sizes.nr_rounds, slicing="off")
    kind: Record = {"kind": "cost", "blocks": blocks}
    yield {**kind, "parts": 1, "least_blocks": blocks * blocks, "seconds": whole_s, "slowdown": 0.0}
    for parts in sizes.parts:
        least = -(-blocks * blocks // parts)
        settings = {"slicing_threshold_blocks": 1, "slicing_least_blocks": least, "slicing_part_us": 0}
        seconds = _seconds(program, device, blocks, sizes.nr_rounds, slicing="boxes", **settings)
        yield {**kind, "parts": parts, "least_blocks": least, "seconds": seconds, "slowdown": seconds / whole_s - 1}
    seconds = _seconds(program, device, blocks, sizes.nr_rounds, slicing="persistent", slicing_threshold_blocks=1)
    yield {**kind, "parts": 0, "least_blocks": blocks * blocks, "seconds": seconds, "slowdown": seconds / whole_s - 1}


def _alone(program: Path, device: str, sizes: Sizes) -> Record:
    with _daemon(device, WAYS["whole"]) as guest:
        told = _json_of([*guest, "wakes", "--", str(program), "wake", str(sizes.nr_wakes), str(sizes.sleep_us)])
    return {"kind": "wait", "way": "alone", "us": told["us"], "others_s": 0.0}


def _wait(program: Path, device: str, sizes: Sizes, way: str) -> Record:
    """Beside a long kernel of another vGPU."""
    settings = {"slicing_least_blocks": sizes.least_blocks, **WAYS[way]}
    with _daemon(device, settings) as guest:
        long = [*guest, "long", "--", str(program), "spin", *map(str, sizes.spin)]
        child = subprocess.Popen(long, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT)
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "ready\n":
                raise ProgramFailedError("the long kernel did not start")
            wake = [*guest, "wakes", "--", str(program), "wake", str(sizes.nr_wakes), str(sizes.sleep_us)]
            told = _json_of(wake)
            output, _ = child.communicate(timeout=_START_S)
        finally:
            child.kill()
            child.wait()
    return {"kind": "wait", "way": way, "us": told["us"], "others_s": float(json.loads(output)["first_s"])}


class Slicing(Experiment):
    """`fairgv-bench slicing`."""

    name = "slicing"
    summary = "slowdown by kernel slicing (Table 4), and waits beside a long kernel"
    repetitions = 1

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """One of the two measurements."""
        parser.add_argument("--only", choices=("costs", "waits"), help="one of the two measurements")

    def nr_records(self, options: argparse.Namespace) -> int:
        """Costs, then waits."""
        sizes = SIZES[options.device]
        nr_costs = len(sizes.blocks) * (len(sizes.parts) + 2) if options.only != "waits" else 0
        return int(options.repetitions) * (nr_costs + (len(WAYS) + 1 if options.only != "costs" else 0))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each size, then each way."""
        sizes, program = SIZES[options.device], build("large")
        for _ in range(options.repetitions):
            for blocks in sizes.blocks if options.only != "waits" else ():
                reporter.doing(f"{blocks} x {blocks} blocks in parts")
                with reporter.tolerating(f"{blocks} x {blocks} blocks"):
                    yield from _costs(program, options.device, sizes, blocks)
            for way in ("alone", *WAYS) if options.only != "costs" else ():
                reporter.doing(f"a small kernel: {way}")
                with reporter.tolerating(f"a small kernel: {way}"):
                    yield (
                        _alone(program, options.device, sizes)
                        if way == "alone"
                        else _wait(program, options.device, sizes, way)
                    )

    def grids(self, document: Document) -> list[Grid]:
        """Costs and waits."""
        costs = tuple(
            (
                f"{record['blocks']} x {record['blocks']}",
                str(record["parts"] or "persistent"),
                str(record["least_blocks"]),
                f"{record['seconds']:.4g}",
                f"{100 * record['slowdown']:.1f}",
            )
            for record in records(document, "cost")
        )
        waits = tuple(
            (record["way"], f"{record['others_s']:.3g}", *(f"{np.percentile(record['us'], p):.0f}" for p in PERCENTS))
            for record in records(document, "wait")
        )
        found = [
            Grid("A product of matrices in parts", ("blocks", "parts", "blocks of a part", "s", "slowdown %"), costs),
            Grid(
                "A small kernel while another vGPU runs a long one",
                ("the long one", "of s", "us, median", *(f"{percent} %" for percent in PERCENTS[1:])),
                waits,
            ),
        ]
        return [grid for grid in found if grid.rows]

    def findings(self, document: Document) -> list[Finding]:
        """The greatest slowdown by parts that are not too small."""
        seen = [
            r["slowdown"] for r in records(document, "cost") if r["parts"] > 1 and r["least_blocks"] >= LEAST_BLOCKS
        ]
        return [Finding("slicing", "parts of at least 1,500 blocks", 100 * max(seen))] if seen else []

    def plot(self, document: Document, figure: Any) -> None:
        """Slowdown over the number of parts, a line for each size."""
        costs = [record for record in records(document, "cost") if record["parts"] > 1]
        if not costs:
            raise NotMeasurableError("no cost was measured")
        axes = figure.subplots()
        for blocks in dict.fromkeys(record["blocks"] for record in costs):
            mine = [record for record in costs if record["blocks"] == blocks]
            slowdowns = [100 * record["slowdown"] for record in mine]
            axes.plot([record["parts"] for record in mine], slowdowns, marker="o", label=f"{blocks} x {blocks} blocks")
        axes.set(xscale="log", xlabel="parts", ylabel="slowdown, %")
        axes.grid(alpha=0.3)
        axes.legend()
