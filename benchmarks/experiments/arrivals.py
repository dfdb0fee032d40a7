"""Programs that arrive and end on this machine's GPUs, with placement alone and with moves, beside the simulation of the same ones.

What `balancing` simulates, done: programs come one after the other, in orders at random, each with a vGPU of its own, and the daemon places and
moves them. A program does step by step what its twin in the simulation does: the same pauses, and kernels of the same lengths, with as much
memory. It begins when it begins here, and in the simulation after as long as that took here in the mean. Times are over those that the
simulation has for the program alone.

    fairgv-bench arrivals --orders 5 --json arrivals.json --plot arrivals.png

Demand: what the daemon said, when a program had ended, that it would use alone, beside what its own kernels and pauses come to.

Wrong when others use the GPUs, or where each program has no core: pauses are then longer than they are to be.
"""

import argparse
import contextlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from backend_host.config import Config
from backend_host.entitlement import Entitlement
from backend_host.ipc import Connection
from benchmarks.build import build
from benchmarks.devices import device_uuids
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, natural_number, positive, setting
from benchmarks.experiments.balancing import DIGITS, balance_modes
from benchmarks.guests.open import daemon_config
from benchmarks.guests.process import ProcessRunning, ProcessSession, daemon
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, head
from benchmarks.systems import OURS
from scheduler.balance import BALANCE, MODES, OFF
from scheduler.simulator.host.command import orders
from scheduler.simulator.host.host import alone_ns, simulate_host
from scheduler.simulator.host.programs import PROGRAMS, Program
from scheduler.simulator.host.report import SLOWED, jain
from scheduler.simulator.host.settings import HostSettings
from scheduler.simulator.workloads import Launch, Sleep, Wait

KIND = "arrivals"
FIGURES: Mapping[str, str] = {
    "overloaded": "overloaded, of the GPUs' time",
    "beyond": "more wanted than all have, of the time",
    "utilisation": "used, of the GPUs' time",
    "mean_slowdown": "time over alone",
    "unharmed": "slowed by a fifth at most, of the programs",
    "jain": "Jain's index of how fast they are",
    "nr_moves": "moves",
    "seconds": "all, s",
}
"""What is told of the real run and of the simulated one."""
LOOK_S, TICK_S = 0.1, 0.02
END_S = 20.0
"""A program that should have ended so long ago, each of its kernels having waited for all others, has failed."""
REGION_BYTES = 64 << 20
CONTEXT_BYTES = 2 << 30
"""Of a program's quota, beyond its memory: its context, and what the driver takes with it."""
SOFT_MIB = 16
"""Of each program: softgpu's memory is the host's."""
CLOSE = 0.05
"""Demand so near to the program's own, as a part of a GPU, is right."""
_HAIR = 1e-9


