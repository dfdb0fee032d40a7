"""`make faults`: kills, stops and shortages of every kind, alone and in pairs, beside programs that check their results.

Each round starts a victim and a neighbour on vGPUs of their own, waits until both are served, and lets one fault or two happen to the victim,
to its worker, to the daemon, or to QEMU, in whose guest the victim runs then. Some faults should be none: its vGPU moves to another
Gpu and back all the time, or is suspended, or its memory and a third program's take turns on the device. Then the neighbour has to end with
right results, the victim has to end at all, a newcomer that comes while the fault lasts may be refused and nothing worse, a program afterwards
has to pass, in the guest too if that is still there, and nothing may be left behind. Every fault and every pair has its round first; random
ones follow until the time is over. The seed comes first: the same one gives the same rounds.
Wrong when: the machine is so loaded that a program needs a minute. It counts as a hang then, with what its threads waited for.
"""

import argparse
import contextlib
import functools
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from backend_host.vm.errors import VmError
from tests.endurance import processes
from tests.endurance.conditions import CONDITIONS, missing
from tests.endurance.machine import Machine, MachineProgram, machine
from tests.endurance.operations import OPERATIONS, going_on
from tests.endurance.programs import Ended, Ending, Guest, Program, await_served, send
from tests.endurance.scene import LARGE, LIMIT_S, House, end_all, small_disk

Fault = tuple[str, ...]
"""The names of one fault or two."""
SIGNALS = {
    f"{verb} {whom}": (whom, number)
    for verb, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP))
    for whom in ("guest", "worker", "daemon", "QEMU")
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
CROWD = "crowd"
VICTIMS = (("spin", "3000"), ("matrix_mul", "6", "1000"))
NEWCOMER = ("vector_add",)
APART_S, STOPPED_S = 0.05, 1.5
"""Two faults come within so much of each other; who is stopped goes on after at most so long."""
UNDER_WAY_S = 1.0
"""A fault comes in the midst of a move, or before it."""


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
    is_back: bool = False

    def run(self) -> None:
        self.tally.nr_rounds += 1
        log_bytes = len(self.house.log())
        if self._is_in_a_machine() and not self._boot():
            return
        crowd = self._start("crowd", *self._lasting()) if CROWD in self.fault else None
        victim = self._victim()
        neighbour = self._start("neighbour", *self.random.choice(CHECKERS))
        workers = await_served(self.house.host, [victim, neighbour, *([crowd] if crowd else [])], LIMIT_S)
        time.sleep(self.random.uniform(0, 0.3))
        is_targeted = "kill QEMU" in self.fault or any(whom in ("guest", "worker") for whom in self._whom())
        with contextlib.ExitStack() as lasting:
            self._bring_about(lasting, victim, workers.get(victim.vgpu))
            newcomer = self._start("newcomer", *NEWCOMER)
            time.sleep(self.random.uniform(0, STOPPED_S))
        self._is_over().touch()
        if CROWD in self.fault:
            self._bring_back()  # who waits for memory waits for a daemon, too
        deadline = time.monotonic() + LIMIT_S
        if crowd:
            self._judge("crowd", crowd.end(deadline - time.monotonic()), may_fail=crowd.vgpu not in workers)
        self._judge("neighbour", neighbour.end(deadline - time.monotonic()), may_fail="neighbour" not in workers)
        self._judge(
            "victim", victim.end(deadline - time.monotonic()), may_fail=is_targeted or victim.vgpu not in workers
        )
        self._judge("newcomer", newcomer.end(deadline - time.monotonic()), may_fail=True)
        for guest in self.guests:
            guest.kill()
        self._look_at_the_house(log_bytes)

    def _is_over(self) -> Path:
        """The file that ends the programs that last."""
        return self.house.state_dir / "is-over"

    def _lasting(self) -> tuple[str, ...]:
        """A program that lasts, and has most of the device's memory."""
        self._is_over().unlink(missing_ok=True)
        return (*LARGE, str(self._is_over()))

    def _whom(self) -> list[str]:
        """What signals go to."""
        return [SIGNALS[name][0] for name in self.fault if name in SIGNALS]

    def _is_in_a_machine(self) -> bool:
        return "QEMU" in self._whom()

    def _boot(self) -> bool:
        """False, which counts as a program that was told an error: the machine did not come up, though nothing was done to it."""
        assert self.house.machine is not None
        try:
            self.house.machine.boot(self.house.host)
        except VmError as error:
            self.tally.nr_failed += 1
            self.findings += [f"machine: {error}", *self.house.machine.end(self.house.host)]
            return False
        return True

    def _victim(self) -> Program:
        program = self.random.choice(VICTIMS)
        if self._is_in_a_machine():
            assert self.house.machine is not None
            return MachineProgram(self.house.machine, *program)
        is_to_last = any(name in OPERATIONS or name == CROWD for name in self.fault)
        return self._start("victim", *(self._lasting() if is_to_last else program))

    def _start(self, vgpu: str, *program: str) -> Guest:
        guest = Guest.start(self.house.host, vgpu, *program)
        self.guests.append(guest)
        return guest

    def _bring_about(self, lasting: contextlib.ExitStack, victim: Program, worker: int | None) -> None:
        """A fault that lasts ends with `lasting`. Shortages come first: who is dead has no limits to be lowered."""
        machine = self.house.machine
        targets: dict[str, Callable[[int], None]] = {
            "guest": victim.signal,
            "worker": lambda number: send(worker, number) if worker else None,
            "daemon": functools.partial(send, self.house.daemon),
            "QEMU": lambda number: machine.signal(number) if machine else None,
        }
        for name in sorted(self.fault, key=lambda name: (name not in OPERATIONS, name not in CONDITIONS)):
            if name in OPERATIONS:
                lasting.enter_context(going_on(name, self.house.host, victim.vgpu))
                time.sleep(self.random.uniform(0, UNDER_WAY_S))
                continue
            if name == CROWD:
                continue
            if name in CONDITIONS:
                lasting.enter_context(CONDITIONS[name](self.house.state_dir, self.house.daemon))
                continue
            whom, number = SIGNALS[name]
            targets[whom](number)
            if number == signal.SIGSTOP:
                lasting.callback(targets[whom], signal.SIGCONT)
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

    def _bring_back(self) -> None:
        """Another daemon, where there is none."""
        if "kill daemon" in self.fault and not self.is_back:
            self.house.again()
            self.is_back = True

    def _look_at_the_house(self, log_bytes: int) -> None:
        log = self.house.log()[log_bytes:]
        self._bring_back()
        left = self._look_at_the_machine() if self._is_in_a_machine() else []
        if "kill daemon" in self.fault:
            self.house.settle()
        self._serve_afterwards(self._start("afterwards", *NEWCOMER))
        left += self.house.left_behind()
        if "Traceback" in log:
            left.append(f"an exception in the log:\n{log}")
        self.tally.nr_left += bool(left)
        self.findings += left

    def _look_at_the_machine(self) -> list[str]:
        """One that still runs is served, and what is left of it when it has been taken away."""
        machine = self.house.machine
        assert machine is not None
        if "kill QEMU" not in self.fault:
            self._serve_afterwards(MachineProgram(machine, *NEWCOMER))
        return machine.end(self.house.host)

    def _serve_afterwards(self, program: Program) -> None:
        after = program.end(LIMIT_S)
        if after.ending is not Ending.PASSED:
            self.tally.nr_not_served += 1
            self.findings.append(f"afterwards, {program.vgpu}: {after.ending.value}: {after.said}")
            program.kill()


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


