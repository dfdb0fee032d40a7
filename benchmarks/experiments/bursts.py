"""Turns of fixed lengths beside turns by bursts (figures 14 to 17 of the Gemini paper): how long requests take.

Three servers answer one request after the other, with a pause behind each: rows of kernels, a small network, or models that find objects
(servers.py). Settings follow each other: the device's slice, turns of given lengths, and `quota = bursts` with the device's slice. A turn as
long as the slice is measured beside it: how far the two lie apart is what chance does. Pauses are random, exponentially distributed: with fixed
ones requests fall into step, and how they do decides more than turns.

    fairgv-bench bursts --repetitions 6 --plot bursts.png
    fairgv-bench bursts --servers detection --batch 4,10,1

Wrong when guests, workers and the device's threads have no core each. Requests of networks and models wait for the host, too: their useful
time is what they would have taken alone, not GPU time.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, amounts, natural_numbers, setting
from benchmarks.experiments.servers import KERNELS, KINDS, NR_SERVERS, Server, check, pause_ms, programs, servers
from benchmarks.experiments.shares_over_time import name_of
from benchmarks.guests import Session, open_guests
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome, run_together
from benchmarks.style import LESS, head
from scheduler.elastic import Elastic

TURNS_MS = (6.0, 10.0, 30.0, 40.0, 60.0, 80.0, 100.0, 250.0)
LEAST_MS, MOST_MS = 1.0, 1000.0
"""Of a turn: the daemon takes no shorter slice, and with longer ones hardly a turn ends in a window."""
EDGE_FRACTION = 0.25
"""Of the window, for each of its edges."""
SLICE, BURSTS = "slice", "bursts"
KIND = "turns"
REQUEST_TIME, CHOSEN = "request time over best", "turn over best"
TURNS, OVERUSE = "turns of a request", "overuse of a turn"
GEMINI = "Gemini's Figure 15: turns by bursts of 35.8, 63.8 and 78.0 ms."


@dataclass(frozen=True)
class Way:
    """How long turns last: `name` for tables, `daemon` the settings by their names in `Config`."""

    name: str
    daemon: Mapping[str, object]


def ways(turns_ms: Sequence[float]) -> list[Way]:
    """In the order in which they are measured."""
    fixed = [Way(f"{each:g} ms", {"quota": "slice", "slice_ns": round(each * 1e6)}) for each in turns_ms]
    return [Way(SLICE, {"quota": "slice"}), *fixed, Way(BURSTS, {"quota": "bursts"})]


def turn_lengths(text: str) -> list[float]:
    """Comma-separated lengths in ms, each once, for argparse."""
    found = amounts(text)
    for each in found:
        if not LEAST_MS <= each <= MOST_MS:
            raise argparse.ArgumentTypeError(f"a turn lasts from {LEAST_MS:g} to {MOST_MS:g} ms, not {each:g}")
    return list(dict.fromkeys(found))


def request_ms(program: Record) -> float:
    """The mean time of a request, from its begin to its end."""
    return float(program["request_ms"])


def turns_per_request(program: Record) -> float:
    """Both are those of the whole window."""
    return float(program["nr_turns"] / program["nr_requests"])


def overuse_ms(program: Record) -> float:
    """What a turn went on beyond its end while others waited, in the mean: overuse is that of what counts, turns are those of the window."""
    nr_turns = program["nr_turns"] * program["counted_s"] / program["window_s"]
    return float(1000 * program["overuse_s"] / nr_turns)


def mean_request_ms(record: Record) -> float:
    """Of the three programs; each counts the same."""
    return fmean(map(request_ms, record["programs"]))


def useful(record: Record) -> float:
    """The part of the window that what was done takes alone."""
    return float(sum(each["useful_s"] / each["counted_s"] for each in record["programs"]))


def by_servers(document: Document) -> dict[str, Document]:
    """What was measured with each kind of servers, apart."""
    kinds = dict.fromkeys(record["servers"] for record in records(document, KIND))
    return {
        kind: {**document, "records": [each for each in records(document, KIND) if each["servers"] == kind]}
        for kind in kinds
    }


def by_way(document: Document) -> dict[str, list[Record]]:
    """All repetitions of each setting."""
    found: dict[str, list[Record]] = {}
    for record in records(document, KIND):
        found.setdefault(record["way"], []).append(record)
    return found


def over_slice(document: Document) -> dict[str, list[float]]:
    """Mean request times over that of the slice in the same repetition, by setting; without those that have none beside them."""
    slices = {record["repetition"]: mean_request_ms(record) for record in by_way(document).get(SLICE, ())}
    found: dict[str, list[float]] = {}
    for way, runs in by_way(document).items():
        quotients = [
            mean_request_ms(run) / slices[run["repetition"]]
            for run in runs
            if way != SLICE and run["repetition"] in slices
        ]
        if quotients:
            found[way] = quotients
    return found


def best_fixed(document: Document, program: int | None = None) -> str | None:
    """The setting without bursts whose requests take the least time: of one program, or of all three. None: there is none."""
    times = {
        way: fmean(mean_request_ms(run) if program is None else request_ms(run["programs"][program]) for run in runs)
        for way, runs in by_way(document).items()
        if way != BURSTS
    }
    return min(times, key=lambda way: times[way], default=None)


class Bursts(Experiment):
    """`fairgv-bench bursts`."""

    name = "bursts"
    summary = "turns by bursts beside turns of fixed lengths: how long requests take (Gemini's Figures 14 to 17)"
    guest_kinds = ("process", "vm")
    seconds = 10.0
    repetitions = 2
    subjects: ClassVar[Subjects] = {KIND: ("servers", "way")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which servers, and which lengths."""
        parser.add_argument(
            "--servers", choices=KINDS, default=KERNELS, help="what answers requests (default %(default)s)"
        )
        parser.add_argument(
            "--batch",
            type=natural_numbers,
            metavar="N,N,N",
            help="images of a request of each server, which is how long it takes",
        )
        parser.add_argument(
            "--turns-ms",
            type=turn_lengths,
            default=list(TURNS_MS),
            metavar="MS,...",
            help=f"fixed lengths of turns (default {_words(TURNS_MS, ',')})",
        )

    def check(self, options: argparse.Namespace) -> None:
        """Servers may need what is not here."""
        check(options.servers, options.device, options.guests, options.batch)

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each setting."""
        return int(options.repetitions * len(ways(options.turns_ms)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each setting has a daemon of its own; guests stay."""
        found = programs(options.servers, options.device, options.batch)
        with open_guests(Elastic.name, setting(options), (1,) * NR_SERVERS, [found[0].path()]) as guests:
            reporter.doing("requests alone")
            measured = servers(options.servers, guests, found, options.seconds)
            for repetition in range(options.repetitions):
                for way in ways(options.turns_ms):
                    what = f"turns: {way.name}"
                    reporter.doing(what)
                    with reporter.tolerating(what), guests.session(**way.daemon) as session:
                        names = {"kind": KIND, "servers": options.servers, "way": way.name, "repetition": repetition}
                        yield names | _window(session, measured, options.seconds, repetition)

    def sheets(self, document: Document) -> list[Sheet]:
        """For each kind of servers each setting, what turns went on beyond their ends, and what bursts chose."""
        return [
            sheet
            for kind, mine in by_servers(document).items()
            for sheet in (
                _settings_sheet(kind, mine),
                _overuse_sheet(kind, mine),
                *([_bursts_sheet(kind, mine)] if BURSTS in by_way(mine) else []),
            )
        ]

    def figures(self, document: Document) -> dict[str, float]:
        """For each kind of servers, see `_figures`."""
        return {
            f"{kind}/{name}": figure
            for kind, mine in by_servers(document).items()
            for name, figure in _figures(mine).items()
        }

    def findings(self, document: Document) -> list[Finding]:
        """Beside the best fixed turn, and of the program that is farthest from its own best one, whose requests take most turns, whose turns go
        on the longest."""
        names = {
            "gemini_requests": REQUEST_TIME,
            "gemini_chosen": CHOSEN,
            "gemini_turns": TURNS,
            "gemini_overuse": OVERUSE,
        }
        return [
            Finding(name, kind, figures[key])
            for kind, mine in by_servers(document).items()
            for figures in [_figures(mine)]
            for name, key in names.items()
            if key in figures
        ]

    def plot(self, document: Document, figure: Any) -> None:
        """Request times over lengths of turns; by bursts dashed, with a square where the turns were that long."""
        kinds = by_servers(document)
        if not kinds:
            raise NotMeasurableError("nothing was measured")
        for axes, mine in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds.values(), strict=True):
            _draw(by_way(mine), axes)
        head(figure, _title(document), document, "Lines: turns of a fixed length. Dashed lines and squares: by bursts.")


