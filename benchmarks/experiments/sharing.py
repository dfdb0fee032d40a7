"""Guests that share the device: the same measurement under each policy, and what each program reaches alone. For `mmr` and its kin."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backend_host.entitlement import MAX_WEIGHT
from benchmarks import ratios
from benchmarks.build import NAMES
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Reporter, Subjects
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.stretch import Outcome, run_together
from benchmarks.systems import BURSTS, OURS
from benchmarks.workloads import SPIN, Workload, sized, spin, unit_of

ALONE_FRACTION = 0.5
"""Of the stretch, for each program alone."""

EDGE_FRACTION = 0.25
"""Of the stretch, for each of its edges."""

IDLE_TOGETHER = 1.1
"""Guests that get more than this done together, of what one does alone, leave the GPU to each other: each may get more than its part, and how
much more says nothing of fairness. They are judged by what the worst-off of them gets, and by how much all do."""

COMPARED: Subjects = {"alone": ("mixture",), "together": ("mixture", "system")}
"""What tells records of `compare` apart."""


@dataclass(frozen=True)
class Mixture:
    """What the guests run, and their weights. `label` tells it from others of the same document."""

    label: str
    weights: tuple[int, ...]
    workloads: tuple[Workload, ...]


def programs_of(text: str) -> list[str]:
    """Names of benchmark programs, for argparse."""
    names = text.split(",")
    for name in names:
        if name not in (*NAMES, SPIN):
            raise argparse.ArgumentTypeError(f"there is no program {name}; there are {', '.join(NAMES)} and {SPIN}")
    return names


def weights_of(text: str) -> tuple[int, ...]:
    """1:2:3, for argparse."""
    try:
        weights = tuple(map(int, text.split(":")))
    except ValueError:
        weights = (0,)
    if not all(1 <= weight <= MAX_WEIGHT for weight in weights):
        raise argparse.ArgumentTypeError(
            f"weights are whole numbers above 0, {MAX_WEIGHT} at most, with colons between, not {text!r}"
        )
    return weights


def mixture(program: str, options: argparse.Namespace) -> Mixture:
    """One program in all guests; of `spin` shorter lists of kernel lengths, queues and sleeps are repeated."""
    weights: tuple[int, ...] = options.weights
    if program != SPIN:
        return Mixture(program, weights, (sized(program, options.device),) * len(weights))
    kinds = [
        spin(
            options.kernel_us[index % len(options.kernel_us)],
            int(options.queue[index % len(options.queue)]),
            options.sleep_us[index % len(options.sleep_us)],
        )
        for index in range(len(weights))
    ]
    return Mixture("; ".join(dict.fromkeys(kind.label for kind in kinds)), weights, tuple(kinds))


def alone(workload: Workload, system: str, setting: Setting, stretch_s: float) -> Outcome:
    """The program with the device to itself. ProgramFailedError when it gets nothing done: nothing could be compared with that."""
    with open_session(system, setting, (1,), [workload.path()]) as session:
        outcome = run_together(session, [workload], stretch_s, stretch_s * EDGE_FRACTION)[0]
    if outcome.throughput <= 0:
        raise ProgramFailedError(f"{workload.label}: nothing was done in a window of {stretch_s:g} s")
    return outcome


def together(system: str, mixed: Mixture, setting: Setting, stretch_s: float) -> tuple[Outcome, ...]:
    """All guests at once."""
    programs = list(dict.fromkeys(workload.path() for workload in mixed.workloads))
    if system == BURSTS:
        system, setting = OURS, replace(setting, daemon={**setting.daemon, "quota": BURSTS})
    with open_session(system, setting, mixed.weights, programs) as session:
        return run_together(session, mixed.workloads, stretch_s, stretch_s * EDGE_FRACTION)


@dataclass(frozen=True)
class Baselines:
    """What each kind of program of one repetition reaches alone: natively, and as a guest. Measured when first asked for."""

    setting: Setting
    stretch_s: float
    native: dict[Workload, float] = field(default_factory=dict)
    guest: dict[Workload, float] = field(default_factory=dict)

    def measure(self, mixed: Mixture) -> None:
        """In two runs for each kind of program that is new."""
        for kind in mixed.workloads:
            if kind not in self.guest:
                self.native[kind] = alone(kind, NATIVE, self.setting, self.stretch_s).throughput
                self.guest[kind] = alone(kind, OURS, self.setting, self.stretch_s).throughput

    def record(self, mixed: Mixture, repetition: int) -> Record:
        """For the document."""
        kinds = [
            {"workload": kind.label, "native": self.native[kind], "guest": self.guest[kind]}
            for kind in dict.fromkeys(mixed.workloads)
        ]
        return {"kind": "alone", "mixture": mixed.label, "repetition": repetition, "programs": kinds}


def shares(mixed: Mixture, outcomes: Sequence[Outcome], baselines: Baselines) -> list[dict[str, Any]]:
    """One entry for each guest of a record."""
    return [
        share(weight, workload, outcome, baselines.guest[workload], baselines.native[workload])
        for weight, workload, outcome in zip(mixed.weights, mixed.workloads, outcomes, strict=True)
    ]


def share(
    weight: int, workload: Workload, outcome: Outcome, reached: float, reached_natively: float | None
) -> dict[str, Any]:
    """What one guest got of the device, beside what its program reaches alone."""
    return {
        "weight": weight,
        "workload": workload.label,
        "unit": unit_of(outcome.report),
        "throughput": outcome.throughput,
        "alone": reached,
        "alone_native": reached_natively,
        "charged_s": outcome.charged_s,
        "held_s": outcome.held_s,
        "nr_grants": outcome.nr_grants,
    }


class Attempts:
    """Runs under several systems. One that cannot be had here is told once and left out; a failed run costs itself alone."""

    def __init__(self, compared: Sequence[str], tell: Reporter) -> None:
        self._tell = tell
        self.systems = list(compared)

    def together(self, system: str, mixed: Mixture, setting: Setting, stretch_s: float) -> tuple[Outcome, ...] | None:
        """None when there is no outcome."""
        self._tell.doing(f"{mixed.label}: {system}")
        try:
            return together(system, mixed, setting, stretch_s)
        except NotMeasurableError as error:
            self.systems.remove(system)
            self._tell.refused(f"{system}: {error}")
        except ProgramFailedError as error:
            self._tell.failed(f"{mixed.label}, {system}: {error}")
        return None

    def under_each(
        self, mixed: Mixture, setting: Setting, stretch_s: float
    ) -> Iterator[tuple[str, tuple[Outcome, ...]]]:
        """Every system that can be had, with its outcomes."""
        for system in list(self.systems):
            outcomes = self.together(system, mixed, setting, stretch_s)
            if outcomes is not None:
                yield system, outcomes


def compare(
    mixtures: Sequence[Mixture], compared: Sequence[str], options: argparse.Namespace, setting: Setting, tell: Reporter
) -> Iterator[Record]:
    """For each repetition and mixture what is reached alone, then the mixture under each system."""
    attempts = Attempts(compared, tell)
    for repetition in range(options.repetitions):
        baselines = Baselines(setting, options.seconds * ALONE_FRACTION)
        for mixed in mixtures:
            tell.doing(f"{mixed.label}: alone")
            with tell.tolerating(f"{mixed.label}, alone"):
                baselines.measure(mixed)
                yield baselines.record(mixed, repetition)
                yield from _under_each(attempts, mixed, baselines, options, setting, repetition)


def _under_each(
    attempts: Attempts,
    mixed: Mixture,
    baselines: Baselines,
    options: argparse.Namespace,
    setting: Setting,
    repetition: int,
) -> Iterator[Record]:
    for system, outcomes in attempts.under_each(mixed, setting, options.seconds):
        yield {
            "kind": "together",
            "mixture": mixed.label,
            "system": system,
            "repetition": repetition,
            "window_s": options.seconds,
            "guests": shares(mixed, outcomes, baselines),
        }


@dataclass(frozen=True)
class Shared:
    """One record of `compare` with its ratios. `overhead` and completion times are against native runs where there were any."""

    record: Record

    def _each(self, key: str) -> list[float]:
        return [guest[key] for guest in self.record["guests"]]

    @property
    def weights(self) -> list[float]:
        return self._each("weight")

    @property
    def min_max_ratio(self) -> float:
        """The paper's: throughput over its fair part of what the program reaches alone, as a guest."""
        return ratios.throughput_min_max_ratio(self._each("throughput"), self._each("alone"), self.weights)

    @property
    def normalised(self) -> list[float]:
        """What each guest gets over its fair part of what its program reaches alone, as a guest."""
        return ratios.normalised_throughputs(self._each("throughput"), self._each("alone"), self.weights)

    @property
    def least(self) -> float:
        """What the guest that gets least gets, over its fair part."""
        return min(self.normalised)

    @property
    def together(self) -> float:
        """What all get done, each as a part of what its program reaches alone, as a guest."""
        return sum(part * weight for part, weight in zip(self.normalised, self.weights, strict=True)) / sum(
            self.weights
        )

    @property
    def charged_min_max_ratio(self) -> float | None:
        """Of what is charged for use and for holding, over the weight: policy and accounting without the programs.

        None natively, where nobody charges. Older measurements know of use alone.
        """
        used = self._each("charged_s")
        if None in used:
            return None
        held = [guest.get("held_s") or 0.0 for guest in self.record["guests"]]
        return ratios.min_max_ratio(
            [sum(paid) / weight for *paid, weight in zip(used, held, self.weights, strict=True)]
        )

    @property
    def reached_alone(self) -> list[float]:
        """Natively, or as a guest where an older measurement has no native one."""
        return [guest["alone_native"] or guest["alone"] for guest in self.record["guests"]]

    @property
    def overhead(self) -> float:
        """The paper's aggregated overhead."""
        return ratios.aggregated_overhead(self._each("throughput"), self.reached_alone)

    def completion_times(self, work_s: float) -> list[float]:
        """Of each guest, for what takes it `work_s` alone."""
        return ratios.completion_times(self._each("throughput"), self.reached_alone, work_s)


def shared(document: Document) -> dict[tuple[str, str], list[Shared]]:
    """All repetitions of each mixture and system, in the order in which they were measured."""
    found: dict[tuple[str, str], list[Shared]] = {}
    for record in records(document, "together"):
        found.setdefault((record["mixture"], record["system"]), []).append(Shared(record))
    return found


def nr_compared(nr_mixtures: int, options: argparse.Namespace, compared: Sequence[str]) -> int:
    """How many records `compare` makes."""
    return int(options.repetitions * nr_mixtures * (1 + len(compared)))
