"""Programs that nobody here wrote: `fairgv-bench run --dir DIR` builds each, runs it natively and through FairGV, and compares.

A program is a folder with a Makefile, which is copied and made, or a single .cu file, for nvcc. Where the Makefile has a target `run`, its
commands are the program, with their arguments; else, and with `--arguments`, the programs are the executables that making it left and that
were not there before. Both runs get the same arguments and the program's own folder. They agree when exit status and standard output are the
same, but for measurements: numbers with a unit of time or rate behind them. Outputs that differ are kept, each in a file.

Example: `fairgv-bench run --dir HeCBench/src --jobs 4 --outputs differing`

Wrong when a program prints what no two runs print alike (addresses, dates): natively it is run twice, and said to differ from itself. When
several run at once, `--jobs`, and times are to be compared: each takes from the others.
"""

import argparse
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from backend_host.arguments import path_argument
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, natural_number, positive, setting
from benchmarks.guests import NATIVE, Finished, Session, open_session
from benchmarks.nvcc import find_nvcc
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, head
from benchmarks.systems import OURS

BUILD_LIMIT_S = 600
MEASUREMENT = re.compile(
    r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*\(?(ns|us|usec|ms|msec|s|sec|secs|seconds?|[KMGT]?i?B/s|[KMGT]?[fF][lL][oO][pP]s?(/s)?)\b\)?"
)
"""Figures that differ from run to run."""
LABELLED = re.compile(r"(?i)((time|elapsed|bandwidth|throughput|duration)[^\n\d]*)\d+(\.\d+)?([eE][-+]?\d+)?")
AGREES, DIFFERS, FAILS = "agrees", "differs", "fails"
UNSTEADY, NOT_BUILT, FAILS_NATIVELY = "differs from itself", "does not build", "fails natively"
"""About the program or this machine, not about FairGV."""


@dataclass(frozen=True)
class Program:
    """What a shell runs in a folder."""

    name: str
    commands: str
    folder: Path


