"""What a program feels of being moved to another Gpu and back.

A program whose kernels read all of its memory, and change a part of it, computes all the time while its vGPU moves to and fro between two Gpus;
before that it computes alone as long as it takes to know its rate. replay: memory is copied and objects are made ahead, in its process. span:
its memory leaves the device and comes back by FairGV, and its contexts by the driver's checkpoint. driver: the driver's checkpoint moves all.

Pause: from the order to stand until the program may go on, as the daemon says. Longest: of any of the program's requests, from launch to its
end. Lost: how much later the program is done for each move, by its rate alone.

    fairgv-bench migration --sizes 64M,1G --moves 10 --plot migration.png
    fairgv-bench migration --memory replay --sizes 40G --changed 10

Wrong when the machine's other work takes the CPUs: pauses are copies, and work of the driver on the CPU.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from backend_host.errors import ConfigError
from backend_host.sizes import format_size, parse_size
from benchmarks.build import build
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, setting
from benchmarks.guests import Moved, Session, open_session
from benchmarks.paper import Finding, claims
from benchmarks.sheet import Sheet
from benchmarks.style import GREY, LESS, head
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

KIND = "migration"
HOW_TO_READ = "Each point is one move of a program between two GPUs, there or back."
SIZES: Mapping[str, str] = {"cuda": "64M,1G,8G", "soft": "16M,64M"}
REPLAY, SPAN, DRIVER = MEMORIES = ("replay", "span", "driver")
LABELS: Mapping[str, str] = {REPLAY: "by replay", SPAN: "its memory by FairGV", DRIVER: "all by the driver"}
CLAIMS = {REPLAY: "dcuda_migration", SPAN: "dcuda_checkpoint"}
ABOVE_ITS_END: Mapping[str, Any] = {
    "xycoords": ("axes fraction", "data"),
    "xytext": (-4, 3),
    "textcoords": "offset points",
    "ha": "right",
    "fontsize": 8,
    "color": GREY,
}
"""Of a level line: where its name stands."""
REGION_BYTES = 64 << 20
BETWEEN_S = 0.5
"""The program computes between two moves."""
RUN_S = 30.0
"""What one move is compared with, as in the paper's figure 9: its part of a run."""
START_S = 120.0
END_S = 120.0
MOST_MOVE_S = 10.0
MOST_MOVE_S_PER_GIB = 3.0


