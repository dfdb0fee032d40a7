"""What the critical program of a pair does around its rounds: it rests, works and tells times of rounds, as it is told.

`obey` is all of it. A word a line on standard input, and answers, are those of benchmarks/space/programs/pair.cu.

The Python that has a framework need not have FairGV: this needs the standard library alone, and a program beside it imports it as `rounds`,
which is where Python looks first for what a script imports.

Wrong by what the interpreter takes in a round, some ten us.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable


class Loop:
    """A thread that makes rounds while it is to, with pauses of half to one and a half times the mean between them."""

    def __init__(self, make_round: Callable[[], None], pause_us: float) -> None:
        self._make_round, self._pause_us = make_round, pause_us
        self._random = random.Random(1)
        self._may_work, self._is_over = threading.Event(), False
        self._rounds = threading.Lock()
        """Held while one is made."""
        self._times_us: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def work(self) -> None:
        """Goes on; what was done before does not count."""
        self.take()
        self._may_work.set()

    def rest(self) -> None:
        """Returns when the round has ended."""
        self._may_work.clear()
        with self._rounds:
            pass

    def take(self) -> list[float]:
        """Of rounds since the last time, in us."""
        found, self._times_us = self._times_us, []
        return found

    def end(self) -> None:
        """For ever."""
        self._is_over = True
        self._may_work.set()
        self._thread.join()

    def _run(self) -> None:
        while self._may_work.wait() and not self._is_over:
            with self._rounds:
                if self._may_work.is_set():
                    self._one()

    def _one(self) -> None:
        time.sleep(self._pause_us / 1e6 * self._random.uniform(0.5, 1.5))
        begun_ns = time.perf_counter_ns()
        self._make_round()
        self._times_us.append((time.perf_counter_ns() - begun_ns) / 1e3)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of all such programs."""
    parser.add_argument(
        "--pause-us", type=float, default=0.0, metavar="US", help="between rounds, in the mean (default 0)"
    )


def obey(make_round: Callable[[], None], pause_us: float) -> int:
    """Until the input ends. The exit status: 0, or 2 for a word that is none."""
    loop, begun_s = Loop(make_round, pause_us), time.monotonic()
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "work":
            loop.work()
            begun_s = time.monotonic()
        elif word in ("look", "rest"):
            now_s = time.monotonic()
            told = {"seconds": now_s - begun_s, "times_us": [round(each, 1) for each in loop.take()]}
            print(json.dumps(told), flush=True)
            begun_s = now_s
            if word == "rest":
                loop.rest()
        else:
            print(f"a program is told to work, to look or to rest, not {word}", file=sys.stderr)
            return 2
    loop.end()
    return 0