class Arrivals(Experiment):
    """`fairgv-bench arrivals`."""

    name = "arrivals"
    summary = "programs that arrive and end on several GPUs, beside the same in simulation (DCUDA's Figures 10 to 13)"
    repetitions = 1
    subjects: ClassVar[Subjects] = {KIND: ("interval_s", "balance", "order", "gpus", "programs", "part")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """What comes, and how often."""
        parser.add_argument(
            "--balance",
            type=balance_modes,
            default=[OFF, BALANCE],
            metavar="MODE,...",
            help=f"of {', '.join(MODES)}, one after the other (default {OFF},{BALANCE})",
        )
        for option, default, told in (
            ("--orders", 5, "of the programs"),
            ("--programs", 10, f"of {len(PROGRAMS)}, the first ones of each order"),
            ("--gpus", 2, "of this machine"),
        ):
            parser.add_argument(
                option, type=natural_number, default=default, metavar="N", help=f"{told} (default %(default)d)"
            )
        parser.add_argument(
            "--interval", type=positive, default=5.0, metavar="S", help="one program in so many s (default %(default)g)"
        )
        parser.add_argument(
            "--part",
            type=positive,
            default=0.5,
            metavar="P",
            help="of half a minute, which programs take (default %(default)g)",
        )

    def check(self, options: argparse.Namespace) -> None:
        """The GPUs are there."""
        if options.programs > len(PROGRAMS):
            raise NotMeasurableError(f"--programs: there are {len(PROGRAMS)}")
        if options.device == "cuda" and (nr := len(device_uuids())) < options.gpus:
            raise NotMeasurableError(f"--gpus: this machine has {nr}, and not {options.gpus}")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each order and mode."""
        return int(options.repetitions * options.orders * len(options.balance))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Orders are the outermost loop, so that an early end leaves whole ones."""
        for order, settings in _all_settings(options):
            what = f"order {order}, {settings.balance}"
            reporter.doing(what)
            with reporter.tolerating(what):
                yield {
                    "kind": KIND,
                    "order": order,
                    "balance": settings.balance,
                    "gpus": options.gpus,
                    "interval_s": options.interval,
                    "programs": options.programs,
                    "part": options.part,
                    **_measure(settings, options),
                }

    def sheets(self, document: Document) -> list[Sheet]:
        """Means over orders; and demand."""
        rows = []
        for mode, runs in _by_mode(document).items():
            for name, told in FIGURES.items():
                real, simulated = (fmean(run[side][name] for run in runs) for side in ("real", "simulated"))
                ratio = f"{real / simulated:.2f}" if simulated else "-"
                rows.append((mode, told, _told(name, real), _told(name, simulated), ratio))
        if not rows:
            return []
        runs = records(document, KIND)
        first = runs[0]
        notes = (
            f"Means of {len({run['order'] for run in runs})} orders of {first['programs']} programs, one in "
            f"{first['interval_s']:g} s, on {first['gpus']} GPUs.",
            f"Programs take {first['part']:g} times half a minute; to their first kernel {fmean(run['starts_s'] for run in runs):.2f} s.",
        )
        columns = ("mode", "figure", "here", "simulated", "here over simulated")
        return [Sheet("Programs that arrive and end", columns, tuple(rows), notes), *_demands(document)]

    def figures(self, document: Document) -> dict[str, float]:
        """By mode: each figure, here over simulated; and the part of programs whose demand was known to 5 % of a GPU."""
        found = {}
        for mode, runs in _by_mode(document).items():
            for name in FIGURES:
                real, simulated = (fmean(run[side][name] for run in runs) for side in ("real", "simulated"))
                if simulated:
                    found[f"{mode}/{name}"] = real / simulated
        if known := _known_demands(document):
            found["demand/close"] = fmean(abs(said - own) <= CLOSE for own, said in known)
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """A program's mean time, order by order, here and in the simulation."""
        modes = _by_mode(document)
        if not modes:
            raise NotMeasurableError("nothing was measured that a plot has")
        axes = figure.subplots()
        for mode, runs in modes.items():
            sides = [[run[side]["mean_slowdown"] for run in runs] for side in ("simulated", "real")]
            axes.plot(*sides, "o", label=mode)
        ends = axes.get_xlim()
        axes.plot(ends, ends, linestyle=":", linewidth=1, label="as simulated", zorder=0)
        axes.set(xlabel="mean time of a program over alone, simulated", ylabel=f"here\n{LESS}")
        axes.legend(loc="upper left")
        head(figure, _finding(modes), document, "Each point is an order of programs.")


# What runs.


@dataclass
class _Arrived:
    """One program from its arrival on. Times are seconds on the monotonic clock."""

    program: Program
    session: ProcessSession
    running: ProcessRunning
    at_s: float
    stack: contextlib.ExitStack
    began_s: float | None = None
    ended_s: float | None = None
    used_ns: int = 0
    demand: float | None = None
    visited: list[int] = field(default_factory=list)

    @property
    def wants(self) -> float:
        """As in the simulation."""
        return self.program.demand if self.began_s is not None and self.ended_s is None else 0.0

    def look(self) -> None:
        """Hears what it said."""
        if self.ended_s is not None or not self.running.has_said():
            return
        word = self.running.read_line(time.monotonic())
        if self.began_s is None and word == "began":
            self.began_s = time.monotonic()
        elif self.began_s is not None and word == "ended":
            self.ended_s = time.monotonic()
            self.used_ns = self.session.accounts()[0].used_ns
            self.running.finish(END_S).checked(self.program.name)
            self.stack.close()
        else:
            raise ProgramFailedError(f"{self.program.name} said {word!r}")


class _Order:
    """The programs of one order, and for how long which device was wanted how much."""

    def __init__(self, settings: HostSettings, config: Config, stack: contextlib.ExitStack, mib: int | None) -> None:
        self._settings, self._config, self._stack, self._mib = settings, config, stack, mib
        self._jobs: list[_Arrived] = []
        self._over_s = self._beyond_s = 0.0
        self._looked_s = 0.0

    def run(self) -> list[_Arrived]:
        """Until the last one has ended."""
        programs, interval_s = self._settings.programs, self._settings.interval_ns / 1e9
        begin_s = self._looked_s = time.monotonic()
        latest_s = begin_s + len(programs) * interval_s + sum(each.alone_ns for each in programs) / 1e9 + END_S
        while len(self._jobs) < len(programs) or any(job.ended_s is None for job in self._jobs):
            if len(self._jobs) < len(programs) and time.monotonic() >= begin_s + len(self._jobs) * interval_s:
                self._arrive(programs[len(self._jobs)])
            for job in self._jobs:
                job.look()
            if time.monotonic() >= self._looked_s + LOOK_S:
                self._look()
            if time.monotonic() > latest_s:
                raise ProgramFailedError(f"programs have not ended after {time.monotonic() - begin_s:.0f} s")
            time.sleep(TICK_S)
        return self._jobs

    def _arrive(self, program: Program) -> None:
        at_s = time.monotonic()
        stack = self._stack.enter_context(contextlib.ExitStack())
        mib = self._mib or program.memory >> 20
        quota = {} if self._mib else {"memory_bytes": program.memory + CONTEXT_BYTES}
        session = ProcessSession(self._config, {program.name: {"weight": 1, **quota}}, None, stack)
        running = session.start(0, build("steps"), [str(mib)])
        stack.callback(running.stop)
        for row in rows_of(program, self._settings.seed):
            running.tell(" ".join(f"{ns / 1000:.3f}" for ns in row))
        running.end_input()
        self._jobs.append(_Arrived(program, session, running, at_s, stack))

    def _look(self) -> None:
        """What is wanted now was wanted since the last look."""
        with Connection(self._config.socket_path) as connection:
            vgpus = {vgpu["name"]: vgpu for vgpu in connection.ask("status")["vgpus"]}
        now_s = time.monotonic()
        wanted = [0.0] * self._settings.nr_gpus
        for job in self._jobs:
            if job.ended_s is None and (vgpu := vgpus.get(job.program.name)):
                device = int(vgpu["gpu_number"])
                if (
                    vgpu["clients"] and vgpu["demand"] is not None
                ):  # without a program it wants nothing: this one is about to be seen ended
                    job.demand = vgpu["demand"]
                if job.visited[-1:] != [device]:
                    job.visited.append(device)
                wanted[device] += job.wants
        self._over_s += (now_s - self._looked_s) * sum(each > 1 + _HAIR for each in wanted)
        self._beyond_s += (now_s - self._looked_s) * (sum(wanted) > self._settings.nr_gpus + _HAIR)
        self._looked_s = now_s

    def figures(self, of_alone_s: Sequence[float]) -> dict[str, float]:
        """After the run. `of_alone_s`: how long each takes alone."""
        seconds = max(job.ended_s or 0.0 for job in self._jobs) - self._jobs[0].at_s
        whole_s = seconds * self._settings.nr_gpus
        slowdowns = [
            ((job.ended_s or 0.0) - job.at_s) / alone_s for job, alone_s in zip(self._jobs, of_alone_s, strict=True)
        ]
        return {
            "overloaded": self._over_s / whole_s,
            "beyond": self._beyond_s / seconds,
            "utilisation": sum(job.used_ns for job in self._jobs) / 1e9 / whole_s,
            "mean_slowdown": fmean(slowdowns),
            "unharmed": fmean(each <= SLOWED for each in slowdowns),
            "jain": jain([1 / each for each in slowdowns]),
            "nr_moves": float(sum(len(list(pairwise(job.visited))) for job in self._jobs)),
            "seconds": seconds,
        }


def _all_settings(options: argparse.Namespace) -> list[tuple[int, HostSettings]]:
    """Each with the number of its order. A repetition has other orders, and other pauses."""
    programs = [
        replace(each, alone_ns=each.starts_ns + round(options.part * (each.alone_ns - each.starts_ns)))
        for each in PROGRAMS.values()
    ]
    return [
        (order, HostSettings(some[: options.programs], round(options.interval * 1e9), options.gpus, mode, seed=seed))
        for seed in range(options.repetitions)
        for order, some in enumerate(orders(programs, options.orders, seed), options.orders * seed)
        for mode in options.balance
    ]


def rows_of(program: Program, seed: int) -> Iterator[list[int]]:
    """Of each a pause and the lengths of its kernels, in ns, as the simulation has them; but for how long it takes to begin."""
    pause_ns, kernels = 0, list[int]()
    steps = program.steps(random.Random(f"{seed}/{program.name}"))
    next(steps)
    for step in steps:
        if isinstance(step, Sleep):
            pause_ns = step.duration_ns
        elif isinstance(step, Launch):
            kernels += step.kernels_ns
        elif isinstance(step, Wait):
            yield [pause_ns, *kernels]
            pause_ns, kernels = 0, []


def _measure(settings: HostSettings, options: argparse.Namespace) -> Record:
    plain = setting(options, REGION_BYTES)
    devices = tuple(str(number) for number in range(options.gpus))
    asked = {"vgpu": Entitlement(), "devices": devices, "balance": settings.balance, "fast_moves": True}
    with (
        daemon_config(OURS, replace(plain, daemon={**plain.daemon, **asked})) as config,
        daemon(config, None),
        contextlib.ExitStack() as stack,
    ):
        order = _Order(settings, config, stack, SOFT_MIB if options.device == "soft" else None)
        jobs = order.run()
    starts_ns = round(1e9 * fmean((job.began_s or 0.0) - job.at_s for job in jobs))
    twins = tuple(
        replace(each, starts_ns=starts_ns, alone_ns=each.alone_ns - each.starts_ns + starts_ns)
        for each in settings.programs
    )
    same = replace(settings, programs=twins)
    simulated = simulate_host(same).figures()
    of_alone_s = [alone_ns(each, same.seed, same.is_preemptive, same.slice_ns) / 1e9 for each in twins]
    return {
        "starts_s": round(starts_ns / 1e9, DIGITS),
        "real": {name: round(value, DIGITS) for name, value in order.figures(of_alone_s).items()},
        "simulated": {name: round(simulated[name] or 0.0, DIGITS) for name in FIGURES},
        "demands": [
            {"program": job.program.name, "own": round(_own_demand(job.program, same.seed), DIGITS), "said": job.demand}
            for job in jobs
        ],
    }


def _own_demand(program: Program, seed: int) -> float:
    """Kernels over kernels and pauses."""
    rows = list(rows_of(program, seed))
    kernels_ns = sum(sum(kernels) for _, *kernels in rows)
    return kernels_ns / (kernels_ns + sum(pause_ns for pause_ns, *_ in rows))


# What comes of it.


def _by_mode(document: Document) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records(document, KIND):
        found.setdefault(record["balance"], []).append(record)
    return found


def _told(name: str, value: float) -> str:
    if name in ("overloaded", "beyond", "utilisation", "unharmed"):
        return f"{value:.1%}"
    return f"{value:.1f}" if name in ("nr_moves", "seconds") else f"{value:.3f}"


def _known_demands(document: Document) -> list[tuple[float, float]]:
    """The program's own, and what the daemon said, where it said one."""
    return [
        (each["own"], each["said"])
        for record in records(document, KIND)
        for each in record["demands"]
        if each["said"] is not None
    ]


def _demands(document: Document) -> list[Sheet]:
    """By program, of all runs."""
    known: dict[str, list[tuple[float, float]]] = {}
    for record in records(document, KIND):
        for each in record["demands"]:
            if each["said"] is not None:
                known.setdefault(each["program"], []).append((each["own"], each["said"]))
    if not known:
        return []
    rows = [
        (
            program,
            f"{fmean(own for own, _ in pairs):.1%}",
            f"{fmean(said for _, said in pairs):.1%}",
            f"{100 * max(abs(said - own) for own, said in pairs):.1f}",
            str(len(pairs)),
        )
        for program, pairs in sorted(known.items())
    ]
    close = fmean(abs(said - own) <= CLOSE for own, said in _known_demands(document))
    notes = (f"At most {CLOSE:.0%} of a GPU off: {close:.0%} of all runs of programs.",)
    return [Sheet("Demand", ("program", "its own", "the daemon's", "farthest off, %", "runs"), tuple(rows), notes)]


def _finding(modes: Mapping[str, list[Record]]) -> str:
    means = [
        " and ".join(f"{fmean(run[side]['mean_slowdown'] for run in runs):.2f}" for runs in modes.values())
        for side in ("real", "simulated")
    ]
    return f"Programs take {means[0]} times as long as alone with balancing {' and '.join(modes)}; simulated {means[1]}"
