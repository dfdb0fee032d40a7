"""What an experiment is, and how one is conducted: progress, table, JSON, plot; and what happens when it is interrupted."""

import argparse
import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from backend_host.arguments import path_argument
from backend_host.config import load_config
from backend_host.errors import FairGVError
from backend_host.state_dir import DEVICE_KINDS
from backend_host.vm.interrupts import InterruptedBySignalError, delayed_signals, raised_signals
from backend_host.whole_file import whole
from benchmarks import document as documents
from benchmarks.devices import choose_device, device_name, native_environment, private_device
from benchmarks.document import Document, Record
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.guests import MPS, NATIVE, Setting
from benchmarks.guests.open import GUEST_KINDS
from benchmarks.paper import Finding
from benchmarks.sheet import Sheet
from benchmarks.steal import cpu_time, disturbance, steal_between
from benchmarks.style import THEMES, figure_of
from benchmarks.systems import OURS
from scheduler.command_line import writing
from scheduler.quota import QUOTAS
from scheduler.registry import POLICIES, SIMULATED, where_simulated

EXIT_FAILED = 1
PLOT_INCHES = (9, 5)
PLAIN_WIDTH = 180
MOST = 1e9
"""Of what an option counts."""
BUSY_LOAD_PER_CORE = 0.25

Subjects = Mapping[str, tuple[str, ...]]
"""For kinds of records, the fields that tell what one is about, with the weights of its guests. Of two of one subject the newer counts."""


class Reporter:
    """Tells the person what is being measured, and keeps what went wrong for the document."""

    def __init__(self, document: Document, progress: Progress, nr_records: int) -> None:
        self._document, self._progress = document, progress
        self._task = progress.add_task("", total=nr_records)

    def doing(self, what: str) -> None:
        """Shown beside the bar until something else is."""
        self._progress.update(self._task, description=what)

    def failed(self, what: str) -> None:
        """Something is left out of the measurement, which goes on."""
        self._document["failures"].append(what)
        self._progress.console.print(what, markup=False, highlight=False, soft_wrap=True)

    def refused(self, what: str) -> None:
        """Something cannot be had here, which is nobody's failure."""
        self._document["refused"].append(what)
        self._progress.console.print(what, markup=False, highlight=False, soft_wrap=True)

    def advance(self) -> None:
        """One record is there."""
        self._progress.advance(self._task)

    @contextlib.contextmanager
    def tolerating(self, what: str) -> Iterator[None]:
        """A failed program, or a system that cannot be had, costs the block and no more."""
        try:
            yield
        except (NotMeasurableError, ProgramFailedError) as error:
            self.failed(f"{what}: {error}")


class Experiment(ABC):
    """One kind of measurement. All its tables and plots are made of a document alone, one read from a file as well."""

    name: ClassVar[str]
    summary: ClassVar[str]
    guest_kinds: ClassVar[tuple[str, ...]] = ("process",)
    has_systems: ClassVar[bool] = False
    """Whether policies, and the driver's own sharing, are compared."""
    subjects: ClassVar[Subjects] = {}
    seconds: ClassVar[float] = 2.0
    repetitions: ClassVar[int] = 3

    @abstractmethod
    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Beyond those that all have."""

    def check(self, options: argparse.Namespace) -> None:  # noqa: B027 - most have nothing to check
        """Raises NotMeasurableError for what cannot be measured here; nothing has been started."""

    def device(self, options: argparse.Namespace) -> str:
        """What the document says it was measured on."""
        return device_name(options.device)

    @abstractmethod
    def nr_records(self, options: argparse.Namespace) -> int:
        """How many `measure` will make."""

    @abstractmethod
    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """One record after the other. Repetitions are the outermost loop, so that an early end leaves all kinds of them."""

    @abstractmethod
    def sheets(self, document: Document) -> list[Sheet]:
        """What was measured, as tables."""

    def findings(self, document: Document) -> list[Finding]:
        """What it has to say about the paper's claims."""
        return []

    def figures(self, document: Document) -> dict[str, float]:
        """Single numbers of a document by name, which promises are held to; means, or geometric means, where there are several repetitions."""
        return {}

    def plot(self, document: Document, figure: Any) -> None:
        """Draws into a matplotlib figure, with a head of `style`. NotMeasurableError when there is nothing to draw."""
        raise NotMeasurableError(f"{self.name} has no plot")


