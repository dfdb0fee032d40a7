"""`make faults`: kills, stops and shortages of every kind, alone and in pairs, beside programs that check their results.

Each round starts a victim and a neighbour on vGPUs of their own, waits until both are served, and lets one fault or two happen to the victim,
to its worker, or to the daemon. Then the neighbour has to end with right results, the victim has to end at all, a newcomer that comes while the
fault lasts may be refused and nothing worse, a program afterwards has to pass, and nothing may be left behind. Every fault and every pair has
its round first; random ones follow until the time is over. The seed comes first: the same one gives the same rounds.
Wrong when: the machine is so loaded that a program needs a minute. It counts as a hang then, with what its threads waited for.
"""

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.endurance import processes
from tests.endurance.conditions import CONDITIONS, missing
from tests.endurance.programs import Ended, Ending, Guest, await_served
from tests.endurance.scene import LIMIT_S, House, end_all, small_disk

Fault = tuple[str, ...]
"""The names of one fault or two."""
SIGNALS = {
    f"{verb} {whom}": (whom, number)
    for verb, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP))
    for whom in ("guest", "worker", "daemon")
}
DAEMON_AND_WORKER: Fault = ("kill daemon", "kill worker")
"""The pair that `--pairs` repeats: who held the device is gone, and who would have noticed, too."""
CHECKERS = (
    ("matrix_mul", "6", "400"),
    ("matrix_mul", "3", "1500"),
    ("async_api",),
    ("managed_memory",),
    ("graph_threads",),
)
VICTIMS = (("spin", "3000"), ("matrix_mul", "6", "1000"))
NEWCOMER = ("vector_add",)
APART_S, STOPPED_S = 0.05, 1.5
"""Two faults come within so much of each other; who is stopped goes on after at most so long."""


@dataclass
class Tally:
    """All rounds of one fault, and what was wrong in how many."""

    nr_rounds: int = 0
    nr_wrong: int = 0
    nr_hangs: int = 0
    nr_failed: int = 0
    """A program that nothing was done to was told an error."""
    nr_not_served: int = 0
    """Afterwards no program passed."""
    nr_left: int = 0

    def is_clean(self) -> bool:
        return not (self.nr_wrong or self.nr_hangs or self.nr_failed or self.nr_not_served or self.nr_left)


@dataclass
class Round:
    """One round, and what was found in it."""

    house: House
    fault: Fault
    random: random.Random
    tally: Tally
    findings: list[str] = field(default_factory=list)
    guests: list[Guest] = field(default_factory=list)

    def run(self) -> None:
        self.tally.nr_rounds += 1
        log_bytes = len(self.house.log())
        victim = self._start("victim", *self.random.choice(VICTIMS))
        neighbour = self._start("neighbour", *self.random.choice(CHECKERS))
        workers = await_served(self.house.host, [victim, neighbour], LIMIT_S)
        time.sleep(self.random.uniform(0, 0.3))
        is_targeted = any(SIGNALS.get(name, ("", 0))[0] in ("guest", "worker") for name in self.fault)
        with contextlib.ExitStack() as lasting:
            self._bring_about(lasting, victim, workers.get("victim"))
            newcomer = self._start("newcomer", *NEWCOMER)
            time.sleep(self.random.uniform(0, STOPPED_S))
        deadline = time.monotonic() + LIMIT_S
        self._judge("neighbour", neighbour.end(deadline - time.monotonic()), may_fail="neighbour" not in workers)
        self._judge("victim", victim.end(deadline - time.monotonic()), may_fail=is_targeted or "victim" not in workers)
        self._judge("newcomer", newcomer.end(deadline - time.monotonic()), may_fail=True)
        for guest in self.guests:
            guest.kill()
        self._look_at_the_house(log_bytes)

    def _start(self, vgpu: str, *program: str) -> Guest:
        guest = Guest.start(self.house.host, vgpu, *program)
        self.guests.append(guest)
        return guest

    def _bring_about(self, lasting: contextlib.ExitStack, victim: Guest, worker: int | None) -> None:
        """A fault that lasts ends with `lasting`. Shortages come first: who is dead has no limits to be lowered."""
        targets = {"guest": victim.program_pid(), "worker": worker, "daemon": self.house.daemon}
        for name in sorted(self.fault, key=lambda name: name not in CONDITIONS):
            if name in CONDITIONS:
                lasting.enter_context(CONDITIONS[name](self.house.state_dir, self.house.daemon))
                continue
            whom, number = SIGNALS[name]
            pid = targets[whom]
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    if number == signal.SIGSTOP:
                        lasting.callback(_go_on, pid)
            time.sleep(self.random.uniform(0, APART_S))

    def _judge(self, who: str, ended: Ended, *, may_fail: bool) -> None:
        if ended.ending is Ending.WRONG:
            self.tally.nr_wrong += 1
        elif ended.ending is Ending.HANG:
            self.tally.nr_hangs += 1
            self.findings += [processes.where(pid) for pid in processes.descendants(os.getpid())]
        elif ended.ending is Ending.ERROR and not may_fail:
            self.tally.nr_failed += 1
        else:
            return
        self.findings.append(f"{who}: {ended.ending.value}: {ended.said}")

    def _look_at_the_house(self, log_bytes: int) -> None:
        log = self.house.log()[log_bytes:]
        if "kill daemon" in self.fault:
            self.house.again()
        after = self._start("afterwards", *NEWCOMER).end(LIMIT_S)
        if after.ending is not Ending.PASSED:
            self.tally.nr_not_served += 1
            self.findings.append(f"afterwards: {after.ending.value}: {after.said}")
            self.guests[-1].kill()
        left = self.house.left_behind()
        if "Traceback" in log:
            left.append(f"an exception in the log:\n{log}")
        self.tally.nr_left += bool(left)
        self.findings += left


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def schedule(names: Sequence[str], dice: random.Random) -> list[Fault]:
    """Every fault alone, and every pair, in some order."""
    every: list[Fault] = [*((name,) for name in names), *itertools.combinations(names, 2)]
    dice.shuffle(every)
    return every


