"""What sharing itself costs (figures 11, 18 and 19 of the Gemini paper): programs alone, more and more clients of one program, and five
programs beside each other.

alone: each benchmark program natively, with slices and with turns by bursts, nobody beside it (beside_native.py).
clients: one, two, four and eight clients that run one program, each with a request of its equal part. All together stand beside one alone.
programs: five programs at once, under the policy `elastic` and by the driver's own time slices. What each reaches stands beside what it reaches
alone natively; the sum of these parts is how much faster all are done than one after the other.

    fairgv-bench clients --program matrixMul --plot clients.png

Wrong when guests, workers and the device's threads have no core each: eight clients want eight.
"""

import argparse
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.build import NAMES
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, positive, setting
from benchmarks.experiments import beside_native
from benchmarks.experiments.sharing import alone, programs_of
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import run_together
from benchmarks.style import MORE, at_least, due, head
from benchmarks.workloads import Workload, sized, unit_of
from scheduler.elastic import Elastic

PARTS = ("alone", "clients", "programs")
NR_CLIENTS = (1, 2, 4, 8)
FILLING = ("matrixMul", "lennardJones")
"""A program that keeps the GPU busy, and one whose host works between its kernels."""
FIVE = ("lennardJones", "langevin", "streamcluster", "lavaMD", "srad_v1")
"""Those for the paper's NAMD and SOP-GPU, and three of its Rodinia."""
EDGE_FRACTION = 0.25
"""Of the window, for each of its edges."""
ALONE_FRACTION = 0.5
"""Of the window, for each of the five alone."""
ALONE_S = 1.0
CLIENTS, PROGRAMS = "clients", "programs"


def loss(record: Record, one: Record) -> float:
    """What the clients of one record get done less than one client alone, as a part of that."""
    return 1.0 - float(sum(record["throughputs"]) / sum(one["throughputs"]))


def faster(record: Record) -> float:
    """How much faster programs are done together than one after the other: the sum of the parts that they reach of what they reach alone."""
    return float(sum(each["throughput"] / each["alone"] for each in record["programs"]))


def losses(document: Document) -> dict[str, dict[int, list[float]]]:
    """By program and number of clients, beside one client of the same repetition."""
    found: dict[str, dict[int, list[float]]] = {}
    ones = {
        (each["program"], each["repetition"]): each for each in records(document, CLIENTS) if each["nr_clients"] == 1
    }
    for record in records(document, CLIENTS):
        one = ones.get((record["program"], record["repetition"]))
        if one is not None and record["nr_clients"] > 1:
            found.setdefault(record["program"], {}).setdefault(record["nr_clients"], []).append(loss(record, one))
    return found


def over_serial(document: Document) -> dict[str, list[float]]:
    """Time of all programs together over that of one after the other, by system."""
    found: dict[str, list[float]] = {}
    for record in records(document, PROGRAMS):
        found.setdefault(record["system"], []).append(1.0 / faster(record))
    return found