def add_common_options(parser: argparse.ArgumentParser, experiment: Experiment) -> None:
    """Those that all experiments have, and those of policies where they are compared."""
    parser.add_argument(
        "--device", choices=DEVICE_KINDS, default="auto", help="softgpu or NVIDIA's (default: cuda if it answers)"
    )
    parser.add_argument(
        "--guests", choices=GUEST_KINDS, default="process", help="processes of this host, or virtual machines"
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        default=experiment.seconds,
        metavar="S",
        help="of each measurement (default %(default)g)",
    )
    parser.add_argument(
        "--repetitions",
        type=natural_number,
        default=experiment.repetitions,
        metavar="N",
        help="of everything, in turn (default %(default)d)",
    )
    parser.add_argument("--slice-ms", type=positive, metavar="MS", help="length of a slice (default: the device's)")
    parser.add_argument(
        "--quota", choices=QUOTAS, help="how long turns last: a slice, or as the bursts of programs (default: a slice)"
    )
    parser.add_argument(
        "--minutes", type=positive, metavar="M", help="begin nothing new after so many; what was measured counts"
    )
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="everything that was measured")
    parser.add_argument(
        "--plot",
        type=path_argument,
        metavar="FILE",
        action="append",
        default=[],
        help="a picture, as .png, .svg or as another name of matplotlib's says; as often as wanted",
    )
    if experiment.has_systems:
        parser.add_argument(
            "--policy",
            type=policies,
            default=[OURS],
            metavar="NAME,...",
            help=f"side by side, of {', '.join(sorted(POLICIES))} (default {OURS})",
        )
        parser.add_argument(
            "--native", action="store_true", help="beside them: the driver's own time slicing, and MPS if it starts"
        )


def positive(text: str) -> float:
    """A number above 0, for argparse; of seconds, no more than a clock counts."""
    found = amount(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return found


def amount(text: str) -> float:
    """A number from 0, for argparse, no more than `MOST`."""
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    if found > MOST:
        raise argparse.ArgumentTypeError(f"{text} is more than {MOST:.0f}")
    return found


def natural_number(text: str) -> int:
    """A whole number above 0, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text or 'nothing'} is not a whole number above 0")
    return number


def policies(text: str) -> list[str]:
    """Names of policies, for argparse."""
    names = text.split(",")
    for name in names:
        if name in SIMULATED:
            raise argparse.ArgumentTypeError(where_simulated(name))
        if name not in POLICIES:
            raise argparse.ArgumentTypeError(f"there is no policy {name}; there are {', '.join(sorted(POLICIES))}")
    return names


def names_of(known: Sequence[str]) -> Any:
    """A comma-separated choice of names, for argparse."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name}; there are {', '.join(known)}")
        return names

    return parse


def amounts(text: str) -> list[float]:
    """Comma-separated numbers from 0, for argparse."""
    return [amount(word) for word in text.split(",")]


def positives(text: str) -> list[float]:
    """Comma-separated numbers above 0, for argparse."""
    return [positive(word) for word in text.split(",")]


def natural_numbers(text: str) -> list[int]:
    """Comma-separated whole numbers above 0, for argparse."""
    return [natural_number(word) for word in text.split(",")]


def systems(options: argparse.Namespace) -> list[str]:
    """What is compared: policies, and with --native what the device does by itself."""
    return [*options.policy, *((NATIVE, MPS) if options.native else ())]


def setting(options: argparse.Namespace, region_bytes: int = 256 << 20) -> Setting:
    """Of the common options."""
    daemon = {"quota": options.quota} if options.quota else {}
    return Setting(options.device, options.guests, options.slice_ms, region_bytes, daemon)


def terminal() -> Console:
    """Standard output; where it is no terminal there is no width to keep to. OutputError where it is closed."""
    with writing():
        return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


