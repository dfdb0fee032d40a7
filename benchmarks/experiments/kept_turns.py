"""Turns that are kept to their ends beside turns that are given up, in simulation: where Gemini's figure 14 comes from.

A token of the Gemini paper is its holder's until its quota is over, idle or not (scheduler/simulator/kept.py). Turns of this project go on to
the next one as soon as they are not used. Three programs answer requests of 36, 64 and 78 ms with random pauses, as those of `bursts` do. Turns
of fixed lengths and turns by bursts are simulated both ways.

If idle tokens are where the paper's gains come from, requests take longer by fixed turns than by bursts where turns are kept, and do not where
they are given up. That is so for turns that are longer than requests. Shorter ones lose something both ways: a request then has several.

    fairgv-bench kept-turns --seconds 1000 --plot kept.png

Wrong when taken for a measurement: no GPU is used. A holder of the paper's gives back what is too short for one more kernel; none does here.
"""

import argparse
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects
from benchmarks.experiments.bursts import BURSTS, turn_lengths
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, due, head
from scheduler.elastic import Elastic
from scheduler.quota import QUOTAS
from scheduler.simulator.report import Report
from scheduler.simulator.settings import SLICE_NS, Settings, VgpuSpec
from scheduler.simulator.simulation import simulate
from scheduler.simulator.workloads import find_workload

KIND = "turns"
SIMULATOR = "simulator"
PROGRAMS = ("random-6x6ms-90ms", "random-8x8ms-160ms", "random-6x13ms-195ms")
TURNS_MS = (6.0, 10.0, 30.0, 40.0, 60.0, 80.0, 100.0, 250.0)
PAPERS_MS = 80.0
"""The best fixed quota of figure 14, which is longer than each request."""
KEPT: Mapping[bool, str] = {True: "kept", False: "given up"}

Runs = Mapping[str, list[Record]]
"""By the length of turns, in words."""


def in_words(turn_ms: float | None) -> str:
    """None: by bursts."""
    return BURSTS if turn_ms is None else f"{turn_ms:g} ms"


def settings_of(turn_ms: float | None, seconds: float, seed: int, *, is_kept: bool) -> Settings:
    """A device that does not preempt, as the paper's kernels are not preempted."""
    fixed, by_bursts = QUOTAS
    return Settings(
        Elastic.name,
        tuple(VgpuSpec(1, find_workload(name)) for name in PROGRAMS),
        duration_ns=round(seconds * 1e9),
        seed=seed,
        slice_ns=SLICE_NS if turn_ms is None else round(turn_ms * 1e6),
        quota=by_bursts if turn_ms is None else fixed,
        keeps_turns=is_kept,
    )


def simulated(settings: Settings) -> Report:
    """As another process can call it."""
    return simulate(settings)


def by_turn(document: Document, *, is_kept: bool) -> dict[str, list[Record]]:
    """All repetitions of each length, of turns that are kept, or of those that are given up."""
    found: dict[str, list[Record]] = {}
    for record in records(document, KIND):
        if record["is_kept"] == is_kept:
            found.setdefault(record["turn"], []).append(record)
    return found


def mean_ms(runs: list[Record]) -> float:
    """Of requests, in the mean of the programs and repetitions; each counts the same."""
    return fmean(program["request_ms"] for run in runs for program in run["programs"])


def over_bursts(found: Runs) -> dict[str, float]:
    """How long requests take by each fixed length over by bursts. Empty without these."""
    if BURSTS not in found:
        return {}
    least = mean_ms(found[BURSTS])
    return {turn: mean_ms(runs) / least for turn, runs in found.items() if turn != BURSTS}


