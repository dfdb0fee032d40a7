"""What one guest pays: programs, kernels of given lengths, and single operations through FairGV beside native (Figures 2 and 7 of the paper).

Native runs and runs as a guest follow each other, and each pair gives one ratio; several give a mean with its interval. Ratios of programs
and kernels are times, guest over native: 1 is no overhead, less is a speed-up. What the programs ask of the driver, their kernels' lengths and
their calls in 10 ms, stands beside the paper's Table 3: calls are counted in the guest, and those of the preparation are subtracted; kernels
are timed natively, by events around each of them.

Wrong when the machine does something else: the two runs of a pair then do not meet the same machine.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from backend_host.trace import Count, read_counts
from benchmarks.build import NAMES, build, build_timed
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number, positives, setting
from benchmarks.guests import NATIVE, Session, open_session, run
from benchmarks.paper import Finding, is_of_the_paper, paper
from benchmarks.ratios import estimate, geometric_mean
from benchmarks.sheet import Sheet
from benchmarks.style import GREY, LESS, due, head, limits, spread, told_whiskers
from benchmarks.systems import OURS
from benchmarks.workloads import Workload, parse_report, sized, spin, throughput, unit_of

GROUPS = ("programs", "sizes", "operations", "profile")
QUEUES = (1, 300)
"""Waited for one by one, and as matrixMul of the CUDA SDK queues them."""
REGION_BYTES = 1 << 30
INTERACTIVE = 10
"""Synchronous calls in 10 ms, above which the paper calls a program CPU-GPU interactive (section 5.1)."""
AIMS = {
    "launch_async": "at most 0.5 us",
    "launch_sync": "native + 2 us",
    "pinned_to_device": "0.97",
    "pinned_from_device": "0.97",
    "pageable_to_device": "0.9",
    "pageable_from_device": "0.9",
}
OPERATION_NOTES = (
    "A ratio above 1 means that FairGV is better: faster, or more bytes a second; medians. A guest can be faster than native because it does",
    "not wait for the driver: a launch or a small copy to the device is a record in a ring, and the worker makes the driver's call on another",
    "core.",
)


class Overhead(Experiment):
    """`fairgv-bench overhead`."""

    name = "overhead"
    summary = "one guest beside native: programs, kernel sizes, call latency, copies (Figures 2 and 7, Table 3)"
    guest_kinds = ("process", "vm")
    subjects: ClassVar[Subjects] = {"program": ("program",), "size": ("kernel_us", "queue"), "profile": ("program",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which groups, and how much of each."""
        parser.add_argument(
            "--parts",
            dest="groups",
            type=names_of(GROUPS),
            default=list(GROUPS),
            metavar="NAME,...",
            help=f"of {', '.join(GROUPS)}",
        )
        parser.add_argument(
            "--programs",
            type=names_of(NAMES),
            default=[name for name in NAMES if is_of_the_paper(name)],
            metavar="NAME,...",
            help=f"of {', '.join(NAMES)} (default: those of Table 3)",
        )
        parser.add_argument(
            "--kernel-us",
            type=positives,
            default=list(paper()["figure2"]["kernel_us"]),
            metavar="US,...",
            help="lengths of kernels (default: those of Figure 2)",
        )
        parser.add_argument(
            "--rounds", type=natural_number, default=20, help="of each single operation in one run (20)"
        )
        parser.add_argument("--mib", type=natural_number, default=256, help="size of the large copies (256)")

    def check(self, options: argparse.Namespace) -> None:
        """A virtual machine has a small region here."""
        options.has_profile = "profile" in options.groups and options.guests == "process"
        if options.guests == "vm":
            options.mib = min(options.mib, 16)

    def nr_records(self, options: argparse.Namespace) -> int:
        """Operations count as one."""
        nr = {"programs": len(options.programs), "sizes": len(options.kernel_us) * len(QUEUES), "operations": 1}
        pairs = options.repetitions * sum(nr.get(group, 0) for group in options.groups)
        return int(pairs + options.has_profile * len(options.programs))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """One guest serves for all of it."""
        pairs = _pairs(options)
        files = [workload.path() for _, workload in pairs]
        if "operations" in options.groups:
            files.append(build("overhead"))
        region_bytes = (256 << 20) if options.device == "soft" and options.mib <= 64 else REGION_BYTES
        with (
            open_session(NATIVE, setting(options)) as native,
            open_session(OURS, setting(options, region_bytes), (1,), files) as guest,
        ):
            both = Both(native, guest)
            if "profile" in options.groups and not options.has_profile:
                reporter.refused("profile: what the guest's library counts does not get out of a virtual machine")
            if "programs" in options.groups:
                self._warm_up(both, options, reporter)
            for repetition in range(options.repetitions):
                for what, workload in pairs:
                    reporter.doing(workload.label)
                    with reporter.tolerating(workload.label):
                        yield {**what, **both.timed(workload, options.seconds, repetition), "repetition": repetition}
                if "operations" in options.groups:
                    reporter.doing("single operations")
                    with reporter.tolerating("single operations"):
                        yield {"kind": "operations", "repetition": repetition, "values": both.operations(options)}
            if options.has_profile:
                yield from profiles(both, options, reporter)

    def _warm_up(self, both: "Both", options: argparse.Namespace, reporter: Reporter) -> None:
        """Each program once on both sides, small, with its result checked against the CPU's."""
        for name in options.programs:
            reporter.doing(f"{name}: the result is checked")
            for session in (both.native, both.guest):
                with reporter.tolerating(name):
                    run(session, 0, build(name), ["--json", "--rounds", "1"]).checked(name)

    def sheets(self, document: Document) -> list[Sheet]:
        """One for each group that was measured."""
        made = (_programs(document), _sizes(document), _operations(document), _profile(document))
        return [sheet for sheet in made if sheet is not None]

    def findings(self, document: Document) -> list[Finding]:
        """The means."""
        found = []
        if (mean := _mean(_ratios(document, "program", "program"))) is not None:
            found.append(Finding("standalone", "", mean))
        for queue in QUEUES:
            sizes = [record for record in records(document, "size") if record["queue"] == queue]
            if sizes:
                ratio = statistics.fmean(record["native"] / record["guest"] for record in sizes)
                found.append(Finding("matrix_mul_sizes", f"{queue} in a row", ratio))
        return found

    def figures(self, document: Document) -> dict[str, float]:
        """Operations by their medians: what a guest takes, what it takes more than native, its part of native bytes a second."""
        found = {}
        for name, (unit, native, guest) in _medians(document).items():
            if unit == "GB/s":
                found[f"{name}/of native"] = guest / native
            else:
                found[f"{name}/{unit}"] = guest
                found[f"{name}/{unit} over native"] = guest - native
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Programs to the left, kernel sizes to the right."""
        left, right = figure.subplots(1, 2)
        programs = _ratios(document, "program", "program")
        ink = left.xaxis.label.get_color()
        whiskers = spread(list(programs.values()))
        left.barh(list(programs), list(map(fmean, programs.values())), xerr=whiskers, ecolor=ink)
        due(left, "native", x=1)
        left.invert_yaxis()
        left.grid(visible=False)
        left.set(title="Programs", xlabel=f"time over native {LESS}")
        left.set_xlim(limits([1, *(most for each in programs.values() for most in each)]))
        for queue, words in zip(QUEUES, ("waited for, each", f"{QUEUES[1]} in a row"), strict=True):
            sizes = _ratios_of_sizes(document, queue)
            right.errorbar(
                list(sizes), list(map(fmean, sizes.values())), spread(list(sizes.values())), fmt="o-", label=words
            )
        gvirtus = paper()["figure2"]["gvirtus"]
        right.plot(
            [float(us) for us in gvirtus], list(gvirtus.values()), "s:", color=GREY, label="GVirtuS, of the paper"
        )
        due(right, "native", y=1)
        right.set(title="Kernels, by their length", xlabel="us", ylabel=f"time over native\n{LESS}")
        right.legend()
        mean = _mean(programs)
        finding = (
            "Time over native"
            if mean is None
            else f"Programs take {mean:.2f} times as long as natively, in the geometric mean"
        )
        head(figure, finding, document, *told_whiskers(list(programs.values())))


class Both:
    """The two sides of each pair."""

    def __init__(self, native: Session, guest: Session) -> None:
        self.native, self.guest = native, guest

    def timed(self, workload: Workload, seconds: float, repetition: int) -> Record:
        """Throughputs of one pair; every other time the guest is first."""
        arguments = [*workload.arguments, "--seconds", f"{seconds:g}"]
        sides = (self.native, self.guest) if repetition % 2 == 0 else (self.guest, self.native)
        reports = [parse_report(run(side, 0, workload.path(), arguments).checked(workload.program)) for side in sides]
        first, second = map(throughput, reports)
        native, guest = (first, second) if repetition % 2 == 0 else (second, first)
        if native <= 0 or guest <= 0:
            raise ProgramFailedError(f"nothing was done within {seconds:g} s")
        return {"unit": unit_of(reports[0]), "size": reports[0].get("size"), "native": native, "guest": guest}

    def operations(self, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
        """The values of overhead.cu, by name."""
        arguments = [str(options.rounds), str(options.mib)]
        sides = [
            run(side, 0, build("overhead"), arguments).checked("overhead").split("\n")
            for side in (self.native, self.guest)
        ]
        native, guest = (
            {name: (float(value), unit) for name, value, unit in map(str.split, filter(None, side))} for side in sides
        )
        return {
            name: {"unit": unit, "native": value, "guest": guest[name][0]} for name, (value, unit) in native.items()
        }


def _pairs(options: argparse.Namespace) -> list[tuple[Record, Workload]]:
    """What is run in pairs, with what tells it from others."""
    found: list[tuple[Record, Workload]] = []
    if "programs" in options.groups:
        found += [({"kind": "program", "program": name}, sized(name, options.device)) for name in options.programs]
    if "sizes" in options.groups:
        for queue in QUEUES:
            found += [({"kind": "size", "kernel_us": us, "queue": queue}, spin(us, queue)) for us in options.kernel_us]
    return found


def profiles(both: Both, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
    """One record for each program: kernels, and calls in 10 ms."""
    for name in options.programs:
        reporter.doing(f"{name}: calls and kernels")
        with reporter.tolerating(name):
            workload = sized(name, options.device)
            yield {
                "kind": "profile",
                "program": name,
                **kernels(both.native, workload, options.seconds),
                **calls(both.guest, workload, options.seconds),
            }


def kernels(native: Session, workload: Workload, seconds: float) -> Record:
    """How many kernels were timed, and their mean length."""
    program = build_timed(workload.program)
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as folder:
        times = Path(folder) / "times"
        arguments = [*workload.arguments, "--seconds", f"{seconds:g}"]
        run(native, 0, program, arguments, {"BENCHMARK_KERNEL_TIMES": str(times)}).checked(workload.program)
        number, mean_us = times.read_text().split()
    return {"nr_timed": int(number), "kernel_us": float(mean_us)}


def calls(guest: Session, workload: Workload, seconds: float) -> Record:
    """Driver calls in 10 ms: those of a long run less those of a short one, so that the preparation is in neither."""
    (short, short_s), (long, long_s) = (
        _counted(guest, workload, length) for length in (("--rounds", "1"), ("--seconds", f"{seconds:g}"))
    )
    if long_s <= short_s:  # the program's rounds are so long that both made one
        short, short_s = (0, 0), 0.0
    each_10_ms = 0.01 / (long_s - short_s)
    sent, waited = (each_10_ms * (there - here) for there, here in zip(long, short, strict=True))
    return {"asynchronous": sent, "synchronous": waited, "total": sent + waited}


def _counted(guest: Session, workload: Workload, length: tuple[str, str]) -> tuple[tuple[int, int], float]:
    """Calls sent and calls waited for in a whole run, and the seconds of its timed part."""
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-") as folder:
        variables = {"FAIRGV_COUNT": f"{folder}/counts"}
        output = run(guest, 0, workload.path(), [*workload.arguments, *length], variables).checked(workload.program)
        counts: list[Count] = read_counts(Path(folder).iterdir())
    sums = sum(count.nr_sent for count in counts), sum(count.nr_waited for count in counts)
    return sums, float(parse_report(output)["seconds"])


def _ratios(document: Document, kind: str, key: str) -> dict[str, list[float]]:
    """Times, guest over native, of all repetitions."""
    found: dict[str, list[float]] = {}
    for record in records(document, kind):
        found.setdefault(record[key], []).append(record["native"] / record["guest"])
    return found


def _ratios_of_sizes(document: Document, queue: int) -> dict[float, list[float]]:
    found: dict[float, list[float]] = {}
    for record in records(document, "size"):
        if record["queue"] == queue:
            found.setdefault(record["kernel_us"], []).append(record["native"] / record["guest"])
    return found


def _mean(found: dict[str, list[float]]) -> float | None:
    """Geometric, of the paper's programs; None without any of them."""
    means = [statistics.fmean(each) for name, each in found.items() if is_of_the_paper(name)]
    return geometric_mean(means) if means else None


