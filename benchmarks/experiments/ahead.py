"""How much slower programs are while one of them is copied ahead to another Gpu, before it stands still.

A program whose kernels read all of its memory, and change a part of it, moves to and fro between two Gpus by replay: alone, and beside a
neighbour on each of them. Each counts what it has done all the time. What it does a second from the order to move until the program is to
stand is set beside what it did a second before the order.

    fairgv-bench ahead --sizes 1G,8G --moves 10 --plot ahead.png

Before the move the one neighbour shares its Gpu with the program, and the other one has its own Gpu alone; so it is while memory is copied.

Wrong when programs, workers and daemon do not have a core each, or when others use the Gpus: then what is done in a second differs from one
second to the next by more than the copies cost.
"""

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.sizes import format_size
from benchmarks.build import build
from benchmarks.devices import device_uuids
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, natural_number, positive, setting
from benchmarks.experiments.migration import END_S, REGION_BYTES, START_S, memory_sizes
from benchmarks.guests.open import daemon_config
from benchmarks.guests.process import ProcessRunning, ProcessSession, daemon
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, head
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

KIND = "ahead"
HOW_TO_READ = "Each point is one move. Below 0: more was done in a second than before."
SIZES = {"cuda": "1G,8G", "soft": "16M"}
ALONE, BESIDE = SCENES = ("alone", "beside")
MOVED, LEFT, THERE = "moved", "left", "there"
WHO = {
    MOVED: "the program that is copied",
    LEFT: "its neighbour on the GPU that it leaves",
    THERE: "its neighbour on the GPU that it comes to",
}
NR_GPUS = 2
LOOK_MS = 2
BEFORE_S = 1.0
POLL_S = 0.001
"""Between two questions how far the move is."""
MOST_S = 30.0
"""Of a move."""


