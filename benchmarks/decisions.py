"""What a decision of a scheduling policy costs, by the number of vGPUs: `python -m benchmarks.decisions [--policy NAME[,NAME..]]`.

A decision is what the end of a slice brings: the holder is charged, queues again, the next one is picked and dispatched. All vGPUs are
backlogged. Sizes are measured in turn, several times, and the best of each is kept: ratios between sizes mean something, times belong to
their machine.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scheduler.policy import Policy
from scheduler.registry import DEFAULT_POLICY, POLICIES, make_policy

SIZES = (10, 100, 1_000, 10_000, 100_000)
AIMS = {1_000: 2.0, 100_000: 4.0}
"""At most so many times the cost with 10 vGPUs."""

_SLICE_NS = 6_000_000


class Turns:
    """A policy with `nr_vgpus` backlogged, weights 1 to 4; `decide` ends one slice and begins the next."""

    def __init__(self, policy: Policy, nr_vgpus: int) -> None:
        self._policy = policy
        self._now_ns = 0
        for vgpu in range(nr_vgpus):
            policy.joined(vgpu, 1 + vgpu % 4, 0)
            policy.backlogged(vgpu, 0)
        self._dispatch()

    def decide(self) -> None:
        """Overruns differ, so that tags do."""
        self._now_ns += _SLICE_NS
        self._policy.charged(self._holder, _SLICE_NS + self._holder * 7919 % 100_000, self._now_ns)
        self._policy.backlogged(self._holder, self._now_ns)
        self._dispatch()

    def _dispatch(self) -> None:
        choice = self._policy.pick(self._now_ns)
        assert choice is not None
        self._holder = choice
        self._policy.dispatched(choice, self._now_ns)


def measure(policy: str, nr_decisions: int, nr_repetitions: int) -> dict[int, float]:
    """Microseconds a decision, by the number of vGPUs."""
    turns = {size: Turns(make_policy(policy), size) for size in SIZES}
    best = dict.fromkeys(SIZES, float("inf"))
    for _ in range(nr_repetitions):
        for size, some in turns.items():
            start_ns = time.perf_counter_ns()
            for _ in range(nr_decisions):
                some.decide()
            best[size] = min(best[size], (time.perf_counter_ns() - start_ns) / nr_decisions / 1000)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="decisions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default=DEFAULT_POLICY, help=f"of {', '.join(sorted(POLICIES))}")
    parser.add_argument("--decisions", type=int, default=20_000, help="in one repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    names = options.policy.split(",")
    results = {name: measure(name, options.decisions, options.repetitions) for name in names}
    table = Table("policy", "vGPUs", "us", "ratio to 10", "aim")
    for name, costs in results.items():
        for size, cost_us in costs.items():
            aim = f"at most {AIMS[size]:g}" if size in AIMS else ""
            table.add_row(name, str(size), f"{cost_us:.2f}", f"{cost_us / costs[10]:.2f}", aim)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