class Clients(Experiment):
    """`fairgv-bench clients`."""

    name = "clients"
    summary = (
        "what sharing costs: programs alone, one to eight clients, five over serial (Gemini's Figures 11, 18 and 19)"
    )
    guest_kinds = ("process", "vm")
    seconds = 6.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {
        beside_native.KIND: ("program",),
        CLIENTS: ("program", "nr_clients"),
        PROGRAMS: ("system",),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which parts, and programs."""
        parser.add_argument(
            "--parts",
            type=names_of(PARTS),
            default=list(PARTS),
            metavar="NAME,...",
            help=f"of {', '.join(PARTS)} (all)",
        )
        parser.add_argument(
            "--program",
            type=programs_of,
            default=list(FILLING),
            metavar="NAME,...",
            help=f"of clients (default {','.join(FILLING)})",
        )
        parser.add_argument(
            "--alone",
            type=names_of(NAMES),
            default=list(NAMES),
            metavar="NAME,...",
            help="that run alone (default all)",
        )
        parser.add_argument(
            "--alone-seconds",
            type=positive,
            default=ALONE_S,
            metavar="S",
            help="of each run alone (default %(default)g)",
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each program alone, one for each number of clients, one for each system."""
        nr = {"alone": len(options.alone), "clients": len(NR_CLIENTS) * len(options.program), "programs": 2}
        return int(options.repetitions * sum(nr[part] for part in set(options.parts)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each number of clients has a daemon of its own."""
        settings = setting(options)
        for repetition in range(options.repetitions):
            if "alone" in options.parts:
                workloads = [sized(program, options.device) for program in options.alone]
                yield from beside_native.measured(workloads, settings, options.alone_seconds, repetition, reporter)
            if "clients" in options.parts:
                for program in options.program:
                    workload = sized(program, options.device)
                    yield from _clients(workload, settings, options.seconds, repetition, reporter)
            if "programs" in options.parts:
                workloads = [sized(program, options.device) for program in FIVE]
                yield from _programs(workloads, settings, options.seconds, repetition, reporter)

    def sheets(self, document: Document) -> list[Sheet]:
        """Of all parts."""
        made = (beside_native.sheet(document), _clients_sheet(document), _programs_sheet(document))
        return [sheet for sheet in made if sheet is not None]

    def figures(self, document: Document) -> dict[str, float]:
        """Times alone over native; the greatest loss of eight clients; time over serial under each system, and of one over the other."""
        found = beside_native.figures(document)
        eights = [fmean(each[NR_CLIENTS[-1]]) for each in losses(document).values() if NR_CLIENTS[-1] in each]
        if eights:
            found["clients/loss of eight"] = max(eights)
        serial = {system: fmean(times) for system, times in over_serial(document).items()}
        found |= {f"programs/{system}/over serial": times for system, times in serial.items()}
        if Elastic.name in serial and NATIVE in serial:
            found["programs/over the driver's"] = serial[Elastic.name] / serial[NATIVE]
        return found

    def findings(self, document: Document) -> list[Finding]:
        """Of all three figures."""
        found = [
            Finding("gemini_clients", program, fmean(each[NR_CLIENTS[-1]]))
            for program, each in losses(document).items()
            if NR_CLIENTS[-1] in each
        ]
        if times := over_serial(document).get(Elastic.name):
            found.append(Finding("gemini_programs", ", ".join(FIVE), fmean(times)))
        if over_native := beside_native.ratios(document):
            program, slowest = beside_native.slowest(over_native)
            mean = beside_native.mean(over_native)
            found.append(Finding("gemini_alone", f"{program}; {mean:.3f} in the geometric mean", slowest))
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """What clients get done together, of what one does alone."""
        found = losses(document)
        if not found:
            raise NotMeasurableError("no clients were measured")
        axes = figure.subplots()
        for program, each in found.items():
            numbers = [1, *each]
            axes.plot(numbers, [1.0, *(1.0 - fmean(parts) for parts in each.values())], "o-", label=program)
        due(axes, "as much as one alone", y=1)
        axes.set(xlabel="programs at once, each with an equal request", ylabel=f"done together\n{MORE}")
        axes.set_xticks(NR_CLIENTS)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left")
        least, most = (
            pick(1.0 - fmean(parts) for each in found.values() for parts in each.values()) for pick in (min, max)
        )
        finding = (
            f"Programs that share the GPU get {at_least(least)} to {most:.2f} times as much done together as one alone"
        )
        head(figure, finding, document, "Means of all repetitions.")


def _clients(
    workload: Workload, settings: Setting, seconds: float, repetition: int, tell: Reporter
) -> Iterator[Record]:
    for nr in NR_CLIENTS:
        what = f"{workload.label}: {nr} clients"
        tell.doing(what)
        with (
            tell.tolerating(what),
            open_session(Elastic.name, settings, (1,) * nr, [workload.path()]) as session,
        ):
            for guest in range(nr):
                session.set_bounds(guest, 100 / nr, 100)
            outcomes = run_together(session, [workload] * nr, seconds, seconds * EDGE_FRACTION)
            throughputs = [outcome.throughput for outcome in outcomes]
            if sum(throughputs) <= 0:
                raise ProgramFailedError(f"nothing was done in a window of {seconds:g} s")
            yield {
                "kind": CLIENTS,
                "program": workload.label,
                "nr_clients": nr,
                "repetition": repetition,
                "window_s": seconds,
                "unit": unit_of(outcomes[0].report),
                "throughputs": throughputs,
            }


def _programs(
    workloads: Sequence[Workload], settings: Setting, seconds: float, repetition: int, tell: Reporter
) -> Iterator[Record]:
    with tell.tolerating("five programs, alone"):
        reached = []
        for workload in workloads:
            tell.doing(f"{workload.label}: alone, natively")
            reached.append(alone(workload, NATIVE, settings, seconds * ALONE_FRACTION).throughput)
        for system in (Elastic.name, NATIVE):
            what = f"five programs: {system}"
            tell.doing(what)
            with tell.tolerating(what):
                paths = [workload.path() for workload in workloads]
                with open_session(system, settings, (1,) * len(workloads), paths) as session:
                    outcomes = run_together(session, workloads, seconds, seconds * EDGE_FRACTION)
                yield {
                    "kind": PROGRAMS,
                    "system": system,
                    "repetition": repetition,
                    "window_s": seconds,
                    "programs": [
                        {
                            "program": workload.label,
                            "unit": unit_of(outcome.report),
                            "throughput": outcome.throughput,
                            "alone": each,
                        }
                        for workload, outcome, each in zip(workloads, outcomes, reached, strict=True)
                    ],
                }


def _clients_sheet(document: Document) -> Sheet | None:
    rows = [
        (program, f"{nr}", f"{100 / nr:g}", estimate([100 * part for part in parts]).text(1))
        for program, each in losses(document).items()
        for nr, parts in each.items()
    ]
    if not rows:
        return None
    notes = ("Loss: what all get done together less than one client alone. Gemini's Figure 19: 6 % at eight.",)
    return Sheet("Clients of one program", ("program", "clients", "request %", "loss %"), tuple(rows), notes)


def _programs_sheet(document: Document) -> Sheet | None:
    found = records(document, PROGRAMS)
    if not found:
        return None
    serial = over_serial(document)
    rows = [
        (
            record["system"],
            " ".join(f"{each['throughput'] / each['alone']:.2f}" for each in record["programs"]),
            estimate(serial[record["system"]]).text(2),
        )
        for record in found
        if record["repetition"] == 0
    ]
    notes = (
        f"{', '.join(each['program'] for each in found[0]['programs'])}: what each reaches of what it does alone, natively.",
        "Over serial: the time of all together over one after the other. Gemini's Figure 11: 0.70.",
    )
    return Sheet("Five programs beside each other", ("system", "of alone", "over serial"), tuple(rows), notes)
