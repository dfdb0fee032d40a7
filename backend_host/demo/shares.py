"""Who got what of the device in a stretch of time, beside what was due to each: live, and as a table with a verdict.

Live figures are those of `fairgv-host top`, drawn with its bars. The table divides the GPU time that was used in the whole stretch; what is due
is the policy's own division. The verdict is the min-max ratio: the least part of its due that one got over the greatest.

Wrong when: somebody does not want the GPU all the time. Then less is due to it, and more to the others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from backend_host.entitled import entitled_shares
from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError
from backend_host.fairness import Received, min_max_ratio
from backend_host.ipc import Message
from backend_host.top.bars import bar
from backend_host.top.drawing import percent
from backend_host.top.figures import Row

FAIR = 0.9
"""A ratio from here on says that shares follow the weights. A stretch of seconds begins and ends within somebody's turn."""
_LEAST_BAR, _MOST_BAR = 10, 40
_BESIDE_BAR = 43
"""Cells of a line that the bar has not, with a name of six letters. Three stay free: a terminal writes ^C there, which must not wrap."""


@dataclass(frozen=True)
class Share:
    """Of one vGPU. `got` and `due` are parts of the GPU time that all of them used, 0 to 1."""

    name: str
    weight: int
    got: float
    due: float

    @property
    def of_due(self) -> float:
        """What it got over what was due: 1 is fair."""
        return self.got / self.due


@dataclass(frozen=True)
class Stretch:
    """Of vGPUs that wanted the GPU all the time."""

    passed_ns: int
    shares: tuple[Share, ...]

    @classmethod
    def between(cls, before: Message, after: Message) -> Self:
        """Two statuses of a daemon. FairGVError names who had no program any more, and so wanted nothing."""
        earlier = {entry["name"]: entry["used_ns"] for entry in before["vgpus"]}
        entries = sorted(after["vgpus"], key=lambda entry: str(entry["name"]))
        for entry in entries:
            if not entry["clients"]:
                raise FairGVError(f"{entry['name']}: its program has ended, so there is nothing to share")
        used = [entry["used_ns"] - earlier[entry["name"]] for entry in entries]
        due = entitled_shares({number: Entitlement(entry["weight"]) for number, entry in enumerate(entries)})
        shares = [
            Share(entry["name"], entry["weight"], used[number] / max(1, sum(used)), due[number])
            for number, entry in enumerate(entries)
        ]
        return cls(after["uptime_ns"] - before["uptime_ns"], tuple(shares))

    @property
    def weights(self) -> str:
        """As one says them: 1:2."""
        return ":".join(str(share.weight) for share in self.shares)

    @property
    def ratio(self) -> float:
        """Min-max; 0 where nobody got anything."""
        received = (Received(of_due=share.of_due, is_steady=True) for share in self.shares)
        return min_max_ratio(received) or 0.0


def bars(rows: Sequence[Row], width: int) -> list[Text]:
    """A line for each vGPU, of `width` cells as a rule."""
    names = max(len(row.name) for row in rows)
    cells = max(_LEAST_BAR, min(_MOST_BAR, width - _BESIDE_BAR))
    lines = []
    for row in rows:
        entitled = row.entry["entitled_share"]
        line = Text(f"  {row.name:<{names}}  weight {row.entry['weight']:<2} ")
        line.append_text(bar(row.share, entitled, cells, is_short=row.is_short))
        line.append(f" got {percent(row.share):>5} due {percent(entitled):>5}")
        lines.append(line)
    return lines


def line(rows: Sequence[Row]) -> str:
    """The same where nothing can be drawn."""
    return ", ".join(
        f"{row.name} got {percent(row.share)} (due {percent(row.entry['entitled_share'])})" for row in rows
    )


@contextmanager
def live(console: Console, say: Callable[[str], None]) -> Iterator[Callable[[str, Sequence[Row]], None]]:
    """What shows rows below a head: in place on a terminal, else by a line that is said each time."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda _, rows: say(line(rows))
        return
    with Live(console=console, auto_refresh=False) as screen:
        yield lambda head, rows: screen.update(Group(Text(f"  {head}"), *bars(rows, console.width)), refresh=True)


def table(stretches: Sequence[Stretch]) -> Table:
    """All stretches, one below the other."""
    drawn = Table(title="Programs without end: the share of each, and what was due to it")
    drawn.add_column("weights")
    drawn.add_column("VM")
    for heading in ("got", "due", "got / due", "min-max ratio"):
        drawn.add_column(heading, justify="right")
    for stretch in stretches:
        for number, share in enumerate(stretch.shares):
            is_first = number == 0
            drawn.add_row(
                f"{stretch.weights}, {stretch.passed_ns / 1e9:.0f} s" if is_first else "",
                share.name,
                percent(share.got),
                percent(share.due),
                f"{share.of_due:.2f}",
                f"{stretch.ratio:.2f}" if is_first else "",
            )
        drawn.add_section()
    return drawn


def judged(stretches: Sequence[Stretch]) -> str:
    """The verdict, by the worst of the stretches."""
    worst = min(stretches, key=lambda stretch: stretch.ratio)
    follow = "Shares follow the weights" if worst.ratio >= FAIR else "Shares do not follow the weights here"
    return (
        f"{follow}: of what was due to it, the worse-off VM got {worst.ratio:.0%} as much as the better-off, "
        f"with the weights {worst.weights}; 100% is fair."
    )