def _window(session: Session, of: Sequence[Server], window_s: float, repetition: int) -> Record:
    """One window of one setting; all settings of a repetition have the same pauses. ProgramFailedError, also when a program ended no request
    in it."""
    workloads = [each.workload(len(of) * repetition + number) for number, each in enumerate(of)]
    outcomes = run_together(session, workloads, window_s, window_s * EDGE_FRACTION)
    return {"window_s": window_s, "programs": [_program(*each, window_s) for each in zip(of, outcomes, strict=True)]}


def _program(server: Server, outcome: Outcome, window_s: float) -> Record:
    """What one did. ProgramFailedError when it ended no request."""
    report = outcome.report
    if report["requests"] <= 0 or (useful_s := server.useful_s(report)) <= 0:
        raise ProgramFailedError(f"{server.label}: no request of {server.length_ms:g} ms ended in the window")
    turns_ms = [each / 1e6 for each in outcome.turns_ns]
    return {
        "label": server.label,
        "length_ms": server.length_ms,
        "pause_ms": pause_ms(server),
        "nr_requests": report["requests"],
        "request_ms": report["request_us"] / 1000,
        "useful_s": useful_s,
        "nr_turns": outcome.nr_grants,
        "turn_ms": {"mean": round(fmean(turns_ms), 3), "least": min(turns_ms), "most": max(turns_ms)},
        "used_s": outcome.charged_s,
        "held_s": outcome.held_s,
        "overuse_s": outcome.overuse_s,
        "window_s": window_s,
        "counted_s": report["seconds"],
    }