def text_of(fault: Fault) -> str:
    return " + ".join(fault)


def show(tallies: dict[Fault, Tally], console: Console) -> None:
    """The counts of what was done and found; a line for each fault."""
    table = Table()
    heads = ("fault", "rounds", "wrong results", "hangs", "failed beside", "not served after", "left behind")
    for head in heads:
        table.add_column(head, justify="left" if head == "fault" else "right")
    columns = [
        (
            text_of(fault),
            tally.nr_rounds,
            tally.nr_wrong,
            tally.nr_hangs,
            tally.nr_failed,
            tally.nr_not_served,
            tally.nr_left,
        )
        for fault, tally in sorted(tallies.items())
    ]
    sums = [sum(row[column] for row in columns) for column in range(1, len(heads))]  # type: ignore[misc]
    for row in [*columns, ("all", *sums)]:
        table.add_row(*map(str, row))
    console.print(table, markup=False)


def run(options: argparse.Namespace, dice: random.Random, tallies: dict[Fault, Tally]) -> None:
    """Rounds until the time is over and every pair was had, or as many as were asked for."""
    deadline = time.monotonic() + 60 * options.minutes
    with small_disk() as (place, has_small_disk):
        names = list(SIGNALS)
        for condition in CONDITIONS:
            if reason := missing(condition, has_small_disk):
                print(f"without {condition!r}: {reason}", flush=True)
            else:
                names.append(condition)
        first = [DAEMON_AND_WORKER] * options.pairs if options.pairs else schedule(names, dice)
        house = House(place / "state")
        try:
            for number in itertools.count():
                if number >= len(first) and (options.pairs or time.monotonic() > deadline):
                    return
                if options.rounds and number >= options.rounds:
                    return
                fault = first[number] if number < len(first) else dice.choice(first)
                this = Round(house, fault, dice, tallies.setdefault(fault, Tally()))
                begun_s = time.monotonic()
                this.run()
                print(f"round {number + 1}: {text_of(fault)}, {time.monotonic() - begun_s:.1f} s", flush=True)
                for finding in this.findings:
                    print(f"  FOUND {finding}", flush=True)
        finally:
            house.end()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="at least so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of a run that is to be had again")
    parser.add_argument(
        "--pairs", type=int, default=0, metavar="N", help="only daemon and busiest worker, killed N times"
    )
    parser.add_argument("--rounds", type=int, default=0, help="no more than so many")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background job
        signal.signal(number, signal.default_int_handler)
    processes.adopt_orphans()
    tallies: dict[Fault, Tally] = {}
    status = 0
    try:
        run(options, random.Random(seed), tallies)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    finally:
        end_all()
        show(tallies, Console(width=None if sys.stdout.isatty() else 140))
    return status or int(not all(tally.is_clean() for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