class Ahead(Experiment):
    """`fairgv-bench ahead`."""

    name = "ahead"
    summary = "programs while one of them is copied ahead to another Gpu"
    repetitions = 1
    subjects: ClassVar[Subjects] = {KIND: ("size", "scene", "changed")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Sizes, moves, neighbours."""
        told = "; ".join(f"{sizes} on {device}" for device, sizes in SIZES.items())
        parser.add_argument("--sizes", type=memory_sizes, metavar="SIZE,...", help=f"of the program's memory ({told})")
        parser.add_argument("--moves", type=natural_number, default=10, metavar="N", help="of each (%(default)s)")
        parser.add_argument(
            "--changed", type=int, default=10, metavar="PERCENT", help="of it that its kernels change (%(default)s)"
        )
        parser.add_argument(
            "--kernel-us", type=positive, default=200.0, metavar="US", help="of the neighbours (%(default)g)"
        )

    def check(self, options: argparse.Namespace) -> None:
        """There are two GPUs."""
        if options.device == "cuda" and (nr := len(device_uuids())) < NR_GPUS:
            raise NotMeasurableError(f"this machine has {nr} GPU, and a program moves between two")
        options.sizes = options.sizes or memory_sizes(SIZES[options.device])
        if not 0 <= options.changed <= 100:
            raise NotMeasurableError("--changed: from 0 to 100")

    def nr_records(self, options: argparse.Namespace) -> int:
        """Alone, and beside neighbours."""
        return int(options.repetitions) * len(options.sizes) * len(SCENES)

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """A daemon for each scene."""
        for repetition in range(options.repetitions):
            for size in options.sizes:
                for scene in SCENES:
                    what = f"{format_size(size)}, {scene}"
                    reporter.doing(what)
                    with reporter.tolerating(what):
                        yield {
                            "kind": KIND,
                            "size": size,
                            "scene": scene,
                            "changed": options.changed,
                            "repetition": repetition,
                            "moves": _measure(size, scene, options),
                        }

    def sheets(self, document: Document) -> list[Sheet]:
        """Means and the worst of all moves."""
        rows = []
        for (size, scene, changed, who), moves in _by_who(document).items():
            losses = [move["slower"][who] for move in moves]
            rows.append(
                (
                    format_size(size),
                    f"{changed} %",
                    scene,
                    WHO[who],
                    str(len(moves)),
                    f"{fmean(move['ahead_s'] for move in moves):.3f}",
                    f"{fmean(losses):+.1%}",
                    f"{max(losses):+.1%}",
                )
            )
        if not rows:
            return []
        columns = ("memory", "changed", "scene", "who", "moves", "ahead, s", "slower by, mean", "most")
        notes = ("Ahead: from the order to move until the program is to stand, in the mean.",)
        return [Sheet("Copied ahead", columns, tuple(rows), notes)]

    def figures(self, document: Document) -> dict[str, float]:
        """How much slower, as a part of what was done before, in the mean of all moves."""
        return {
            f"{scene}/{size >> 20} MiB/{who}": fmean(move["slower"][who] for move in moves)
            for (size, scene, _, who), moves in _by_who(document).items()
        }

    def plot(self, document: Document, figure: Any) -> None:
        """A point for each move, by who it is that is slower."""
        found = _by_who(document)
        if not found:
            raise NotMeasurableError("no program was moved")
        axes = figure.subplots()
        names = []
        for at, ((size, scene, _, who), moves) in enumerate(found.items()):
            losses = [100 * move["slower"][who] for move in moves]
            axes.plot([at] * len(losses), losses, "o", alpha=0.5, color="C0")
            axes.plot([at - 0.25, at + 0.25], [fmean(losses)] * 2, linewidth=2, color="C1")
            names.append(f"{format_size(size)}\n{scene}\n{who}")
        axes.set_xticks(range(len(names)), names)
        axes.axhline(0, linewidth=0.8, color="grey")
        axes.set_ylabel(f"slower by, percent\n{LESS}")
        head(figure, _finding(document), document, HOW_TO_READ)


def _finding(document: Document) -> str:
    found = {key: [move["slower"][key[-1]] for move in moves] for key, moves in _by_who(document).items()}
    (size, *_, who), losses = max(found.items(), key=lambda each: fmean(each[1]))
    return f"While {format_size(size)} are copied ahead, {WHO[who]} is {100 * max(0.0, fmean(losses)):.1f} % slower"


def _by_who(document: Document) -> dict[tuple[int, str, int, str], list[Record]]:
    found: dict[tuple[int, str, int, str], list[Record]] = {}
    for record in records(document, KIND):
        for who in WHO if record["scene"] == BESIDE else (MOVED,):
            found.setdefault((record["size"], record["scene"], record["changed"], who), []).extend(record["moves"])
    return found


class Progress:
    """What a program had done by when, on the monotonic clock."""

    def __init__(self, looks: Sequence[tuple[float, float]]) -> None:
        """`looks`: seconds, and how much was done by then, both rising."""
        self._at_s, self._done = np.asarray(looks, dtype=float).reshape(-1, 2).T

    def rate(self, from_s: float, to_s: float) -> float:
        """Done in a second, between the two."""
        done = np.interp([from_s, to_s], self._at_s, self._done)
        return float(done[1] - done[0]) / (to_s - from_s)

    def slower(self, order_s: float, stand_s: float) -> float:
        """By how much, from the order until it is to stand, as a part of its rate before. ProgramFailedError when it did nothing then."""
        before = self.rate(order_s - BEFORE_S, order_s)
        if before <= 0:
            raise ProgramFailedError(f"it did nothing for {BEFORE_S:g} s before the move")
        return 1 - self.rate(order_s, stand_s) / before


def _measure(size: int, scene: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """For each move how long it took to copy ahead, how long programs stood, and how much slower each was."""
    plain = setting(options, REGION_BYTES)
    asked = {"vgpu": Entitlement(), "devices": tuple(map(str, range(NR_GPUS))), "fast_moves": True}
    with (
        daemon_config(OURS, replace(plain, daemon={**plain.daemon, **asked})) as config,
        daemon(config, None),
        contextlib.ExitStack() as stack,
    ):
        entitlements: dict[str, dict[str, object]] = {"moved": {"weight": 1}}
        if scene == BESIDE:
            entitlements |= {f"on-{gpu}": {"weight": 1, "gpu": str(gpu)} for gpu in range(NR_GPUS)}
        session = ProcessSession(config, entitlements, None, stack)
        words = ["--work", "--kernel-us", f"{options.kernel_us:g}", "--queue", "4", "--together"]
        neighbours = [
            session.start(index, build("spin"), [*words, "--look-ms", str(LOOK_MS)])
            for index in range(1, len(entitlements))
        ]
        moved = session.start(0, build("paging"), [str(size >> 20), str(options.changed), "1", "0", str(LOOK_MS)])
        for running in (moved, *neighbours):
            stack.callback(running.stop)
            if (line := running.read_line(time.monotonic() + START_S)) != "ready":
                raise ProgramFailedError(f"a program said {line!r}")
        seconds = options.moves * (BEFORE_S + MOST_S)
        begin_s = time.monotonic() + session.lead_s
        for running in neighbours:
            running.tell(f"{begin_s - time.monotonic():.6f} 1 0")
        moved.tell(f"{seconds:g}")
        with Connection(config.socket_path) as connection:
            origin = session.accounts()[0].gpu_number
            moves = [_move(connection, (origin + nr + 1) % NR_GPUS) for nr in range(options.moves)]
        found = Progress(_ended(moved, "enough")["looks"])
        beside = [
            Progress([(begin_s + at_s, done) for at_s, done in _ended(running, "")["looks"]]) for running in neighbours
        ]
        return [_slower(move, found, beside) for move in moves]


def _ended(running: ProcessRunning, word: str) -> dict[str, Any]:
    running.tell(word)
    report: dict[str, Any] = parse_report(running.finish(END_S).checked("a program"))
    if report.get("wrong"):
        raise ProgramFailedError("the program's memory was not what it should be")
    return report


def _move(connection: Connection, gpu: int) -> dict[str, Any]:
    """When it was ordered, when the program was to stand, for how long it stood, and where it went."""
    time.sleep(BEFORE_S + LOOK_MS / 1000)
    order_s = time.monotonic()
    try:
        connection.ask("migrate", name="moved", to=str(gpu), mover="replay")
    except FairGVError as error:
        raise NotMeasurableError(str(error)) from error
    stand_s = 0.0
    while time.monotonic() < order_s + MOST_S:
        move = connection.ask("migration", name="moved")["migration"]
        if move["stage"] != "preparing" and not stand_s:
            stand_s = time.monotonic()
        if move["stage"] == "done":
            return {"order_s": order_s, "stand_s": stand_s, "pause_s": move["pause_ns"] / 1e9, "gpu": gpu}
        if move["reason"]:
            raise NotMeasurableError(f"the program does not move to GPU {gpu}: {move['reason']}")
        time.sleep(POLL_S)
    raise NotMeasurableError(f"the program is not on GPU {gpu} after {MOST_S:g} s")


def _slower(move: dict[str, Any], moved: Progress, neighbours: Sequence[Progress]) -> dict[str, Any]:
    who = {MOVED: moved}
    if neighbours:
        who |= {LEFT: neighbours[1 - move["gpu"]], THERE: neighbours[move["gpu"]]}
    slower = {name: round(each.slower(move["order_s"], move["stand_s"]), 6) for name, each in who.items()}
    return {"ahead_s": round(move["stand_s"] - move["order_s"], 6), "pause_s": move["pause_s"], "slower": slower}
