"""What a guest runs: a benchmark program and its arguments. Sizes are chosen so that a round takes milliseconds on the device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT
from benchmarks.build import NAMES, build, build_without_ptx
from benchmarks.errors import NotMeasurableError, ProgramFailedError

GPU_SIZES: Mapping[str, int] = {
    "BFS": 1 << 22,
    "BlackScholes": 16_000_000,
    "FFT": 1 << 16,
    "Kmeans": 4_000_000,
    "alexnet": 512,
    "cfd": 200_000,
    "convolutionSeparable": 6144,
    "heartwall": 51,
    "histogram": 128_000_000,
    "hotspot": 2048,
    "langevin": 512,
    "lavaMD": 10,
    "lennardJones": 16,
    "matrixMul": 896,
    "mnist_mlp": 8192,
    "nw": 4096,
    "pathfinder": 200_000,
    "scan": 1 << 23,
    "srad_v1": 2048,
    "streamcluster": 32_768,
}
"""On a GPU, so that kernels last about as long as in the paper's Table 3 where the program allows it. Eight are not in Table 3: kernels of
langevin and streamcluster are to last 10 to 20 us, those of lennardJones 0.2 ms, the longest of BFS, FFT, Kmeans and alexnet 0.1 to 1 ms, those
of mnist_mlp some us, as its batches are small. For the last six that is reckoned and not measured. softgpu takes each program's default."""

SPIN = "spin"
SPIN_UNIT = "kernel s/s"
ENDLESS = "endless"
SCRIPTS = PACKAGE_ROOT / "benchmarks/frameworks"


@dataclass(frozen=True)
class Workload:
    """One program of benchmarks/programs with its arguments. `label` is what tables call it. With a compute capability its image has machine
    code for that alone, and no PTX."""

    program: str
    label: str
    arguments: tuple[str, ...] = ()
    capability: int | None = None

    def path(self) -> Path:
        """Built, and up to date."""
        return build(self.program) if self.capability is None else build_without_ptx(self.program, self.capability)


@dataclass(frozen=True)
class Script(Workload):
    """One of benchmarks/frameworks in place of one of benchmarks/programs. It is run by the first python3 of PATH."""

    def path(self) -> Path:
        """As it is."""
        return SCRIPTS / f"{self.program}.py"


def sized(program: str, device: str) -> Workload:
    """One of `NAMES`, as large as the device wants it. NotMeasurableError for a name that is none of them."""
    if program not in NAMES:
        raise NotMeasurableError(f"there is no program {program}; there are {', '.join(NAMES)} and {SPIN}")
    size = ("--size", str(GPU_SIZES[program])) if device == "cuda" else ()
    return Workload(program, program, ("--json", "--no-check", *size))


def spin(
    kernel_us: float, queue: int, sleep_us: float = 0.0, *, is_work: bool = False, seed: int | None = None
) -> Workload:
    """Kernels of that length, so many in a row before a synchronisation, then a sleep. They last by the device's clock, or do as much as it
    does in that time. With a seed sleeps are random, and that long in the mean."""
    work = ("--work",) if is_work else ()
    chance = () if seed is None else ("--random", str(seed))
    words = (*work, *chance, "--kernel-us", f"{kernel_us:g}", "--queue", str(queue), "--sleep-us", f"{sleep_us:g}")
    label = f"kernels of {kernel_us:g} us, {queue} in a row" + (f", {sleep_us:g} us of sleep" if sleep_us else "")
    return Workload(SPIN, label, words)


def endless(kernel_s: float, nr_rounds: int, capability: int | None = None) -> Workload:
    """Long kernels of about so much work, one after the other, in blocks of so many rounds."""
    words = ("--kernel-seconds", f"{kernel_s:g}", "--rounds", str(nr_rounds))
    return Workload(ENDLESS, f"kernels of {kernel_s:g} s", words, capability)


def parse_report(output: str) -> dict[str, Any]:
    """The JSON object that a program printed in its last line. ProgramFailedError when there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                report: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            return report
    raise ProgramFailedError(f"a benchmark program printed no report, but: {output.strip()[-200:] or 'nothing'}")


def throughput(report: Mapping[str, Any]) -> float:
    """What a program did in a second, in its own unit; for `spin` seconds of kernels."""
    if "kernels" in report:
        return float(report["kernels"] * report["kernel_us"] / 1e6 / report["seconds"])
    return float(report["throughput"])


def unit_of(report: Mapping[str, Any]) -> str:
    """Of `throughput`."""
    return str(report.get("unit", SPIN_UNIT))
