"""What a decision of a scheduling policy costs, by the number of vGPUs.

A decision is what the end of a slice brings: the holder is charged, queues again, and the one of least standing is dispatched. All vGPUs are
backlogged. A standing is asked when a vGPU queues and stands in a heap from then on: under `fair` nothing but a charge changes it. Sizes are
measured in turn, and the best of all repetitions is shown: ratios between sizes mean something, times belong to their machine.
"""

import argparse
import heapq
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Experiment, Reporter, Subjects, natural_number
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, head, log_axis
from scheduler.policy import Policy
from scheduler.registry import make_policy

SIZES = (10, 100, 1_000, 10_000, 100_000)
AIMS = {1_000: 2.0, 100_000: 4.0}
"""At most so many times the cost with 10 vGPUs."""

_SLICE_NS = 6_000_000


class Turns:
    """A policy with `nr_vgpus` backlogged, weights 1 to 4; `decide` ends one slice and begins the next."""

    def __init__(self, policy: Policy, nr_vgpus: int) -> None:
        self._policy = policy
        self._now_ns = 0
        self._standings: list[tuple[float, int]] = []
        for vgpu in range(nr_vgpus):
            policy.joined(vgpu, 1 + vgpu % 4, 0)
            self._queue(vgpu)
        self._dispatch()

    def decide(self) -> None:
        """Overruns differ, so that tags do."""
        self._now_ns += _SLICE_NS
        self._policy.charged(self._holder, _SLICE_NS + self._holder * 7919 % 100_000, self._now_ns)
        self._queue(self._holder)
        self._dispatch()

    def _queue(self, vgpu: int) -> None:
        self._policy.backlogged(vgpu, self._now_ns)
        heapq.heappush(self._standings, (self._policy.standing(vgpu, self._now_ns).value, vgpu))

    def _dispatch(self) -> None:
        _, self._holder = heapq.heappop(self._standings)
        self._policy.dispatched(self._holder, self._now_ns)


class Decisions(Experiment):
    """`fairgv-bench decisions`."""

    name = "decisions"
    summary = "what a decision of a policy costs, by the number of vGPUs; uses no device"
    has_systems = True
    repetitions = 5
    subjects: ClassVar[Subjects] = {"decision": ("policy", "vgpus")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """How many at a time."""
        parser.add_argument(
            "--decisions", type=natural_number, default=20_000, metavar="N", help="in one repetition (20000)"
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each policy, size and repetition."""
        return int(options.repetitions * len(options.policy) * len(SIZES))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Sizes in turn."""
        turns = {(name, size): Turns(make_policy(name), size) for name in options.policy for size in SIZES}
        for repetition in range(options.repetitions):
            for (name, size), some in turns.items():
                reporter.doing(f"{name}, {size:,} vGPUs")
                begin_ns = time.perf_counter_ns()
                for _ in range(options.decisions):
                    some.decide()
                cost_us = (time.perf_counter_ns() - begin_ns) / options.decisions / 1000
                yield {"kind": "decision", "policy": name, "vgpus": size, "repetition": repetition, "us": cost_us}

    def sheets(self, document: Document) -> list[Sheet]:
        """The best of all repetitions."""
        best = _best(document)
        rows = []
        for (name, size), cost_us in best.items():
            aim = f"at most {AIMS[size]:g}" if size in AIMS else ""
            ratio = cost_us / best[name, min(size for of, size in best if of == name)]
            rows.append((name, str(size), f"{cost_us:.2f}", f"{ratio:.2f}", aim))
        columns = ("policy", "vGPUs", "us", "ratio to the fewest", "aim")
        return [Sheet("A decision", columns, tuple(rows))] if rows else []

    def plot(self, document: Document, figure: Any) -> None:
        """Cost over the number of vGPUs."""
        axes = figure.subplots()
        best = _best(document)
        for name in dict.fromkeys(name for name, _ in best):
            points = {size: cost_us for (of, size), cost_us in best.items() if of == name}
            axes.plot(list(points), list(points.values()), "o-", label=name)
        log_axis(axes.xaxis, sorted({size for _, size in best}))
        axes.set(xlabel="vGPUs", ylabel=f"us for a decision\n{LESS}")
        axes.set_ylim(bottom=0)
        axes.legend()
        size = max(size for _, size in best)
        longest = max(us for (_, of), us in best.items() if of == size)
        head(
            figure,
            f"With {size} vGPUs a policy decides in {longest:.2g} us at most",
            document,
            "The best of all rounds.",
        )


def _best(document: Document) -> dict[tuple[str, int], float]:
    best: dict[tuple[str, int], float] = {}
    for record in records(document, "decision"):
        key = (record["policy"], record["vgpus"])
        best[key] = min(best.get(key, float("inf")), record["us"])
    return best
