"""How fast softgpu is beside plain C loops: each benchmark program on softgpu, and the C loops of the same kernels on the same number of cores.

They run in turn, several times; the ratio of the medians is softgpu's time over the loops' time. Beside it stands what the first launch costs
more with an empty cache of compiled kernels than with a warm one: code that was compiled quickly and its slower first round where softgpu does
so, against optimised code. Everything else is measured once the optimised code is there. The loops have the better of two ways to wait for
each other: threads that spin are quicker on idle cores, threads that sleep many times quicker on busy ones.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.build import NAMES, build
from benchmarks.devices import native_environment
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number
from benchmarks.guests import run
from benchmarks.guests.process import NativeSession
from benchmarks.ratios import geometric_mean
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, due, head
from benchmarks.workloads import parse_report

AIM_RATIO = 2.0
AIM_COMPILE_S = 0.5
MOST_S = 120.0
"""That softgpu's compiler may need in the background."""
WAIT_POLICIES = ("active", "passive")
"""Of OpenMP."""


class Loops(Experiment):
    """`fairgv-bench loops`."""

    name = "loops"
    summary = "softgpu beside plain C loops on the same cores"
    seconds = 1.0
    subjects: ClassVar[Subjects] = {"loops": ("program",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Programs and cores."""
        nr_cores = len(os.sched_getaffinity(0))
        parser.add_argument(
            "--programs", type=names_of(NAMES), default=list(NAMES), metavar="NAME,...", help=f"of {', '.join(NAMES)}"
        )
        parser.add_argument(
            "--threads",
            type=natural_number,
            default=nr_cores,
            metavar="N",
            help=f"of both sides (all cores: {nr_cores})",
        )

    def check(self, options: argparse.Namespace) -> None:
        """It is about softgpu."""
        if options.device != "soft":
            raise NotMeasurableError("loops compares softgpu with C loops: give --device soft")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each program and repetition."""
        return int(options.repetitions * len(options.programs))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each repetition of a program has an empty cache of its own."""
        with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as folder:
            for repetition in range(options.repetitions):
                for name in options.programs:
                    reporter.doing(name)
                    with reporter.tolerating(name):
                        cache = Path(folder) / f"{name}-{repetition}"
                        cache.mkdir(mode=0o700)
                        yield {"kind": "loops", **compared(name, cache, options), "repetition": repetition}

    def sheets(self, document: Document) -> list[Sheet]:
        """Medians over the repetitions; the geometric mean is the last row."""
        rows = []
        found = _medians(document)
        for name, each in found.items():
            sides = (f"{each.softgpu:.3g}", f"{each.loops:.3g}", each.unit)
            rows.append((name, *sides, f"{each.ratio:.2f}", f"{each.compile_s:.2f}"))
        if not rows:
            return []
        mean = geometric_mean([each.ratio for each in found.values()])
        rows.append(("geometric mean", "", "", "", f"{mean:.2f}", ""))
        notes = (
            f"The same kernels as C loops at -O2 on as many cores. Ratio: softgpu's time over that of the loops; aim: {AIM_RATIO:g} in",
            f"the geometric mean. Compile: what an empty cache adds to the first launch; aim: at most {AIM_COMPILE_S} s.",
        )
        columns = ("program", "softgpu", "loops", "unit", "ratio", "compile s")
        return [Sheet("softgpu beside plain C loops", columns, tuple(rows), notes)]

    def figures(self, document: Document) -> dict[str, float]:
        """The mean ratio, and what each program's compilation takes."""
        found = _medians(document)
        if not found:
            return {}
        compiled = {f"{name}/compile s": each.compile_s for name, each in found.items()}
        return {"all/over C loops": geometric_mean([each.ratio for each in found.values()]), **compiled}

    def plot(self, document: Document, figure: Any) -> None:
        """Ratios as bars."""
        found = _medians(document)
        axes = figure.subplots()
        axes.barh(list(found), [each.ratio for each in found.values()])
        due(axes, "as long as the same loops in C", x=1)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set(xlabel=f"softgpu's time over that of the loops {LESS}")
        axes.legend()
        mean = statistics.geometric_mean(each.ratio for each in found.values())
        finding = (
            f"Without a GPU a program takes {mean:.1f} times as long as the same loops in C, in the geometric mean"
        )
        head(figure, finding, document, "Medians of all repetitions.")


@dataclass(frozen=True)
class _Medians:
    """Of one program's repetitions: work of its `unit`, on both sides, and its first round with the cache empty and filled."""

    unit: str
    softgpu: float
    loops: float
    cold_s: float
    warm_s: float

    @property
    def ratio(self) -> float:
        """softgpu's time over the loops'."""
        return self.loops / self.softgpu

    @property
    def compile_s(self) -> float:
        """What an empty cache adds to the first launch."""
        return self.cold_s - self.warm_s


def _medians(document: Document) -> dict[str, _Medians]:
    found = {}
    for name in dict.fromkeys(record["program"] for record in records(document, "loops")):
        mine = [record for record in records(document, "loops") if record["program"] == name]
        keys = ("softgpu", "loops", "cold_s", "warm_s")
        found[name] = _Medians(mine[0]["unit"], *(statistics.median(record[key] for record in mine) for key in keys))
    return found


def compared(name: str, cache: Path, options: argparse.Namespace) -> Record:
    """Both sides of one program, and its first rounds with the cache empty and filled."""
    program = build(name)
    threads = str(options.threads)
    timed = ["--json", "--seconds", f"{options.seconds:g}", "--no-check"]
    once = ["--json", "--rounds", "1"]

    def report(arguments: list[str], wait: str = "passive") -> dict[str, Any]:
        variables = {"FAIRGV_SOFTGPU_CACHE": str(cache), "FAIRGV_SOFTGPU_THREADS": threads, "FAIRGV_SOFTGPU_TIERS": "2"}
        variables |= {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": wait}
        session = NativeSession(native_environment("soft", **variables))
        return parse_report(run(session, 0, program, arguments).checked(name))

    cold = report(once)
    wait_until_optimised(cache)
    warm = report([*once, "--no-check"])
    softgpu = report(timed)
    loops = max(report([*timed, "--loops"], wait)["throughput"] for wait in WAIT_POLICIES)
    return {
        "program": name,
        "unit": softgpu["unit"],
        "size": softgpu["size"],
        "softgpu": softgpu["throughput"],
        "loops": loops,
        "cold_s": cold["first_round_s"],
        "warm_s": warm["first_round_s"],
    }


def wait_until_optimised(cache: Path) -> None:
    """Until no quickly compiled object waits for its optimised one. NotMeasurableError when that takes too long."""
    end = time.monotonic() + MOST_S
    while any(cache.glob("*.quick.so")):
        if time.monotonic() > end:
            raise NotMeasurableError(f"softgpu's compiler has not optimised its code within {MOST_S:g} s")
        time.sleep(0.02)