class KeptTurns(Experiment):
    """`fairgv-bench kept-turns`."""

    name = "kept-turns"
    summary = "turns that are kept, idle or not, beside turns that are given up, in simulation (Gemini's Figure 14); uses no device"
    seconds = 300.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {KIND: ("turn", "is_kept")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which lengths."""
        parser.add_argument(
            "--turns-ms",
            type=turn_lengths,
            default=list(TURNS_MS),
            metavar="MS,...",
            help=f"fixed lengths of turns (default {','.join(f'{each:g}' for each in TURNS_MS)})",
        )

    def device(self, options: argparse.Namespace) -> str:
        """None is used."""
        return SIMULATOR

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each length, and by bursts, both ways."""
        return int(options.repetitions * len(KEPT) * (1 + len(options.turns_ms)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """As many at a time as there are cores. Each repetition has a seed of its own."""
        turns: list[float | None] = [*options.turns_ms, None]
        ways = [(seed, is_kept, turn) for seed in range(options.repetitions) for is_kept in KEPT for turn in turns]
        wanted = [settings_of(turn, options.seconds, seed, is_kept=is_kept) for seed, is_kept, turn in ways]
        reporter.doing(f"{options.seconds:g} s of each length")
        ignore = (signal.SIGINT, signal.SIG_IGN)
        with multiprocessing.get_context("spawn").Pool(os.cpu_count(), signal.signal, ignore) as pool:
            for (seed, is_kept, turn), report in zip(ways, pool.imap(simulated, wanted), strict=True):
                names = {"kind": KIND, "turn": in_words(turn), "is_kept": is_kept, "repetition": seed}
                yield names | {"seconds": options.seconds, "programs": _programs(report)}

    def sheets(self, document: Document) -> list[Sheet]:
        """One for turns that are kept, one for the others."""
        return [
            _sheet(words, found) for is_kept, words in KEPT.items() if (found := by_turn(document, is_kept=is_kept))
        ]

    def findings(self, document: Document) -> list[Finding]:
        """At the paper's best fixed quota; beside it what is left of that where turns are given up."""
        kept, given = (over_bursts(by_turn(document, is_kept=is_kept)) for is_kept in KEPT)
        turn = in_words(PAPERS_MS)
        if turn not in kept or turn not in given:
            return []
        return [Finding("gemini_tokens", f"{given[turn]:.3f} where turns are given up", kept[turn])]

    def figures(self, document: Document) -> dict[str, float]:
        """Request time of each fixed length over that by bursts, both ways."""
        return {
            f"{words}/{turn}/over bursts": ratio
            for is_kept, words in KEPT.items()
            for turn, ratio in over_bursts(by_turn(document, is_kept=is_kept)).items()
        }

    def plot(self, document: Document, figure: Any) -> None:
        """Request times over those by bursts, by the length of turns."""
        ratios = {words: over_bursts(by_turn(document, is_kept=is_kept)) for is_kept, words in KEPT.items()}
        if not any(ratios.values()):
            raise NotMeasurableError("a plot wants turns of a fixed length and turns by bursts")
        axes = figure.subplots()
        for words, found in ratios.items():
            points = sorted((float(turn.split()[0]), ratio) for turn, ratio in found.items())
            axes.plot(*zip(*points, strict=True) if points else ((), ()), "o-", label=f"turns {words}")
        marks = sorted({float(turn.split()[0]) for found in ratios.values() for turn in found})
        due(axes, "as by bursts", y=1)
        axes.set(xscale="log", xlabel="length of a turn, ms", ylabel=f"time of a request over by bursts\n{LESS}")
        axes.set_xticks(marks, [f"{each:g}" for each in marks])
        axes.minorticks_off()
        axes.legend()
        head(figure, _title(ratios), document, "Three simulated programs that answer requests of 36, 64 and 78 ms.")


def _programs(report: Report) -> list[Record]:
    """What each program had, rounded to what means something."""
    return [
        {
            "workload": each.workload,
            "request_ms": round(each.answer_ns / 1e6, 4),
            "nr_requests": each.nr_answered,
            "nr_turns": each.nr_turns,
            "turn_ms": round(each.turn_ns / 1e6, 4),
            "overuse_ms": round(each.overuse_ns / 1e6 / (each.nr_turns or 1), 4),
            "held": round(each.held_ns / report.duration_ns, 5),
            "useful": round(each.throughput, 5),
        }
        for each in report.vgpus
    ]


def _title(ratios: Mapping[str, Mapping[str, float]]) -> str:
    turn = in_words(PAPERS_MS)
    said = [f"{found[turn]:.2f} times where turns are {words}" for words, found in ratios.items() if turn in found]
    if not said:
        return "How long requests take by fixed turns, over by bursts"
    return f"Requests take with turns of {turn}, of what they take by bursts: {', '.join(said)}"


def _sheet(words: str, found: Runs) -> Sheet:
    beside, rows = over_bursts(found), []
    for turn, runs in found.items():
        programs = [program for run in runs for program in run["programs"]]
        each = zip(*(run["programs"] for run in runs), strict=True)
        times = " ".join(f"{fmean(program['request_ms'] for program in mine):.1f}" for mine in each)
        turns = fmean(program["nr_turns"] / (program["nr_requests"] or 1) for program in programs)
        rows.append(
            (
                turn,
                times,
                estimate([mean_ms([run]) for run in runs]).text(1),
                f"{beside[turn]:.2f}" if turn in beside else "-",
                f"{_sum(runs, 'held'):.3f}",
                f"{_sum(runs, 'useful'):.3f}",
                f"{turns:.2f}",
                f"{fmean(program['overuse_ms'] for program in programs):.2f}",
            )
        )
    columns = ("turn", "requests, ms", "mean, ms", "over bursts", "idle", "useful", "turns each", "overuse, ms")
    notes = (
        "Simulated requests that take 36, 64 and 78 ms alone. Idle: the part of the time that holders kept the GPU idle.",
        "Overuse: what a turn goes on beyond its end while others wait. Gemini's Figure 14: 23 % more at best, 31 % at worst.",
    )
    return Sheet(f"Turns that are {words}", columns, tuple(rows), notes)


def _sum(runs: list[Record], name: str) -> float:
    """Of the programs, in the mean of the repetitions."""
    return fmean(sum(program[name] for program in run["programs"]) for run in runs)
