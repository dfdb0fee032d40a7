"""What lies over the view of `top` for a while: a page to read, and a question."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from backend_host import hand_overs, tables
from backend_host.entitlement import MAX_WEIGHT, PARAMETERS
from backend_host.ipc import Message
from backend_host.top import drawing


class Page(ModalScreen[None]):
    """Something to read. `content` is asked anew at each look; `head` stays above it. `is_at_end`: its end is what one looks at."""

    CSS = """
    Page { align: center middle; }
    Page > Vertical { width: 100%; height: 100%; border: round $primary; background: $background; }
    Page VerticalScroll { scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,h,question_mark", "dismiss", "Back")]

    def __init__(
        self, title: str, content: Callable[[], RenderableType], *, head: str = "", is_at_end: bool = False
    ) -> None:
        super().__init__()
        self._title = title
        self._content = content
        self._head = head
        self._is_at_end = is_at_end

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = tables.printable(f"{self._title}; Esc goes back")
            if self._head:
                yield Static(Text(self._head, "bold", no_wrap=True))
            with VerticalScroll() as scroll:
                yield Static(self._content(), id="content")
                if self._is_at_end:
                    scroll.anchor()

    def draw(self) -> None:
        """What there is to read now."""
        self.query_one("#content", Static).update(self._content())


class WeightQuestion(ModalScreen[int | None]):
    """Whether a vGPU is to get another weight; the answer is that weight, or None."""

    CSS = """
    WeightQuestion { align: center middle; }
    WeightQuestion > Static { width: auto; max-width: 90%; height: auto; border: round $warning; background: $background; padding: 1 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus", "change(1)", "Up"),
        Binding("minus", "change(-1)", "Down"),
        Binding("enter,y", "answer(True)", "Yes"),
        Binding("escape,n", "answer(False)", "No"),
    ]

    def __init__(self, name: str, weight: int, change: int) -> None:
        super().__init__()
        self._name = name
        self._before = weight
        self._weight = weight
        self._change = change

    def compose(self) -> ComposeResult:
        yield Static()

    def on_mount(self) -> None:
        """The key that asked counts."""
        self.action_change(self._change)

    def action_change(self, change: int) -> None:
        """Up or down, as far as weights go."""
        self._weight = max(1, min(MAX_WEIGHT, self._weight + change))
        sentence = f"{self._name}: weight {self._weight} instead of {self._before}?"
        if self._weight == self._before:
            sentence = f"{self._name}: weight {self._before} stays; {PARAMETERS['weight'].rule}"
        keys = "+ and - change it, Enter or y does it, Esc or n does not"
        self.query_one(Static).update(Group(tables.printable(sentence), Text(), Text(keys, "dim")))

    def action_answer(self, is_yes: bool) -> None:
        """None where nothing would change."""
        self.dismiss(self._weight if is_yes and self._weight != self._before else None)


def help_text() -> RenderableType:
    """The keys, and what the columns are."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, what in drawing.HELP:
        table.add_row(key, what)
    table.add_row()
    for column, what in drawing.COLUMNS_HELP:
        table.add_row(column, what)
    return table


def programs_text(vgpus: Sequence[Message], name: str) -> RenderableType:
    """Of one vGPU, by its name."""
    found = [entry for entry in vgpus if entry["name"] == name]
    return tables.clients(found, is_long=True) if found else Text("this vGPU is gone")


def hand_overs_text(told: Sequence[Message] | None) -> RenderableType:
    """As `grants` prints them, below HEAD; None: the answer is still to come."""
    if told is None:
        return Text("asking the daemon ...")
    if not told:
        return Text("no hand-over yet")
    return Text("\n".join(map(hand_overs.line, told)))
