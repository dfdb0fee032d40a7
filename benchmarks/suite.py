"""Several experiments in a row, each with its part of the time, building their programs included; at the end one short table."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from backend_host.vm.interrupts import InterruptedBySignalError, raised_signals
from benchmarks.build import build_all
from benchmarks.devices import choose_device
from benchmarks.document import check_writable
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Conduct, beside_the_paper, terminal
from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments.gloop import GLoop
from benchmarks.experiments.space import Space
from benchmarks.gloop.build import build_all as build_ports
from benchmarks.guests.session import left_s
from benchmarks.paper import Finding
from benchmarks.sheet import Sheet
from benchmarks.space.build import build_all as build_space
from scheduler.command_line import writing

FIRST_SIGNAL = 129


@dataclass(frozen=True)
class Entry:
    """One experiment: `file` is the stem of what it writes, `minutes` after which it begins nothing new."""

    file: str
    words: str
    minutes: float
    device: str = ""
    """Which one it is for; both where empty."""


@dataclass(frozen=True)
class Suite:
    """Experiments in their order; none begins anything new when `minutes` are over."""

    minutes: float
    entries: tuple[Entry, ...]


SUITES: Mapping[str, Suite] = {
    "quick": Suite(4.7, (
        Entry("overhead", "overhead --seconds 0.4 --repetitions 1 --kernel-us 51,391 --rounds 5 --mib 32", 2.0),
        Entry("mmr", "mmr --program matrixMul,spin --seconds 3 --repetitions 1 --policy fair,first-come --native", 0.9),
        Entry("mixed", "mixed --program matrixMul --background-us 207,10000 --seconds 2 --repetitions 1", 0.5),
        Entry("work-conserving", "work-conserving --sleep-percent 0,80 --seconds 2 --repetitions 1", 0.4),
        Entry("accounting", "accounting --programs matrixMul,scan --kernel-us 1000 --seconds 2", 0.4),
        Entry("gloop", "gloop --only points,apps --seconds 0.3", 0.6),
        Entry("loops", "loops --seconds 0.2 --repetitions 1", 1.1, "soft"),
    )),
    "full-1": Suite(9.3, (
        Entry("overhead", "overhead --seconds 0.6 --repetitions 2", 5.2),
        Entry("accounting", "accounting --seconds 2.5", 1.2),
        Entry("work-conserving", "work-conserving --seconds 2.5 --repetitions 1", 1.0),
        Entry("slicing", "slicing --only costs,waits", 1.9),
    )),
    "full-2": Suite(9.0, (
        Entry("mmr-three", "mmr --seconds 3.5 --repetitions 2 --policy fair,first-come", 2.8),
        Entry("mmr-six", "mmr --program BlackScholes,srad_v1 --weights 1:2:2:3:3:4 --seconds 6 --repetitions 2", 1.5),
        Entry("mmr-native", "mmr --program matrixMul,srad_v1 --seconds 4 --repetitions 1 --native", 1.0),
        Entry("mmr-interactive", "mmr --program spin --queue 1 --seconds 8 --repetitions 1", 0.5),
        Entry("mmr-lengths", "mmr --program spin --weights 1:1 --kernel-us 50,5000 --policy fair,credit-hs,first-come"
              " --seconds 6 --repetitions 1", 0.9),
        Entry("mixed", "mixed --policy fair,credit-hs --seconds 2.5 --repetitions 1", 2.3),
    )),
    "full-3": Suite(3.7, (
        Entry("slicing-shares", "slicing --only shares --seconds 6 --repetitions 1", 3.2),
    )),
    "gemini-1": Suite(9.5, (
        Entry("one-limit", "elastic --parts lengths --seconds 7", 1.6),
        Entry("bursts", "bursts --turns-ms 30,40,60,80,100 --seconds 8 --repetitions 1", 1.4),
        Entry("alone", "clients --parts alone --alone-seconds 0.5", 2.0),
        Entry("mmr-six-bursts", "mmr --program spin --kernel-us 5000 --queue 8 --sleep-us 2500 --weights 1:2:2:3:3:4"
              " --seconds 10 --repetitions 1 --bursts", 0.8),
        Entry("elastic", "elastic --parts joins,limits --seconds 4 --sets 8", 1.5),
        Entry("clients", "clients --parts clients,programs --seconds 3", 2.2),
    )),
    "gemini-2": Suite(8.5, (
        Entry("allocation", "allocation", 2.0),
        Entry("oversubscription", "oversubscription --seconds 24", 6.5),
    )),
    "gloop-1": Suite(9.5, (
        Entry("gloop-programs", "gloop --only points,apps,preemption --seconds 3", 5.0),
        Entry("gloop-servers", "gloop --only servers --seconds 6", 4.5),
    )),
    "gloop-2": Suite(9.5, (
        Entry("gloop-instances", "gloop --only instances --seconds 5", 5.0),
        Entry("gloop-shares", "gloop --only shares --seconds 6", 4.5),
    )),
    "g-space-1": Suite(9.5, (
        Entry("space", "space --only start,search", 2.6),
        Entry("space-surfaces", "space --calibrate --surfaces build/bench/space", 5.5),
        Entry("space-turns", "space --only turns,faults", 1.4),
    )),
    "g-space-2": Suite(9.5, (
        Entry("space-pairs", "space --only pairs --targets 1.5 --settle-seconds 8 --seconds 4", 9.5),
    )),
    "dcuda": Suite(9.5, (
        Entry("migration", "migration", 5.0),
        Entry("balancing", "balancing --orders 5 --arrivals 5", 1.0),
        Entry("energy", "energy --orders 2", 3.5),
    )),
    "dcuda-2": Suite(9.3, (
        Entry("arrivals", "arrivals --part 0.4 --interval 3.75", 9.0),
    )),
    "dcuda-3": Suite(3.0, (
        Entry("ahead", "ahead", 3.0),
    )),
}  # fmt: skip
"""The words of `fairgv-bench`: quick for two cores without a GPU, dcuda and its like for two GPUs, the others, one after the other, for one."""


def run_suite(options: argparse.Namespace, conduct_of: Callable[[Sequence[str]], Conduct]) -> int:
    """Exit status: 0, 1 when something failed or had no time, or 128 + n when a signal ended it; what was measured until then is shown."""
    try:
        check_writable(options.output / "found.json")
    except OSError as error:
        raise NotMeasurableError(f"cannot write to {options.output}: {error.strerror}") from error
    options.device = choose_device(options.device)
    console, status = Console(stderr=True), 0
    suite = SUITES[options.suite]
    deadline_s = time.monotonic() + 60 * min(suite.minutes, options.minutes or suite.minutes)
    has_plots = find_spec("matplotlib") is not None
    rows: list[tuple[str, ...]] = []
    findings: list[Finding] = []
    try:
        with raised_signals():
            console.print("the programs are built")
            build_all()
            experiments = {entry.words.split()[0] for entry in suite.entries}
            if GLoop.name in experiments:
                build_ports()
            if Space.name in experiments:
                build_space()
            for entry in (entry for entry in suite.entries if entry.device in ("", options.device)):
                path = options.output / f"{entry.file}-{options.device}.json"
                path.unlink(missing_ok=True)
                minutes = min(entry.minutes, left_s(deadline_s) / 60)
                if minutes <= 0:
                    status = max(status, 1)
                    rows.append((entry.file, "nothing: no time was left", "-", "0", ""))
                    continue
                words = [*entry.words.split(), "--device", options.device, "--minutes", f"{minutes:.3g}"]
                console.rule(" ".join(words), style="dim")
                begin_s = time.monotonic()
                plots = [f"--plot={path.with_suffix(kind)}" for kind in (".png", ".svg") if has_plots]
                ended = _run(conduct_of([*words, "--json", str(path), *plots]), console)
                status = max(status, ended)
                rows.append((entry.file, *_outcome(path), f"{time.monotonic() - begin_s:.0f}", str(path)))
                findings += _findings(path)
                if ended >= FIRST_SIGNAL:
                    break
    except InterruptedBySignalError as interruption:
        status = interruption.exit_code
    output = terminal()
    columns = ("experiment", "measured", "failures", "seconds", "file")
    with writing():
        output.print(Sheet(f"{options.suite}, device {options.device}", columns, tuple(rows)).on_terminal())
        if findings:
            output.print(beside_the_paper(findings).on_terminal())
    return status


def _findings(path: Path) -> list[Finding]:
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    return EXPERIMENTS[document["experiment"]].findings(document)


def _run(conduct: Conduct, console: Console) -> int:
    try:
        return conduct.run()
    except NotMeasurableError as error:
        console.print(f"fairgv-bench: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1


def _outcome(path: Path) -> tuple[str, str]:
    """Records, with why they are not all, and failures."""
    if not path.exists():
        return "nothing", "-"
    document = json.loads(path.read_text())
    nr = str(len(document["records"]))
    return f"{nr}, {document['ended']}" if document["ended"] else nr, str(len(document["failures"]))