def _figures(document: Document) -> dict[str, float]:
    """Of turns by bursts. Beside the slice and the best fixed turn: mean request time and useful GPU time. Of the programs the worst: how far
    turns are from the best fixed one, turns of a request, and overuse of a turn over the turn and in ms."""
    runs = by_way(document).get(BURSTS)
    if not runs:
        return {}
    of = range(NR_SERVERS)
    overuse = [fmean(overuse_ms(run["programs"][program]) for run in runs) for program in of]
    found = {
        "useful": fmean(map(useful, runs)),
        TURNS: max(fmean(turns_per_request(run["programs"][program]) for run in runs) for program in of),
        OVERUSE: max(ms / _turn_ms(runs, program) for program, ms in enumerate(overuse)),
        f"{OVERUSE}, ms": max(overuse),
    }
    if BURSTS in (quotients := over_slice(document)):
        found["request time over slice"] = fmean(quotients[BURSTS])
    if fixed := [each for way, each in by_way(document).items() if way != BURSTS]:
        found[REQUEST_TIME] = fmean(map(mean_request_ms, runs)) / min(
            fmean(map(mean_request_ms, each)) for each in fixed
        )
        found["useful over best"] = found["useful"] / max(fmean(map(useful, each)) for each in fixed)
        found[CHOSEN] = max(_from_best(document, program) for program in of)
    return found


def _from_best(document: Document, program: int) -> float:
    """How many times as long as the best fixed turn of one program that by bursts is, or the other way round: 1 at least. There are both."""
    best = best_fixed(document, program)
    assert best is not None
    ratio = _turn_ms(by_way(document)[BURSTS], program) / _turn_ms(by_way(document)[best], program)
    return max(ratio, 1 / ratio)


def _overuse_sheet(kind: str, document: Document) -> Sheet:
    rows = []
    for way, runs in by_way(document).items():
        each = [fmean(overuse_ms(run["programs"][program]) for run in runs) for program in range(NR_SERVERS)]
        parts = [100 * ms / _turn_ms(runs, program) for program, ms in enumerate(each)]
        rows.append((_named(way, runs), _words(each, digits=2), _words(parts, digits=1)))
    notes = (
        "What a turn goes on beyond its end while others wait, in the mean of all turns; Gemini's Figure 17: close to 0 by bursts.",
    )
    return Sheet(
        f"Overuse by the length of turns, {kind}", ("turn", "overuse, ms", "of the turn, %"), tuple(rows), notes
    )


