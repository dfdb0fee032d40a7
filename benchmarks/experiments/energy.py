"""Energy of programs that are joined on one GPU, beside placement alone (figure 1 and table 2 of the DCUDA paper).

live: by NVML's counters, on two GPUs. First what the simulator's model goes by: GPUs without contexts, with contexts and nothing to do, at
work. Then light programs, which pause four fifths of their time: one; two that stay where they were placed; two that `compact` joins. A stretch
begins when they are where they are to be.

pair: two such programs in the simulation. orders: twenty programs of half a minute come one after the other, on four simulated GPUs, with
placement alone and with `compact`. Watts are those that were measured, where the same run did.

    fairgv-bench energy --device cuda --minutes 3.5 --plot energy.png
    fairgv-bench energy --parts pair,orders --orders 8

Wrong when others use the GPUs. softgpu has no power: there the simulation alone says something.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.devices import device_name, device_uuids
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number, positives, setting
from benchmarks.experiments import balancing
from benchmarks.experiments.joined import (
    APART,
    BUSY,
    CASES,
    EMPTY,
    IDLE,
    JOINED,
    NR_GPUS,
    ONE,
    Case,
    Load,
    measure_case,
)
from benchmarks.joules import Joules
from benchmarks.paper import Finding
from benchmarks.sheet import Sheet
from benchmarks.style import GREY, LESS, due, head
from scheduler.balance import COMPACT, OFF
from scheduler.simulator.host.programs import GIB, Program
from scheduler.simulator.host.settings import HostSettings, Power

LIVE, PAIR, ORDERS = PARTS = ("live", "pair", "orders")
CLAIMS = {7.0: "dcuda_energy_light", 5.0: "dcuda_energy_medium", 3.0: "dcuda_energy_heavy"}
PAPERS = {7.0: 70449 / 81201, 5.0: 70921 / 74935, 3.0: 68771 / 70611}
"""Its table 2: J with moves over those without, at one program in so many s."""
LIGHT_DEMAND = 0.2
LEAST_USED = 0.5
"""A program without pauses that uses less of its GPU was kept from it, and its watts are taken as if it had used so much."""
PAIR_NS = 30_000_000_000


class Energy(Experiment):
    """`fairgv-bench energy`."""

    name = "energy"
    summary = "energy of programs that are joined on one GPU, by NVML and in simulation (DCUDA's Figure 1 and Table 2)"
    seconds = 15.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {
        LIVE: ("case",),
        PAIR: ("balance",),
        balancing.KIND: ("interval_s", "balance", "order", "gpus"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which parts, and how much is simulated."""
        told = ",".join(f"{each:g}" for each in balancing.ARRIVALS_S)
        parser.add_argument(
            "--parts",
            type=names_of(PARTS),
            default=list(PARTS),
            metavar="NAME,...",
            help=f"of {', '.join(PARTS)} (all)",
        )
        parser.add_argument(
            "--arrivals",
            type=positives,
            default=list(balancing.ARRIVALS_S),
            metavar="S,...",
            help=f"of orders: one program in so many s ({told})",
        )
        parser.add_argument(
            "--orders", type=natural_number, default=4, metavar="N", help="of the programs (default %(default)d)"
        )
        parser.add_argument(
            "--gpus", type=natural_number, default=4, metavar="N", help="of orders (default %(default)d)"
        )

    def check(self, options: argparse.Namespace) -> None:
        """Whether there is something to ask for energy. Alone, the live part is refused here, and nothing is measured."""
        options.balance = [OFF, COMPACT]
        options.why_not = why_not(options.device) if LIVE in options.parts else ""
        if options.why_not and options.parts == [LIVE]:
            raise NotMeasurableError(options.why_not)

    def device(self, options: argparse.Namespace) -> str:
        """None is used where nothing is live."""
        return device_name(options.device) if _is_live(options) else balancing.SIMULATOR

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each case, mode, and order."""
        live = options.repetitions * len(CASES) if _is_live(options) else 0
        orders = len(balancing.all_settings(options)) if ORDERS in options.parts else 0
        return live + 2 * (PAIR in options.parts) + orders

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """The live part first, as its watts and its demand are what is simulated with."""
        live: list[Record] = []
        if options.why_not:
            reporter.refused(options.why_not)
        if _is_live(options):
            for record in _live(options, reporter):
                live.append(record)
                yield record
        power, demand = watts_of(live) or Power(), demand_of(live) or LIGHT_DEMAND
        watts = [power.idle, power.awake, power.busy]
        if PAIR in options.parts:
            reporter.doing("two light programs, in simulation")
            for _, settings, report in balancing.simulated_all(list(enumerate(_pair(demand, power)))):
                yield {
                    "kind": PAIR,
                    "balance": settings.balance,
                    "demand": demand,
                    "watts": watts,
                    "joules": round(report.joules, 1),
                    "mean_slowdown": round(report.mean_slowdown, balancing.DIGITS),
                    "nr_moves": len(report.moves),
                }
        if ORDERS in options.parts:
            reporter.doing(f"{options.orders} orders, in simulation")
            found = [(order, replace(settings, power=power)) for order, settings in balancing.all_settings(options)]
            for order, settings, report in balancing.simulated_all(found):
                yield {**balancing.record_of(order, settings, report), "watts": watts}

    def sheets(self, document: Document) -> list[Sheet]:
        """Live, and in simulation."""
        return [sheet for sheet in (_live_sheet(document), _simulated_sheet(document)) if sheet.rows]

    def findings(self, document: Document) -> list[Finding]:
        """Of the orders each load's; of the live part what stands beside the light one, and figure 1."""
        found = [
            Finding(CLAIMS[interval_s], f"in simulation, {len(some)} orders", balancing.over(some, "joules"))
            for interval_s in balancing.intervals(document)
            if interval_s in CLAIMS and (some := balancing.pairs(document, interval_s, COMPACT))
        ]
        if (ratio := joined_over_apart(document)) is not None:
            found.append(Finding(CLAIMS[7.0], "two light programs on two GPUs, by NVML", ratio))
        if (ratio := two_over_one(document)) is not None:
            found.append(Finding("dcuda_together", "by NVML", ratio))
        return found

    def figures(self, document: Document) -> dict[str, float]:
        """Energy over that of placement alone; watts; work that is done joined, over that apart."""
        found = {
            f"{interval_s:g} s/energy": balancing.over(some, "joules")
            for interval_s in balancing.intervals(document)
            if (some := balancing.pairs(document, interval_s, COMPACT))
        }
        if (ratio := pair_over_apart(document)) is not None:
            found["pair/energy"] = ratio
        if (ratio := joined_over_apart(document)) is not None:
            found["live/energy"] = ratio
            apart, joined = (_mean(document, case, _passes_a_second) for case in (APART, JOINED))
            assert apart is not None
            assert joined is not None
            found["live/work"] = joined / apart
        for case in (EMPTY, IDLE, BUSY):
            if (watts := _mean(document, case, _watts)) is not None:
                found[f"watts/{case.name}"] = watts / NR_GPUS
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Watts of both GPUs, case by case, and table 2."""
        live, loads = bool(records(document, LIVE)), _loads(document)
        if not live and not loads:
            raise NotMeasurableError("nothing was measured that a plot has")
        places = figure.subplots(1, live + bool(loads), squeeze=False)[0]
        if live:
            _draw_live(document, places[0])
        if loads:
            _draw_loads(loads, places[-1])
        notes = ["Light programs pause four fifths of their time."] if live else []
        notes += [f"The simulation goes by {_told_power(document)}."] if loads else []
        head(figure, _told(document), document, *notes)


def _live(options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
    with Joules(device_uuids()[:NR_GPUS]) as meter:
        for repetition in range(options.repetitions):
            for case in CASES:
                reporter.doing(case.name)
                with reporter.tolerating(case.name):
                    found = measure_case(case, Load(), setting(options), meter, options.seconds)
                    yield {"kind": LIVE, "case": case.name, "repetition": repetition, **found}


def _is_live(options: argparse.Namespace) -> bool:
    return LIVE in options.parts and not options.why_not


def why_not(device: str) -> str:
    """Why nothing can be measured live; empty: it can."""
    if device == "soft":
        return "energy of programs is not measured here: softgpu has no power, and the simulation alone says something"
    try:
        uuids = device_uuids()
        if len(uuids) < NR_GPUS:
            return f"energy of programs is not measured here: that takes {NR_GPUS} GPUs, and there is {len(uuids)}"
        with Joules(uuids[:NR_GPUS]):
            return ""
    except NotMeasurableError as error:
        return f"energy of programs is not measured here: {error}"


# What comes of it.


def watts_of(live: Sequence[Record]) -> Power | None:
    """
    Of one GPU, for the model; None where not all three cases were measured, or watts do not rise. Programs that never pause leave a GPU idle
    between two requests: the third is as if they did not.
    """
    found = [[_watts(each) / NR_GPUS for each in live if each["case"] == case.name] for case in (EMPTY, IDLE, BUSY)]
    if not all(found):
        return None
    idle, awake, busy = map(fmean, found)
    used = fmean(part for each in live if each["case"] == BUSY.name for part in each["used"])
    watts = [round(each, 1) for each in (idle, awake, awake + (busy - awake) / max(used, LEAST_USED))]
    return Power(*watts) if watts == sorted(watts) else None


def demand_of(live: Sequence[Record]) -> float | None:
    """Of a light program: the part of the time for which two of them used a GPU each."""
    used = [part for each in live if each["case"] == APART.name for part in each["used"]]
    return round(fmean(used), 3) if used else None


def reckoned(record: Record, power: Power) -> float:
    """What the model says of a case, in J."""
    there = set(record["gpus"])
    idle_w = power.idle * (NR_GPUS - len(there)) + power.awake * len(there)
    return float(record["seconds"] * (idle_w + (power.busy - power.awake) * sum(record["used"])))


def joined_over_apart(document: Document) -> float | None:
    """J for each pass of two light programs, of both GPUs."""
    return _ratio(*(_mean(document, case, _joules_a_pass) for case in (JOINED, APART)))


def two_over_one(document: Document) -> float | None:
    """Watts of the one GPU that has two light programs, over those with one."""
    return _ratio(*(_mean(document, case, _watts_there) for case in (JOINED, ONE)))


def pair_over_apart(document: Document) -> float | None:
    """The same of both GPUs, in simulation."""
    joules = {record["balance"]: record["joules"] for record in records(document, PAIR)}
    return _ratio(joules.get(COMPACT), joules.get(OFF))


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _mean(document: Document, case: Case, figure: Any) -> float | None:
    found = [figure(record) for record in records(document, LIVE) if record["case"] == case.name]
    return fmean(found) if found else None


def _watts(record: Record) -> float:
    return float(sum(record["joules"]) / record["seconds"])


def _watts_there(record: Record) -> float:
    return float(sum(record["joules"][number] for number in set(record["gpus"])) / record["seconds"])


def _joules_a_pass(record: Record) -> float:
    return float(sum(record["joules"]) / max(1, record["passes"]))


def _passes_a_second(record: Record) -> float:
    return float(record["passes"] / record["seconds"])


def _pair(demand: float, power: Power) -> list[HostSettings]:
    light = Program("light", demand, PAIR_NS, GIB)
    two = (light, replace(light, name="light too"))
    return [
        HostSettings(two, 1_000_000, NR_GPUS, mode, power=power)  # they come at once
        for mode in (OFF, COMPACT)
    ]


# What is shown.


def _live_sheet(document: Document) -> Sheet:
    power, rows = watts_of(records(document, LIVE)), []
    for case in CASES:
        for record in (each for each in records(document, LIVE) if each["case"] == case.name):
            rows.append(
                (
                    case.name,
                    " ".join(map(str, record["gpus"])) or "-",
                    *(f"{joules / record['seconds']:.1f}" for joules in record["joules"]),
                    f"{_watts(record):.1f}",
                    f"{reckoned(record, power) / record['seconds']:.1f}" if power else "-",
                    f"{100 * fmean(record['used']):.1f} %" if record["used"] else "-",
                    f"{_passes_a_second(record):.0f}" if record["passes"] else "-",
                    f"{1000 * _joules_a_pass(record):.1f}" if record["passes"] else "-",
                )
            )
    notes = ["On: the GPUs of the programs. Model: of its three watts, the first three rows."]
    if (ratio := joined_over_apart(document)) is not None:
        notes.append(f"A pass of two light programs takes {ratio:.3f} times the energy when they are joined.")
    columns = ("what", "on", "GPU 0, W", "GPU 1, W", "both, W", "model, W", "used", "passes/s", "mJ a pass")
    return Sheet("Energy by NVML", columns, tuple(rows), tuple(notes))


def _simulated_sheet(document: Document) -> Sheet:
    rows = []
    if (ratio := pair_over_apart(document)) is not None:
        two = {record["balance"]: record for record in records(document, PAIR)}
        rows.append(_simulated_row("two light programs at once, two GPUs", [(two[OFF], two[COMPACT])], ratio))
    for interval_s in balancing.intervals(document):
        if some := balancing.pairs(document, interval_s, COMPACT):
            what = f"one program in {interval_s:g} s, {some[0][0]['gpus']} GPUs"
            rows.append(_simulated_row(what, some, balancing.over(some, "joules")))
    columns = ("load", "orders", "off, kJ", "compact, kJ", "over off", "time over alone, off", "compact", "moves")
    notes = (f"Means over orders, by {_told_power(document)}.",) if rows else ()
    return Sheet("Energy in simulation", columns, tuple(rows), notes)


def _simulated_row(what: str, some: Sequence[tuple[Record, Record]], ratio: float) -> tuple[str, ...]:
    kilojoules = (f"{fmean(pair[place]['joules'] for pair in some) / 1000:.1f}" for place in (0, 1))
    times = (f"{fmean(pair[place]['mean_slowdown'] for pair in some):.3f}" for place in (0, 1))
    moves = f"{fmean(after['nr_moves'] for _, after in some):.1f}"
    return (what, str(len(some)), *kilojoules, f"{ratio:.3f}", *times, moves)


def _told_power(document: Document) -> str:
    idle, awake, busy = next(record["watts"] for record in document["records"] if "watts" in record)
    whose = "measured here" if watts_of(records(document, LIVE)) else "as fairgv-sim has them"
    return f"a model of {idle:g} W for a GPU without contexts, {awake:g} with idle ones, {busy:g} at work, {whose}"


def _loads(document: Document) -> Mapping[float, float]:
    """Energy over that of placement alone, by the interval in s."""
    found = {each: balancing.pairs(document, each, COMPACT) for each in balancing.intervals(document)}
    return {interval_s: balancing.over(some, "joules") for interval_s, some in found.items() if some}


def _draw_live(document: Document, axes: Any) -> None:
    found = {case.name: [each for each in records(document, LIVE) if each["case"] == case.name] for case in CASES}
    found = {name: some for name, some in found.items() if some}
    below = [0.0] * len(found)
    for gpu in range(NR_GPUS):
        watts = [fmean(each["joules"][gpu] / each["seconds"] for each in some) for some in found.values()]
        axes.barh(list(found), watts, left=below, height=0.6, label=f"GPU {gpu}")
        below = [low + more for low, more in zip(below, watts, strict=True)]
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"W {LESS}")
    axes.legend(loc="lower right")


def _draw_loads(loads: Mapping[float, float], axes: Any) -> None:
    places = range(len(loads))
    axes.bar(places, list(loads.values()), width=0.5, label="in simulation")
    papers = [(place, PAPERS[each]) for place, each in enumerate(loads) if each in PAPERS]
    axes.plot(*zip(*papers, strict=True), "D", color=GREY, label="DCUDA's") if papers else None
    axes.set_xticks(list(places), [f"{each:g} s" for each in loads])
    axes.set_xlabel("one program comes in")
    axes.set_ylabel(f"energy over placement alone\n{LESS}")
    axes.set_ylim(0, 1.35)
    due(axes, "as much", y=1)
    axes.legend(loc="upper center", ncols=3, columnspacing=1)


def _told(document: Document) -> str:
    if (ratio := joined_over_apart(document)) is not None:
        return f"Two light programs take {_less(ratio)} energy on one GPU than on two"
    if loads := _loads(document):
        interval_s = max(loads)
        return f"GPUs take {_less(loads[interval_s])} energy where programs are joined, with one program in {interval_s:g} s"
    return "Watts of GPUs, by what they do"


def _less(ratio: float) -> str:
    return f"{100 * abs(1 - ratio):.1f} % {'less' if ratio <= 1 else 'more'}"