def _machine(scene: contextlib.ExitStack) -> Machine | None:
    """None where no guest can be booted."""
    try:
        return scene.enter_context(machine())
    except VmError as error:
        print(f"without QEMU: {error}", flush=True)
        return None


def run(options: argparse.Namespace, dice: random.Random, tallies: dict[Fault, Tally]) -> None:
    """Rounds until the time is over and every pair was had, or as many as were asked for."""
    deadline = time.monotonic() + 60 * options.minutes
    with contextlib.ExitStack() as scene:
        place, has_small_disk = scene.enter_context(small_disk())
        virtual_machine = None if options.pairs or options.without_qemu else _machine(scene)
        names = [name for name in SIGNALS if virtual_machine or SIGNALS[name][0] != "QEMU"]
        for condition in CONDITIONS:
            if reason := missing(condition, has_small_disk):
                print(f"without {condition!r}: {reason}", flush=True)
            else:
                names.append(condition)
        names += [*OPERATIONS, CROWD]
        every = [fault for fault in schedule(names, dice) if options.only in ("", text_of(fault))]
        first = [DAEMON_AND_WORKER] * options.pairs if options.pairs else every
        house = House(place / "state", virtual_machine, is_large=True)
        scene.callback(house.end)
        house.settle()
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="at least so long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of a run that is to be had again")
    parser.add_argument(
        "--pairs", type=int, default=0, metavar="N", help="only daemon and busiest worker, killed N times"
    )
    parser.add_argument("--only", default="", metavar="FAULT", help="this alone, in the table's words")
    parser.add_argument("--without-qemu", action="store_true", help="no virtual machine is among the victims")
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