def _settings_sheet(kind: str, document: Document) -> Sheet:
    quotients, found, rows = over_slice(document), by_way(document), []
    of = range(NR_SERVERS)
    for way, runs in found.items():
        times = _words([_request_ms(runs, program) for program in of], digits=1)
        turns = _words([fmean(turns_per_request(run["programs"][program]) for run in runs) for program in of], digits=1)
        mean = estimate([mean_request_ms(run) for run in runs]).text(1)
        beside = estimate(quotients[way]).text(2) if way in quotients else "-"
        rows.append((_named(way, runs), times, mean, beside, f"{fmean(map(useful, runs)):.3f}", turns))
    columns = ("turn", "requests, ms", "mean, ms", "over slice", "useful", "turns each")
    everything = [run for runs in found.values() for run in runs]
    lengths = _words([_length_ms(everything, program) for program in of], digits=1)
    notes = (
        f"Requests that take {lengths} ms alone: {_labels(everything)}. Means from begin to end.",
        "Useful: the part of the time that what was done takes alone. Turns of a request, in the mean.",
    )
    return Sheet(f"Requests by the length of turns, {kind}", columns, tuple(rows), notes)


def _bursts_sheet(kind: str, document: Document) -> Sheet:
    runs, rows = by_way(document)[BURSTS], []
    for number in range(NR_SERVERS):
        mine = [run["programs"][number] for run in runs]
        mean, length_ms = _turn_ms(runs, number), _length_ms(runs, number)
        least, most = min(each["turn_ms"]["least"] for each in mine), max(each["turn_ms"]["most"] for each in mine)
        figures = (f"{mean:.1f}", f"{least:.1f}", f"{most:.1f}", f"{mean / length_ms:.2f}")
        best = best_fixed(document, number)
        told = _named(best, by_way(document)[best]) if best else "-"
        rows.append((name_of(number), f"{length_ms:.1f}", *figures, told))
    columns = ("program", "request, ms", "turn, ms", "least", "most", "turn over request", "best fixed turn")
    return Sheet(f"Turns that bursts chose, {kind}", columns, tuple(rows), (f"{_labels(runs)}.", GEMINI))


def _title(document: Document) -> str:
    """What turns by bursts do to requests."""
    ratios = [each for mine in by_servers(document).values() for each in over_slice(mine).get(BURSTS, ())]
    if not ratios:
        return "How long requests take, by the length of turns"
    return f"With turns by bursts a request takes {fmean(ratios):.2f} times as long as with slices, in the mean"


def _draw(found: Mapping[str, Sequence[Record]], axes: Any) -> None:
    for number in range(NR_SERVERS):
        everything = [run for runs in found.values() for run in runs]
        colour, label = f"C{number}", f"{name_of(number)}, {_length_ms(everything, number):.3g} ms"
        points = sorted(
            (_turn_ms(runs, number), _request_ms(runs, number)) for way, runs in found.items() if way != BURSTS
        )
        axes.plot(*zip(*points, strict=True) if points else ((), ()), "o-", color=colour, label=label)
        if runs := found.get(BURSTS):
            axes.axhline(_request_ms(runs, number), linestyle="--", linewidth=1, color=colour)
            axes.plot(_turn_ms(runs, number), _request_ms(runs, number), "s", color=colour, markersize=8)
    axes.set(xscale="log", xlabel="length of a turn, ms", ylabel=f"mean time of a request, ms\n{LESS}")
    marks = sorted({_turn_ms(runs, 0) for way, runs in found.items() if way != BURSTS})
    axes.set_xticks(marks, [f"{each:g}" for each in marks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(title="a request alone", loc="lower right")


def _labels(runs: Sequence[Record]) -> str:
    """The programs of the newest run, by name."""
    return "; ".join(f"{name_of(number)} {each['label']}" for number, each in enumerate(runs[-1]["programs"]))


def _length_ms(runs: Sequence[Record], program: int) -> float:
    return fmean(run["programs"][program]["length_ms"] for run in runs)


def _request_ms(runs: Sequence[Record], program: int) -> float:
    return fmean(request_ms(run["programs"][program]) for run in runs)


def _turn_ms(runs: Sequence[Record], program: int) -> float:
    return fmean(run["programs"][program]["turn_ms"]["mean"] for run in runs)


def _named(way: str, runs: Sequence[Record]) -> str:
    """The slice with its length."""
    return f"{way}, {_turn_ms(runs, 0):g} ms" if way == SLICE else way


def _words(numbers: Sequence[float], between: str = " ", digits: int | None = None) -> str:
    return between.join(f"{each:g}" if digits is None else f"{each:.{digits}f}" for each in numbers)