class Migration(Experiment):
    """`fairgv-bench migration`."""

    name = "migration"
    summary = "a program that moves between two Gpus: its pause, and what it loses"
    seconds = 3.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {KIND: ("size", "memory")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Sizes, moves, who moves memory."""
        told = "; ".join(f"{sizes} on {device}" for device, sizes in SIZES.items())
        parser.add_argument("--sizes", type=memory_sizes, metavar="SIZE,...", help=f"of the program's memory ({told})")
        parser.add_argument("--moves", type=int, default=6, metavar="N", help="of each program (%(default)s)")
        parser.add_argument("--memory", choices=MEMORIES, action="append", help="who moves it (default: all in turn)")
        parser.add_argument(
            "--changed", type=int, default=100, metavar="PERCENT", help="of it that its kernels change (%(default)s)"
        )

    def check(self, options: argparse.Namespace) -> None:
        """The device is known."""
        options.sizes = options.sizes or memory_sizes(SIZES[options.device])
        options.memory = options.memory or list(MEMORIES)
        if not 0 <= options.changed <= 100:
            raise NotMeasurableError("--changed: from 0 to 100")
        if options.moves < 1:
            raise NotMeasurableError("--moves: one at least")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each program."""
        return int(options.repetitions) * len(options.sizes) * len(options.memory)

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """A daemon for each program."""
        for repetition in range(options.repetitions):
            for size in options.sizes:
                for memory in options.memory:
                    what = f"{format_size(size)}, moved by {memory}"
                    reporter.doing(what)
                    with reporter.tolerating(what):
                        found = _measure(size, memory, options)
                        yield {"kind": KIND, "size": size, "memory": memory, "repetition": repetition, **found}

    def sheets(self, document: Document) -> list[Sheet]:
        """Pauses, and what is lost."""
        rows = []
        for size, memory in _subjects(document):
            found = _records(document, size, memory)
            pauses = [pause for each in found for pause in each["pauses_s"]]
            rows.append(
                (
                    format_size(size),
                    memory,
                    str(len(pauses)),
                    f"{np.percentile(pauses, 50):.4f}",
                    f"{np.percentile(pauses, 99):.4f}",
                    f"{max(each['longest_s'] for each in found):.3f}",
                    f"{fmean(each['seconds_s'] for each in found):.3f}",
                    f"{fmean(map(_lost_s, found)):.3f}",
                    f"{100 * fmean(map(_lost_s, found)) / RUN_S:.2f} %",
                )
            )
        if not rows:
            return []
        columns = (
            "memory",
            "moved by",
            "moves",
            "pause p50, s",
            "p99, s",
            "longest request, s",
            "whole move, s",
            "lost, s",
        )
        notes = ("Longest request: with its kernel, of all. Lost: for each move, by the program's rate alone.",)
        return [Sheet("Programs that move", (*columns, f"of {RUN_S:g} s"), tuple(rows), notes)]

    def findings(self, document: Document) -> list[Finding]:
        """What a move costs of a run of half a minute."""
        return [
            Finding(CLAIMS[memory], format_size(size), fmean(map(_lost_s, _records(document, size, memory))) / RUN_S)
            for size, memory in _subjects(document)
            if memory in CLAIMS
        ]

    def figures(self, document: Document) -> dict[str, float]:
        """Pauses in s, and parts of half a minute."""
        found = {}
        for size, memory in _subjects(document):
            mine = _records(document, size, memory)
            name = f"{memory}/{size >> 20} MiB"
            found[f"{name}/pause"] = float(np.percentile([pause for each in mine for pause in each["pauses_s"]], 50))
            found[f"{name}/lost"] = fmean(map(_lost_s, mine)) / RUN_S
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Pauses by the size of memory."""
        subjects = _subjects(document)
        if not subjects:
            raise NotMeasurableError("no program was moved")
        axes = figure.subplots()
        for memory, label in LABELS.items():
            points = [
                (size / 2**20, pause)
                for size, by in subjects
                if by == memory
                for each in _records(document, size, memory)
                for pause in each["pauses_s"]
            ]
            if points:
                axes.plot(*zip(*points, strict=True), "o", alpha=0.6, label=label)
        _mark_sizes(axes, sorted({size for size, _ in subjects}))
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"pause, s\n{LESS}")
        axes.legend()
        head(figure, _told(document), document, HOW_TO_READ)


def plot_parts(document: Document, figure: Any) -> None:
    """Figure 9: what one move costs, as a part of a run. Nothing is drawn of moves that cost less than can be told."""
    subjects = _subjects(document)
    parts = {(size, by): fmean(map(_lost_s, _records(document, size, by))) / RUN_S for size, by in subjects}
    parts = {subject: part for subject, part in parts.items() if part > 0}
    if not parts:
        raise NotMeasurableError("no program was moved")
    axes = figure.subplots()
    for memory, label in LABELS.items():
        points = [(size / 2**20, 100 * part) for (size, by), part in parts.items() if by == memory]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", label=label)
    for memory, whose in ((REPLAY, "DCUDA's"), (SPAN, "NVCR's")):
        axes.axhline(100 * claims()[CLAIMS[memory]].value, linestyle=":", linewidth=1, color=GREY)
        axes.annotate(f"{whose} most", (1, 100 * claims()[CLAIMS[memory]].value), **ABOVE_ITS_END)
    _mark_sizes(axes, sorted({size for size, _ in subjects}))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.set_ylabel(f"of {RUN_S:g} s\n{LESS}")
    axes.legend(loc="upper left")
    (size, memory), part = min(parts.items(), key=lambda each: (MEMORIES.index(each[0][1]), -each[0][0]))
    finding = f"One move of a program with {format_size(size)} costs {100 * part:.2g} % of a run of half a minute, {LABELS[memory]}"
    head(
        figure,
        finding,
        document,
        "Time that a program loses by a move, by its own rate. NVCR is what DCUDA is compared with.",
    )


def _mark_sizes(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks([size / 2**20 for size in sizes], [format_size(size) for size in sizes])
    axes.set_xlim(sizes[0] / 2**20 / 1.5, sizes[-1] / 2**20 * 1.5)
    axes.set_xlabel("memory of the program")


def _told(document: Document) -> str:
    if not (subjects := _subjects(document)):
        return "Pauses of programs that move to another GPU"
    memory = min((memory for _, memory in subjects), key=MEMORIES.index)
    size = max(size for size, by in subjects if by == memory)
    pauses = [pause for each in _records(document, size, memory) for pause in each["pauses_s"]]
    pause_s = float(np.percentile(pauses, 50))
    told = f"{1000 * pause_s:.0f} ms" if pause_s < 0.1 else f"{pause_s:.2f} s"
    return f"A program with {format_size(size)} stands still for {told} while it moves to another GPU"


def _lost_s(record: Record) -> float:
    """For each move."""
    worked_s = record["passes"] / record["rate"]
    return float((record["took_s"] - worked_s) / len(record["pauses_s"]))


def memory_sizes(text: str) -> list[int]:
    """In bytes, for argparse."""
    try:
        return [parse_size(size) for size in text.split(",")]
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _subjects(document: Document) -> list[tuple[int, str]]:
    return sorted({(record["size"], record["memory"]) for record in records(document, KIND)})


def _records(document: Document, size: int, memory: str) -> list[Record]:
    return [record for record in records(document, KIND) if (record["size"], record["memory"]) == (size, memory)]


def _measure(size: int, memory: str, options: argparse.Namespace) -> Record:
    plain = setting(options, REGION_BYTES)
    settings = {"memory": DRIVER if memory == DRIVER else SPAN, "fast_moves": memory == REPLAY}
    with open_session(OURS, replace(plain, daemon={**plain.daemon, **settings})) as session:
        alone = _run(session, size, options, options.seconds, ())
        one_s = BETWEEN_S + MOST_MOVE_S + MOST_MOVE_S_PER_GIB * size / 2**30
        moved: list[Moved] = []
        steps = _moves(session, options.moves, "replay" if memory == REPLAY else "checkpoint", moved)
        run = _run(session, size, options, options.moves * one_s, steps)
    return {
        "rate": alone["passes"] / alone["seconds"],
        "passes": run["passes"],
        "took_s": run["seconds"],
        "longest_s": run["longest_s"],
        "pauses_s": [each.pause_s for each in moved],
        "seconds_s": fmean(each.took_s for each in moved),
    }


def _moves(session: Session, nr: int, mover: str, moved: list[Moved]) -> Iterator[None]:
    """Makes one at each step, to the other Gpu."""
    for number in range(nr):
        time.sleep(BETWEEN_S)
        moved.append(session.move(0, (number + 1) % 2, mover))
        yield


def _run(
    session: Session, size: int, options: argparse.Namespace, seconds: float, steps: Iterator[None] | Sequence[None]
) -> dict[str, Any]:
    """The program, for so long at most, or until the steps are done."""
    running = session.start(0, build("paging"), [str(size >> 20), str(options.changed), "1", "0"])
    try:
        if (line := running.read_line(time.monotonic() + START_S)) != "ready":
            raise ProgramFailedError(f"paging said {line!r}")
        running.tell(f"{seconds:g}")
        for _ in steps:
            pass
        if steps:
            running.tell("enough")
        report = parse_report(running.finish(seconds + END_S).checked("paging"))
    finally:
        running.stop()
    if report["wrong"]:
        raise ProgramFailedError("the program's memory was not what it should be")
    return report
