"""Five programs with limits chosen at random, as in figure 12 of the Gemini paper. For `elastic`.

What each program got stands beside its goal: its limit, or, where limits sum to more than the GPU, what `allotments` gives. It is told twice,
by the kernels that ended in the window and by the GPU time that the daemon says was used. A deviation is the difference over the goal.

Gemini's deviations are of execution times, from those of the programs alone: a set of limits that sum to more than the GPU counts there as
not kept. These figures do not compare with it.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Reporter
from benchmarks.experiments.joins import goals_of
from benchmarks.guests import Session
from benchmarks.sheet import Sheet
from benchmarks.stretch import run_together
from benchmarks.style import LESS, due
from benchmarks.workloads import spin

NR_PROGRAMS = 5
LIMITS = range(1, 101)
"""Percent."""
EDGE_FRACTION = 0.25
"""Of the window, for each of its edges."""
WORKLOAD = spin(1000, 16)
"""One that may use 1 % of the GPU and is told to end needs 1.6 s for what it has queued."""
SMALL = 0.1
GEMINI = "Gemini's figure 12, of execution times: more than 80 % of deviations below 0.5, less than 3 % above 0.7."
KIND = "limits"
WAYS = {"kernels": "kernels that ended", "used": "GPU time used, of status"}


def sets_of(nr_sets: int, seed: int) -> list[list[int]]:
    """So many sets of limits in percent, the same ones for the same seed."""
    chance = random.Random(seed)
    return [[chance.choice(LIMITS) for _ in range(NR_PROGRAMS)] for _ in range(nr_sets)]


def goals(limits: Sequence[int]) -> list[float]:
    """Percent of the GPU that each one gets where all have work."""
    return list(goals_of({guest: (0, limit) for guest, limit in enumerate(limits)}).values())


def deviation(program: Record, way: str) -> float:
    """Of what one program got from its goal, as a part of the goal; `way` is one of WAYS."""
    return float(abs(program[way] - program["goal"]) / program["goal"])


def measured(session: Session, options: argparse.Namespace, repetition: int, tell: Reporter) -> Iterator[Record]:
    """One record for each set of limits. A set whose programs fail costs itself alone."""
    for number, limits in enumerate(sets_of(options.sets, options.seed)):
        tell.doing(f"limits {_words(limits)}")
        with tell.tolerating(f"limits {_words(limits)}"):
            for guest, limit in enumerate(limits):
                session.set_bounds(guest, 0, limit)
            outcomes = run_together(session, [WORKLOAD] * NR_PROGRAMS, options.seconds, options.seconds * EDGE_FRACTION)
            counted_s = options.seconds * (1 - EDGE_FRACTION)
            yield {
                "kind": KIND,
                "seed": options.seed,
                "set": number,
                "repetition": repetition,
                "window_s": options.seconds,
                "programs": [
                    {
                        "limit": limit,
                        "goal": goal,
                        "kernels": 100 * outcome.throughput,
                        "used": 100 * (outcome.charged_s or 0.0) / counted_s,
                        "held": 100 * (outcome.held_s or 0.0) / counted_s,
                    }
                    for limit, goal, outcome in zip(limits, goals(limits), outcomes, strict=True)
                ],
            }


def deviations(document: Document, way: str) -> list[float]:
    """All points."""
    return [deviation(program, way) for record in records(document, KIND) for program in record["programs"]]


def small_part(found: Sequence[float]) -> float:
    """The part of deviations that are below `SMALL`."""
    return sum(each < SMALL for each in found) / len(found)


def sheets(document: Document) -> list[Sheet]:
    """All points together, and each set with its largest deviation."""
    found = records(document, KIND)
    if not found:
        return []
    rows = []
    for way, told in WAYS.items():
        points = deviations(document, way)
        figures = (f"{100 * small_part(points):.0f}", f"{np.median(points):.3f}", f"{max(points):.3f}")
        rows.append((told, f"{len(points)}", *figures))
    columns = ("by", "points", f"below {SMALL:g}, %", "median", "largest")
    notes = ("A deviation is the difference from the goal, over the goal.", GEMINI)
    together = Sheet("Limits of five programs: deviations", columns, tuple(rows), notes)
    each = tuple(
        (
            f"{record['set'] + 1}",
            *(_words([round(program[key]) for program in record["programs"]]) for key in ("limit", "goal", "kernels")),
            *(f"{max(deviation(program, way) for program in record['programs']):.3f}" for way in WAYS),
        )
        for record in found
    )
    heads = ("set", "limits %", "goals %", "by kernels %", "largest", "largest, by use")
    return [together, Sheet("Limits of five programs: sets", heads, each)]


def finding(document: Document) -> str:
    """How many programs are near their goals, by the kernels that ended."""
    near = small_part(deviations(document, next(iter(WAYS))))
    return f"{100 * near:.0f} % of programs with limits are less than {100 * SMALL:g} % off their goals"


def draw(axes: Any, document: Document) -> None:
    """How many of the points have at most which deviation."""
    for way, told in WAYS.items():
        points = sorted(deviations(document, way))
        parts = [100 * (number + 1) / len(points) for number in range(len(points))]
        axes.step([0, *(100 * point for point in points)], [0, *parts], where="post", label=f"by {told}")
    due(axes, f"off by {100 * SMALL:g} %", x=100 * SMALL)
    axes.set(xlabel=f"how far off its goal a program is, % of the goal {LESS}", ylim=(0, 102))
    axes.set_ylabel("programs no farther off, %")
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")
    axes.set_title("Five programs with limits")


def _words(numbers: Sequence[int]) -> str:
    return " ".join(f"{number}" for number in numbers)
