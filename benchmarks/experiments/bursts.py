"""Turns of fixed lengths beside turns by bursts (figures 14 to 16 of the Gemini paper): how long requests take.

Three programs answer one request after the other. A request is a row of kernels that last a given time; a pause follows it. Settings follow
each other: the device's slice, turns of given lengths, and `quota = bursts` with the device's slice. A turn as long as the slice is measured
beside it: how far the two lie apart is what chance does. A kernel does a given amount of work, which takes that time alone. Pauses
are random, exponentially distributed: with fixed ones requests fall into step, and how they do decides more than turns.

    fairgv-bench bursts --repetitions 6 --plot bursts.png

Wrong when guests, workers and the device's threads have no core each.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, setting
from benchmarks.experiments.shares_over_time import name_of
from benchmarks.guests import Session, open_guests
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome, run_together
from benchmarks.workloads import Workload, spin
from scheduler.elastic import Elastic

TURNS_MS = (6.0, 10.0, 30.0, 60.0, 100.0, 250.0)
LEAST_MS, MOST_MS = 1.0, 1000.0
"""Of a turn: the daemon takes no shorter slice, and with longer ones hardly a turn ends in a window."""
PART = 3.5
"""Each program wants one part in so many of the GPU: three of them leave a seventh."""
EDGE_FRACTION = 0.25
"""Of the window, for each of its edges."""
SLICE, BURSTS = "slice", "bursts"
KIND = "turns"
GEMINI = "Gemini's Figure 15, of the same requests: turns by bursts of 35.8, 63.8 and 78.0 ms."


@dataclass(frozen=True)
class Requests:
    """What one program does: `nr_kernels` kernels in a row, then a pause."""

    kernel_ms: float
    nr_kernels: int

    @property
    def length_ms(self) -> float:
        """GPU time of a request."""
        return self.kernel_ms * self.nr_kernels

    @property
    def pause_ms(self) -> float:
        """From the end of a request to the next."""
        return self.length_ms * (PART - 1)

    def workload(self, seed: int) -> Workload:
        """The program; the same seed gives the same pauses."""
        return spin(1000 * self.kernel_ms, self.nr_kernels, 1000 * self.pause_ms, is_work=True, seed=seed)


PROGRAMS = (Requests(6, 6), Requests(8, 8), Requests(13, 6))


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
    found = [float(word) for word in text.split(",")]
    for each in found:
        if not LEAST_MS <= each <= MOST_MS:
            raise argparse.ArgumentTypeError(f"a turn lasts from {LEAST_MS:g} to {MOST_MS:g} ms, not {each:g}")
    return list(dict.fromkeys(found))


def request_ms(program: Record) -> float:
    """The mean time from the launch of a request's kernels to the end of the last one."""
    return float(program["request_ms"])


def turns_per_request(program: Record) -> float:
    """Both are those of the whole window."""
    return float(program["nr_turns"] / program["nr_requests"])


def mean_request_ms(record: Record) -> float:
    """Of the three programs; each counts the same."""
    return fmean(map(request_ms, record["programs"]))


