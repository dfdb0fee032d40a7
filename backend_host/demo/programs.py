"""What each virtual machine runs, what its programs did, and the table of that."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table

from backend_host.demo.daemon import Reading
from backend_host.sizes import format_time
from backend_host.vm.guest_output import CommandResult

CAPTION = (
    "calls: requests that left the guest; round trips: those it waited for; share: of the GPU time in this table. "
    "The programs are short and seldom wait for each other, so shares follow their work here; what weights do comes next."
)


@dataclass(frozen=True)
class Plan:
    """What one virtual machine does."""

    name: str
    weight: int
    programs: tuple[str, ...]


PLANS = (
    Plan("vm-one", 1, ("vector_add", "simple_streams", "simple_printf")),
    Plan("vm-two", 2, ("matrix_mul", "async_api", "vector_add.shared", "simple_atomics")),
)


@dataclass
class Record:
    """The figures of one virtual machine, one entry per program that ended."""

    before: Reading
    programs: list[Reading] = field(default_factory=list)
    ends: list[Reading] = field(default_factory=list)

    def take(self, now: Reading) -> None:
        """At the end of a program."""
        self.programs.append(now.since(self.ends[-1] if self.ends else self.before))
        self.ends.append(now)


def table(
    device: str, plans: Sequence[Plan], results: Sequence[Sequence[CommandResult]], records: Sequence[Record]
) -> Table:
    """Each program, and all of a machine."""
    all_ns = sum(reading.used_ns for record in records for reading in record.programs)
    drawn = Table(title=f"Two virtual machines, one device: {device}", caption=CAPTION, caption_justify="left")
    drawn.add_column("VM")
    drawn.add_column("program", no_wrap=True)
    drawn.add_column("verdict")
    for heading in ("calls", "round trips", "GPU time", "share"):
        drawn.add_column(heading, justify="right")
    for plan, ended, record in zip(plans, results, records, strict=True):
        for number, result in enumerate(ended):
            figures = _cells(record.programs[number], all_ns) if number < len(record.programs) else ["-"] * 4
            drawn.add_row(plan.name, result.command.name, verdict(result), *figures)
        total = functools.reduce(Reading.plus, record.programs, Reading())
        drawn.add_row(plan.name, f"all, weight {plan.weight}", "", *_cells(total, all_ns), style="bold")
        drawn.add_section()
    return drawn


def _cells(reading: Reading, all_ns: int) -> list[str]:
    share = f"{reading.used_ns / all_ns:.0%}" if all_ns else "-"
    return [str(reading.nr_calls), str(reading.nr_round_trips), format_time(reading.used_ns), share]


def verdict(result: CommandResult) -> str:
    """Of a program, in colour."""
    match result.exit_code:
        case 0:
            return "[green]PASS[/green]"
        case None:
            return "[red]not finished[/red]"
        case code:
            return f"[red]FAIL ({code})[/red]"
