"""`python -m tests.endurance.space_kills --kills 200`: a critical and a best-effort program of one space on softgpu, and SIGKILL for one of
them or for its worker, at random, again and again.

Each time whoever was killed, or lost its worker, ends with an error, and the other one goes on: it has to answer with right results before
another program takes the place. Best effort's kernels are larger than the device, so that they go persistently: they come to no end while room
is asked for that nobody uses. A page has 256 slots for workers, so one that did not come back each time would be missed before the end of a
long run. At the end no vGPU, no process of the space and no file in /dev/shm is left.

Wrong when: the machine is so loaded that an answer takes a minute.
"""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.space_programs import BEST_EFFORT, CRITICAL, processes, worker
from tests.endurance.kills import LIMIT_S, SHARED, KillsError, expect_gone, main, mapped
from tests.endurance.processes import children

MOST_APART_S = 0.1
"""Between an answer and the next kill."""


class Program:
    """One of the space, through its ends."""

    def __init__(self, host: Host, options: tuple[str, ...], *arguments: str) -> None:
        self.name = options[1]
        self._host, self._options, self._arguments = host, options, arguments
        self.start()

    def start(self) -> None:
        """Another one, once it computes."""
        self._run = self._host.start("rounds", *self._arguments, options=self._options, stdin=subprocess.PIPE)
        self._expect("ready")

    def answers(self) -> None:
        """It goes on, and is right."""
        assert self._run.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._run.stdin.write("\n")
            self._run.stdin.flush()
        self._expect("right")

    def kill(self, what: str) -> None:
        """`what`: program or worker. It ends, and not well."""
        pid = worker(self._host, self.name) if what == "worker" else next(children(self._run.pid))
        os.kill(pid, signal.SIGKILL)
        self._run.communicate(timeout=LIMIT_S)
        if self._run.returncode == 0:
            raise KillsError(f"{self.name}: ended well without its {what}")

    def end(self) -> None:
        """By itself: all has to have been right."""
        output, errors = self._run.communicate(timeout=LIMIT_S)
        if self._run.returncode != 0:
            raise KillsError(f"{self.name}: {output}{errors}")

    def close(self) -> None:
        self._run.kill()
        self._run.communicate()

    def _expect(self, word: str) -> None:
        assert self._run.stdout is not None
        came, _, _ = select.select([self._run.stdout], [], [], LIMIT_S)
        said = self._run.stdout.readline().strip() if came else f"nothing in {LIMIT_S:g} s"
        if said != word:
            errors = self._run.communicate()[1] if came else ""
            raise KillsError(f"{self.name}: said {said!r}, not {word!r} {errors}")


def run(kills: int, luck: random.Random, state_dir: Path) -> Counter[str]:
    """How often each was killed. Raises KillsError."""
    before = set(SHARED.iterdir())
    host = start_host(state_dir, space="mps")
    done: Counter[str] = Counter()
    seen: set[Path] = set()
    try:
        with _two(host) as (critical, best):
            for _ in range(kills):
                victim, other = (critical, best) if luck.random() < 0.5 else (best, critical)
                what = luck.choice(("program", "worker"))
                seen |= mapped(_pids(host))
                time.sleep(luck.uniform(0, MOST_APART_S))
                victim.kill(what)
                other.answers()
                victim.start()
                done[f"{victim.name}'s {what}"] += 1
            for each in (critical, best):
                each.answers()
                each.end()
        wait_until(lambda: host.status()["vgpus"] == [], "no vGPU is left")
        wait_until(lambda: host.status()["spaces"] == [], "nor the space")
        wait_until(lambda: processes(host) == {}, "nor a process of it")
    finally:
        stop_host(host)
    expect_gone(seen - before)
    return done


@contextlib.contextmanager
def _two(host: Host) -> Iterator[tuple[Program, Program]]:
    with contextlib.ExitStack() as stack:
        programs = []
        for options, arguments in ((CRITICAL, ("1", "2000")), (BEST_EFFORT, ("4096", "0"))):
            programs.append(Program(host, options, *arguments))
            stack.callback(programs[-1].close)
        yield programs[0], programs[1]


def _pids(host: Host) -> list[int]:
    """Those of the daemon and of both workers."""
    return [int(host.status()["pid"]), *(worker(host, each[1]) for each in (CRITICAL, BEST_EFFORT))]


if __name__ == "__main__":
    sys.exit(main("space_kills", __doc__, 200, run))