class Adapter(Experiment):
    """`fairgv-bench run`."""

    name = "run"
    subjects: ClassVar[Subjects] = {"run": ("program",)}
    summary = "builds and runs a folder of CUDA programs natively and through FairGV, and compares"
    repetitions = 1

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Where the programs are, and how to run them."""
        parser.add_argument(
            "--dir", type=path_argument, required=True, help="folders with a Makefile, and single .cu files"
        )
        parser.add_argument(
            "--arguments", default="", metavar="WORDS", help="of each program, instead of a Makefile's `run`"
        )
        parser.add_argument("--jobs", type=natural_number, default=1, metavar="N", help="programs at once (default 1)")
        parser.add_argument(
            "--outputs",
            type=path_argument,
            default=Path("fairgv-outputs"),
            metavar="FOLDER",
            help="where outputs that differ are kept (default %(default)s)",
        )
        parser.add_argument("--limit-s", type=positive, default=120.0, metavar="S", help="for one run (default 120)")

    def check(self, options: argparse.Namespace) -> None:
        """There is something to run."""
        options.dir = options.dir.resolve()
        if not sources(options.dir):
            raise NotMeasurableError(f"{options.dir} has neither a .cu file nor a folder with a Makefile")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each source; a folder may have several programs."""
        return len(sources(options.dir))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """As many at once as `jobs` says."""
        with (
            tempfile.TemporaryDirectory(prefix="fairgv-programs-") as folder,
            open_session(NATIVE, setting(options)) as native,
            open_session(OURS, setting(options)) as guest,
            ThreadPoolExecutor(options.jobs) as pool,
        ):

            def one(number: int, source: Path) -> list[Record]:
                return try_source(source, Path(folder, str(number), source.stem), native, guest, options)

            tried = [pool.submit(one, number, source) for number, source in enumerate(sources(options.dir))]
            reporter.doing(f"{len(tried)} of them")
            try:
                for future in as_completed(tried):
                    for record in future.result():
                        reporter.doing(record["program"])
                        if record["verdict"] in (DIFFERS, FAILS):
                            reporter.failed(f"{record['program']} {record['verdict']}: {record['why']}")
                        yield record
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def sheets(self, document: Document) -> list[Sheet]:
        """Verdict and times of each."""
        rows = []
        for record in records(document, "run"):
            times = (f"{record[key]:.2f}" if key in record else "-" for key in ("native_s", "guest_s", "ratio"))
            rows.append((record["program"], record["verdict"], *times, record.get("why", "")))
        verdicts = [row[1] for row in rows]
        ratios = [record["ratio"] for record in records(document, "run") if record["verdict"] == AGREES]
        notes = [", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)) + "."]
        if ratios:
            notes.append(
                f"Of those that agree FairGV takes {statistics.geometric_mean(ratios):.2f} times as long (geometric mean)."
            )
        notes.append("Seconds from start to end of the faster of two native runs, and of fairgv-run.")
        head = ("program", "verdict", "native s", "FairGV s", "ratio", "why")
        return [Sheet("Programs", head, tuple(rows), tuple(notes))] if rows else []

    def plot(self, document: Document, figure: Any) -> None:
        """Seconds of both runs."""
        axes = figure.subplots()
        timed = [record for record in records(document, "run") if "guest_s" in record]
        axes.scatter([record["native_s"] for record in timed], [record["guest_s"] for record in timed])
        longest = max((max(record["native_s"], record["guest_s"]) for record in timed), default=1)
        ink = axes.xaxis.label.get_color()
        axes.plot([0, longest], [0, longest], ":", color=ink, linewidth=1, label="as long as natively")
        axes.set(xlabel="natively, s", ylabel=f"through FairGV, s\n{LESS}")
        axes.legend()
        ratios = [record["guest_s"] / record["native_s"] for record in timed if record["native_s"] > 0]
        finding = f"{len(timed)} programs of others ran to their ends"
        if ratios:
            finding += f", in {statistics.geometric_mean(ratios):.2f} times their native time, in the geometric mean"
        head(figure, finding, document, "A dot for each program, from its start to its end.")


def sources(folder: Path) -> list[Path]:
    """What can be built in a folder; the folder itself when it has a Makefile."""
    if not folder.is_dir():
        raise NotMeasurableError(f"{folder} is no folder")
    if _has_makefile(folder):
        return [folder]
    return [
        path for path in sorted(folder.iterdir()) if path.suffix == ".cu" or (path.is_dir() and _has_makefile(path))
    ]


def try_source(source: Path, place: Path, native: Session, guest: Session, options: argparse.Namespace) -> list[Record]:
    """A record of each program that comes of the source, or one that says why there is none."""
    try:
        programs = build(source, place, options.arguments)
    except ProgramFailedError as error:
        return [{"kind": "run", "program": source.name, "verdict": NOT_BUILT, "why": str(error)}]
    return [
        {"kind": "run", "program": program.name, **compare(program, native, guest, options)} for program in programs
    ]


def build(source: Path, place: Path, arguments: str = "") -> list[Program]:
    """In a copy at `place`, so that the folder stays as it is. ProgramFailedError with the compiler's words."""
    nvcc = find_nvcc()
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True)
        before = set(_executables(place))
        environment = {**os.environ, "PATH": f"{nvcc.path.parent}:{os.environ['PATH']}"}
        environment |= {"LIBRARY_PATH": str(nvcc.libraries), "NVCC_APPEND_FLAGS": f"-L{nvcc.libraries}"}
        _make(["make", "-s"], place, environment)
        commands = "" if arguments else _run_target(place, environment)
        if commands:
            return [Program(source.name, commands, place)]
        made = [path for path in _executables(place) if path not in before]
        if not made:
            raise ProgramFailedError("make left no executable")
        return [Program(_name(source, path, len(made)), _exec(path, arguments), path.parent) for path in made]
    shutil.copytree(source.parent, place, symlinks=True, ignore=_is_large)
    program = place / f"{source.stem}.out"
    words = ["-O2", "-L", str(nvcc.libraries), "-I", str(place), str(place / source.name), "-o", str(program)]
    _make([str(nvcc.path), *words], place, dict(os.environ))
    return [Program(source.name, _exec(program, arguments), place)]


def _exec(program: Path, arguments: str) -> str:
    return f"exec {shlex.quote(str(program))} {arguments}"