def _programs(document: Document) -> Sheet | None:
    found = _ratios(document, "program", "program")
    if not found:
        return None
    first = {record["program"]: record for record in reversed(records(document, "program"))}
    rows = []
    for name, each in found.items():
        one = first[name]
        verdict = "slower than native" if min(each) > 1 else ""
        figures = (f"{one['native']:.3g}", f"{one['guest']:.3g}", one["unit"])
        rows.append((name, *figures, estimate(each).text(), "close to 1" if is_of_the_paper(name) else "-", verdict))
    if (mean := _mean(found)) is not None:
        rows.append(("geometric mean", "", "", "", f"{mean:.3f}", "", ""))
    columns = ("program", "native", "FairGV", "unit", "time over native", "paper, Figure 7", "")
    return Sheet(
        "Programs, one guest",
        columns,
        tuple(rows),
        ("Time over native: below 1 FairGV is faster. The mean is of the paper's programs.",),
    )


def _sizes(document: Document) -> Sheet | None:
    sides = [_ratios_of_sizes(document, queue) for queue in QUEUES]
    lengths = list(dict.fromkeys(us for side in sides for us in side))
    if not lengths:
        return None
    gvirtus = paper()["figure2"]["gvirtus"]
    rows = []
    for us in lengths:
        cells = (estimate(side[us]).text() if us in side else "-" for side in sides)
        rows.append((f"{us:g}", *cells, "close to 1", f"{gvirtus.get(f'{us:g}', '-')}"))
    waited, queued = (f"{queue} in a row" for queue in QUEUES)
    columns = ("kernels of us", waited, queued, "paper, FairGV, Figure 2", "paper, GVirtuS")
    notes = ("Time over native, kernels of a given length; the paper's are those of matrixMul, queued.",)
    return Sheet("Kernel sizes", columns, tuple(rows), notes)