def useful(record: Record) -> float:
    """The part of the window that ended kernels lasted."""
    return float(sum(each["kernels"] * each["kernel_ms"] / 1000 / each["counted_s"] for each in record["programs"]))


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
    summary = "turns by bursts beside turns of fixed lengths: how long requests take (Gemini's Figures 14 to 16)"
    guest_kinds = ("process", "vm")
    seconds = 10.0
    repetitions = 2
    subjects: ClassVar[Subjects] = {KIND: ("way",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which lengths."""
        parser.add_argument(
            "--turns-ms",
            type=turn_lengths,
            default=list(TURNS_MS),
            metavar="MS,...",
            help=f"fixed lengths of turns (default {_words(TURNS_MS, ',')})",
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each setting."""
        return int(options.repetitions * len(ways(options.turns_ms)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each setting has a daemon of its own; guests stay."""
        ones, paths = (1,) * len(PROGRAMS), [PROGRAMS[0].workload(0).path()]
        with open_guests(Elastic.name, setting(options), ones, paths) as guests:
            for repetition in range(options.repetitions):
                for way in ways(options.turns_ms):
                    what = f"turns: {way.name}"
                    reporter.doing(what)
                    with reporter.tolerating(what), guests.session(**way.daemon) as session:
                        yield {"kind": KIND, "way": way.name, "repetition": repetition} | _measured(
                            session, options, repetition
                        )

    def sheets(self, document: Document) -> list[Sheet]:
        """Each setting; what bursts chose."""
        found = by_way(document)
        if not found:
            return []
        return [_settings_sheet(document), *([_bursts_sheet(document)] if BURSTS in found else [])]

    def figures(self, document: Document) -> dict[str, float]:
        """Of turns by bursts: mean request time over that of the slice and of the best fixed turn, useful GPU time, and the most turns that a
        request of one of the programs takes in the mean."""
        runs = by_way(document).get(BURSTS)
        if not runs:
            return {}
        programs = range(len(PROGRAMS))
        most = max(fmean(turns_per_request(run["programs"][program]) for run in runs) for program in programs)
        found = {"bursts/useful": fmean(map(useful, runs)), "bursts/turns of a request": most}
        if BURSTS in (quotients := over_slice(document)):
            found["bursts/request time over slice"] = fmean(quotients[BURSTS])
        if best := best_fixed(document):
            least = fmean(map(mean_request_ms, by_way(document)[best]))
            found["bursts/request time over best"] = fmean(map(mean_request_ms, runs)) / least
        return found

    def findings(self, document: Document) -> list[Finding]:
        """Beside the best fixed turn, and of the program whose requests take most turns."""
        figures = self.figures(document)
        names = {"gemini_requests": "bursts/request time over best", "gemini_turns": "bursts/turns of a request"}
        return [Finding(name, "", figures[key]) for name, key in names.items() if key in figures]

    def plot(self, document: Document, figure: Any) -> None:
        """Request times over lengths of turns; by bursts dashed, with a square where the turns were that long."""
        found = by_way(document)
        if not found:
            raise NotMeasurableError("nothing was measured")
        axes = figure.subplots()
        for number, requests in enumerate(PROGRAMS):
            colour, label = f"C{number}", f"{name_of(number)}, {requests.length_ms:g} ms"
            points = sorted(
                (_turn_ms(runs, number), _request_ms(runs, number)) for way, runs in found.items() if way != BURSTS
            )
            axes.plot(*zip(*points, strict=True) if points else ((), ()), "o-", color=colour, label=label)
            if runs := found.get(BURSTS):
                axes.axhline(_request_ms(runs, number), linestyle="--", linewidth=1, color=colour)
                axes.plot(_turn_ms(runs, number), _request_ms(runs, number), "s", color=colour, markersize=8)
        axes.set(xscale="log", xlabel="length of a turn, ms", ylabel="mean time of a request, ms")
        marks = sorted({_turn_ms(runs, 0) for way, runs in found.items() if way != BURSTS})
        axes.set_xticks(marks, [f"{each:g}" for each in marks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small", title="GPU time of a request", loc="lower right")
        axes.set_title("Fixed turns; dashed and squares: turns by bursts", loc="left", fontsize="medium")


def _measured(session: Session, options: argparse.Namespace, repetition: int) -> Record:
    """One window of one setting; all settings of a repetition have the same pauses. ProgramFailedError, also when a program ended no request
    in it."""
    edge_s = options.seconds * EDGE_FRACTION
    workloads = [each.workload(len(PROGRAMS) * repetition + number) for number, each in enumerate(PROGRAMS)]
    outcomes = run_together(session, workloads, options.seconds, edge_s)
    return {
        "window_s": options.seconds,
        "programs": [
            _program(requests, outcome, options.seconds) for requests, outcome in zip(PROGRAMS, outcomes, strict=True)
        ],
    }


def _program(requests: Requests, outcome: Outcome, window_s: float) -> Record:
    """What one did. ProgramFailedError when it ended no request."""
    if outcome.report["kernels"] <= 0 or outcome.report["requests"] <= 0:
        raise ProgramFailedError(f"a program with requests of {requests.length_ms:g} ms ended none in its window")
    turns_ms = [each / 1e6 for each in outcome.turns_ns]
    return {
        "kernel_ms": requests.kernel_ms,
        "nr_kernels": requests.nr_kernels,
        "pause_ms": requests.pause_ms,
        "nr_requests": outcome.report["requests"],
        "request_ms": outcome.report["request_us"] / 1000,
        "window_s": window_s,
        "counted_s": outcome.report["seconds"],
        "kernels": outcome.report["kernels"],
        "nr_turns": outcome.nr_grants,
        "turn_ms": {"mean": round(fmean(turns_ms), 3), "least": min(turns_ms), "most": max(turns_ms)},
        "used_s": outcome.charged_s,
        "held_s": outcome.held_s,
    }


def _settings_sheet(document: Document) -> Sheet:
    quotients, rows = over_slice(document), []
    for way, runs in by_way(document).items():
        of = range(len(PROGRAMS))
        times = _words([_request_ms(runs, program) for program in of], digits=1)
        turns = _words([fmean(turns_per_request(run["programs"][program]) for run in runs) for program in of], digits=1)
        mean = estimate([mean_request_ms(run) for run in runs]).text(1)
        beside = estimate(quotients[way]).text(2) if way in quotients else "-"
        rows.append((_named(way, runs), times, mean, beside, f"{fmean(map(useful, runs)):.3f}", turns))
    columns = ("turn", "requests, ms", "mean, ms", "over slice", "useful", "turns each")
    notes = (
        f"Requests of {_words([each.length_ms for each in PROGRAMS])} ms of GPU time: means from launch to end.",
        "Useful: the part of the time that kernels lasted. Turns of a request, in the mean.",
    )
    return Sheet("Requests by the length of turns", columns, tuple(rows), notes)


def _bursts_sheet(document: Document) -> Sheet:
    runs, rows = by_way(document)[BURSTS], []
    for number, requests in enumerate(PROGRAMS):
        mine = [run["programs"][number] for run in runs]
        mean = _turn_ms(runs, number)
        least, most = min(each["turn_ms"]["least"] for each in mine), max(each["turn_ms"]["most"] for each in mine)
        figures = (f"{mean:.1f}", f"{least:.1f}", f"{most:.1f}", f"{mean / requests.length_ms:.2f}")
        best = best_fixed(document, number)
        told = _named(best, by_way(document)[best]) if best else "-"
        rows.append((name_of(number), f"{requests.length_ms:g}", *figures, told))
    columns = ("program", "request, ms", "turn, ms", "least", "most", "turn over request", "best fixed turn")
    return Sheet("Turns that bursts chose", columns, tuple(rows), (GEMINI,))


def _request_ms(runs: Sequence[Record], program: int) -> float:
    return fmean(request_ms(run["programs"][program]) for run in runs)


def _turn_ms(runs: Sequence[Record], program: int) -> float:
    return fmean(run["programs"][program]["turn_ms"]["mean"] for run in runs)


def _named(way: str, runs: Sequence[Record]) -> str:
    """The slice with its length."""
    return f"{way}, {_turn_ms(runs, 0):g} ms" if way == SLICE else way


def _words(numbers: Sequence[float], between: str = " ", digits: int | None = None) -> str:
    return between.join(f"{each:g}" if digits is None else f"{each:.{digits}f}" for each in numbers)