@dataclass
class Conduct:
    """One experiment with its options, from its start to its table. `console` is where people look, `output` where the table goes."""

    experiment: Experiment
    options: argparse.Namespace
    command: str
    console: Console = field(default_factory=lambda: Console(stderr=True))
    output: Console = field(default_factory=terminal)

    def run(self) -> int:
        """Exit status: 0 all was measured, 1 not all could be, 128 + n ended by signal n. Raises FairGVError before anything was measured."""
        options = self.options
        self._check_outputs()
        self._check()
        document = documents.head(self.experiment.name, self.experiment.device(options), self.command)
        document |= {"guests": options.guests, "slice_ms": options.slice_ms, "seconds": options.seconds}
        document |= {"repetitions": options.repetitions, "ended": None, "refused": [], "failures": [], "records": []}
        self._save(document)
        status = self._measure(document)
        self._save(document)
        if document["records"]:
            self.show(document)
        elif document["ended"]:
            self.say(f"nothing was measured: {document['ended']}")
        return status

    def say(self, text: str) -> None:
        """A sentence for the person, in one line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, document: Document) -> None:
        """Tables and plot of what there is."""
        with writing():
            for sheet in self.experiment.sheets(document):
                self.output.print(sheet.on_terminal())
            if findings := self.experiment.findings(document):
                self.output.print(beside_the_paper(findings).on_terminal())
            if disturbed := disturbance(document["records"]):
                self.output.print(disturbed, markup=False, highlight=False)
            if document["ended"]:
                self.output.print(f"Not whole: {document['ended']}.", markup=False)
        for path in self.options.plot:
            try:
                save_plot(self.experiment, document, path)
            except (NotMeasurableError, OSError) as error:
                self.say(f"no plot: {error}")

    def _save(self, document: Document) -> None:
        """NotMeasurableError when that is not possible, which the first time nothing has been measured."""
        if self.options.json:
            try:
                documents.write(self.options.json, document)
            except OSError as error:
                raise NotMeasurableError(f"cannot write {self.options.json}: {error.strerror}") from error

    def _check_outputs(self) -> None:
        """NotMeasurableError for a file that could not be written when all is measured."""
        for path in self.options.plot:
            plot_format(path)
        for path in filter(None, (self.options.json, *self.options.plot)):
            try:
                documents.check_writable(path)
            except OSError as error:
                raise NotMeasurableError(f"cannot write {path}: {error.strerror}") from error

    def _check(self) -> None:
        options = self.options
        if options.guests not in self.experiment.guest_kinds:
            raise NotMeasurableError(
                f"{self.experiment.name} measures guests that are processes: the files that its programs read or write "
                "do not get into a virtual machine, or out of it"
            )
        load_config(None, slice_ns=setting(options).slice_ns)
        options.device = choose_device(options.device)
        native_environment(options.device)
        self.experiment.check(options)

    def _measure(self, document: Document) -> int:
        options, load = self.options, document["load_before"]
        if load > BUSY_LOAD_PER_CORE * int(document["machine"].split()[0]):
            self.say(f"something else uses this machine (load {load:.1f}): the figures will not repeat")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        try:
            with (
                raised_signals(),
                private_device(options.device),
                shown(Progress(*columns, console=self.console)) as progress,
            ):
                reporter = Reporter(document, progress, self.experiment.nr_records(options))
                self._collect(document, reporter)
        except InterruptedBySignalError as interruption:
            document["ended"] = "interrupted"
            return interruption.exit_code
        except FairGVError as error:
            document["ended"] = str(error)
            return EXIT_FAILED
        return EXIT_FAILED if document["failures"] else 0

    def _collect(self, document: Document, reporter: Reporter) -> None:
        options = self.options
        deadline_s = time.monotonic() + 60 * options.minutes if options.minutes else None
        with contextlib.closing(self.experiment.measure(options, reporter)) as measured:  # type: ignore[type-var]
            before = cpu_time()
            for record in measured:
                after = cpu_time()
                document["records"].append(record | {"steal": round(steal_between(before, after), 4)})
                before = after
                reporter.advance()
                self._save(document)
                is_late = deadline_s is not None and time.monotonic() > deadline_s
                if is_late and len(document["records"]) < self.experiment.nr_records(options):
                    document["ended"] = f"{options.minutes:g} minutes were over"
                    break


@contextlib.contextmanager
def shown(progress: Progress) -> Iterator[Progress]:
    """For the block. Its thread takes no signal: one that comes while this thread blocks them waits for it."""
    with delayed_signals():
        progress.start()
    try:
        yield progress
    finally:
        progress.stop()


def beside_the_paper(findings: Sequence[Finding]) -> Sheet:
    """The paper's claims and what was found."""
    columns = ("paper", "what", "paper's", "ours", "")
    return Sheet("Beside the paper", columns, tuple(finding.cells() for finding in findings))


def plot_format(path: Path) -> str:
    """As its name says. NotMeasurableError without matplotlib, and for what matplotlib does not draw."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise NotMeasurableError("matplotlib is not installed: make setup brings it") from None
    found = path.suffix.removeprefix(".").lower()
    if found not in FigureCanvasBase.filetypes:
        raise NotMeasurableError(f"{path}: pictures have names that end in .png, or in another of matplotlib's formats")
    return found


def save_plot(experiment: Experiment, document: Document, path: Path) -> None:
    """A picture, whole or not at all. NotMeasurableError without matplotlib, and when there is nothing to draw."""
    wanted = plot_format(path)
    with figure_of(PLOT_INCHES, THEMES["light"]) as figure:
        experiment.plot(document, figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as file:
            figure.savefig(file, format=wanted)