def _medians(document: Document) -> dict[str, tuple[str, float, float]]:
    """Of each operation: its unit, natively, as a guest."""
    runs = [record["values"] for record in records(document, "operations")]
    return {
        name: (first["unit"], *(statistics.median(run[name][side] for run in runs) for side in ("native", "guest")))
        for name, first in (runs[0] if runs else {}).items()
    }


def _operations(document: Document) -> Sheet | None:
    rows = []
    for name, (unit, native, guest) in _medians(document).items():
        ratio = guest / native if unit == "GB/s" else native / guest
        rows.append((name, f"{native:.3g}", f"{guest:.3g}", unit, f"{ratio:.2f}", AIMS.get(name, "")))
    if not rows:
        return None
    return Sheet(
        "Single operations", ("operation", "native", "FairGV", "unit", "ratio", "aim"), tuple(rows), OPERATION_NOTES
    )


def _cells_of_profile(profile: Record) -> list[str]:
    """One side of a row: ours, or Table 3's."""
    calls_of_each = (f"{profile[key]:.2f}" for key in ("total", "asynchronous", "synchronous"))
    return [f"{profile['kernel_us']:.0f}", *calls_of_each, "yes" if profile["interactive"] else "no"]


def _profile(document: Document) -> Sheet | None:
    rows = []
    for record in records(document, "profile"):
        ours = _cells_of_profile({**record, "interactive": record["synchronous"] > INTERACTIVE})
        theirs = paper()["table3"].get(record["program"])
        pairs = zip(ours, _cells_of_profile(theirs) if theirs else ["-"] * len(ours), strict=True)
        rows.append((record["program"], *(cell for pair in pairs for cell in pair)))
    if not rows:
        return None
    titles = ("kernel us", "calls", "asynchronous", "synchronous", "interactive")
    columns = ("program", *(word for title in titles for word in (title, "paper")))
    notes = (
        "Calls that reach the host in 10 ms, as in the paper's Table 3; kernels by events, natively. Interactive: more than",
        f"{INTERACTIVE} synchronous calls.",
    )
    return Sheet("What the programs ask for", columns, tuple(rows), notes)