def _run_target(folder: Path, environment: dict[str, str]) -> str:
    """What `make run` would do after all that `make` has done; empty where there is no such target."""
    told = subprocess.run(
        ["make", "-s", "-n", "--no-print-directory", "run"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in told.stdout.splitlines() if line.strip() and not line.startswith("make:")]
    return "\n".join(("set -e", *lines)) if told.returncode == 0 and lines else ""


def _is_large(folder: str, names: Sequence[str]) -> set[str]:
    """Of what lies beside a single file, only files are copied."""
    return {name for name in names if (Path(folder) / name).is_dir()}


def _name(source: Path, path: Path, nr_made: int) -> str:
    return source.name if nr_made == 1 else f"{source.name}/{path.name}"


def _has_makefile(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("Makefile", "makefile", "GNUmakefile"))


def _executables(folder: Path) -> list[Path]:
    """ELF files that may be executed, libraries aside."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and os.access(path, os.X_OK)
        and ".so" not in path.name
        and path.suffix != ".o"
        and _is_elf(path)
    ]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _make(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProgramFailedError(f"not done within {BUILD_LIMIT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in said if "error" in line.lower()]
        raise ProgramFailedError((errors or said or ["no word"])[0])


def compare(program: Program, native: Session, guest: Session, options: argparse.Namespace) -> Record:
    """Verdict and seconds of one program."""
    runs: list[Finished] = []
    times: list[float] = []
    for side in (native, native, guest):
        begin_s = time.monotonic()
        try:
            runs.append(_run(side, program, options))
        except ProgramFailedError as error:
            return {"verdict": FAILS if side is guest else FAILS_NATIVELY, "why": str(error)}
        times.append(time.monotonic() - begin_s)
    first, again, through = map(comparable, runs)
    native_s, guest_s = min(times[:2]), times[2]
    found = {
        "native_s": native_s,
        "guest_s": guest_s,
        "ratio": guest_s / native_s,
        "exit_code": runs[2].exit_code,
    }
    if through in (first, again):
        return {**found, "verdict": AGREES, "why": _status(runs[2])}
    _keep(program, runs, options.outputs)
    if first != again:
        return {**found, "verdict": UNSTEADY, "why": "two native runs differ"}
    return {
        **found,
        "verdict": FAILS if runs[2].exit_code else DIFFERS,
        "why": difference(first[1], through[1]) or _status(runs[2]),
    }


def _run(side: Session, program: Program, options: argparse.Namespace) -> Finished:
    """In the program's own folder, by a shell, as a makefile would."""
    words = ["-c", f'cd "$0" || exit\n{program.commands}', str(program.folder)]
    child = side.start(0, Path("/bin/sh"), words)
    with closing(_Stopped(child)):
        return child.finish(options.limit_s)


def _keep(program: Program, runs: Sequence[Finished], folder: Path) -> None:
    """What each run printed, under names that tell the runs apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for run, side in zip(runs, ("native", "native-again", "fairgv"), strict=True):
        name = f"{program.name.replace('/', '-')}.{side}.txt"
        (folder / name).write_text(f"{run.output}{run.errors}exit status {run.exit_code}\n")


class _Stopped:
    """Ends a program at the end of a block."""

    def __init__(self, child: Any) -> None:
        self._child = child

    def close(self) -> None:
        """For `closing`."""
        self._child.stop()


def comparable(finished: Finished) -> tuple[int, str]:
    """Exit status, and the output without measurements."""
    return finished.exit_code, LABELLED.sub(r"\1#", MEASUREMENT.sub("#", finished.output))


def difference(native: str, guest: str) -> str:
    """The first line that differs, as the guest has it."""
    theirs, ours = native.splitlines(), guest.splitlines()
    for number, line in enumerate(theirs):
        if number >= len(ours) or ours[number] != line:
            return f"line {number + 1}: {ours[number] if number < len(ours) else 'missing'!r}, natively {line!r}"[:200]
    return f"line {len(theirs) + 1}: {ours[len(theirs)]!r}, natively nothing"[:200] if len(ours) > len(theirs) else ""


def _status(finished: Finished) -> str:
    said = finished.errors.strip().splitlines()
    return f"exit status {finished.exit_code}{f': {said[-1]}' if said else ''}"[:200] if finished.exit_code else ""
