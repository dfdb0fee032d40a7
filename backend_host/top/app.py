"""The view of `top`, which Textual runs: keys are served at once, whatever the daemon does, which threads ask.

The terminal is as it was when this ends, whether by a key or by a signal. Wrong when: the process is killed; `reset` mends the terminal then.
"""

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message as Event
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from backend_host import tables
from backend_host.errors import FairGVError
from backend_host.hand_overs import HEAD
from backend_host.ipc import Message
from backend_host.top import drawing, pages
from backend_host.top.asking import Asker
from backend_host.top.figures import ORDERS, Figures, Looks, Row, ordered
from backend_host.top.keys import Keys

_MOST_GPUS = _MOST_REMARKS = 4
"""Lines of each part, so that vGPUs have most of 24."""
_PATIENCE = 3
"""Looks without an answer before that is told."""


class _Vgpus(OptionList):
    """The last line tells of Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Programs", key_display="Enter")]


class Top(App[None]):
    """`return_code` is the exit status once it has run."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { text-style: bold; color: $text-muted; }
    Screen { overflow: hidden; }
    #waiting { margin: 1 0 0 0; color: $text-warning; }
    #gpus { margin: 1 0; }
    #head, #columns { text-wrap: nowrap; text-overflow: ellipsis; }
    #columns { text-style: bold; }
    OptionList, OptionList:focus { height: 1fr; border: none; padding: 0; background: $background; background-tint: transparent; }
    OptionList > .option-list--option { padding: 0; }
    OptionList > .option-list--option-highlighted, OptionList:focus > .option-list--option-highlighted {
        background: $primary-muted; color: $foreground; text-style: bold;
    }
    OptionList { scrollbar-size: 1 1; min-height: 2; }
    #remarks { color: $text-warning; }
    #said { color: $text-accent; }
    #said.is-error { color: $text-error; text-style: bold; }
    .is-stale #gpus, .is-stale OptionList { opacity: 50%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,Q,ctrl+c", "end", "End", key_display="q", priority=True),
        Binding("plus", "weigh(1)", "Weight", key_display="+ -"),
        Binding("minus", "weigh(-1)", show=False),
        Binding("s", "sort", "Sort"),
        Binding("h", "hand_overs", "Hand-overs"),
        Binding("space", "look", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]

    class Looked(Event):
        """The daemon's status came."""

        def __init__(self, status: Message) -> None:
            super().__init__()
            self.status = status

    class Missed(Event):
        """It did not come, and why."""

        def __init__(self, error: FairGVError) -> None:
            super().__init__()
            self.error = error

    class Said(Event):
        """A sentence that a question brought."""

        def __init__(self, sentence: str, *, is_error: bool = False) -> None:
            super().__init__()
            self.sentence = sentence
            self.is_error = is_error

    class HandedOver(Event):
        """The last hand-overs came."""

        def __init__(self, told: Sequence[Message]) -> None:
            super().__init__()
            self.told = told

    def __init__(self, asker: Asker, looks: Looks, figures: Figures, seconds: float) -> None:
        super().__init__()
        self._asker = asker
        self._looks = looks
        self._figures = figures
        self._seconds = seconds
        self._orders = list(ORDERS)
        self._rows: list[Row] = []
        self._is_asking = False
        self._nr_skipped = 0
        self._is_stale = False
        self._hand_overs: Sequence[Message] | None = None
        self._hand_overs_of: int | None = None
        """The Gpu of which they are on the screen."""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="waiting")
        yield Static(id="gpus")
        yield Static(id="columns")
        yield _Vgpus(id="vgpus")
        yield Static(id="remarks")
        yield Static(id="said")
        yield Keys(("focused", _Vgpus.BINDINGS), ("app", self.BINDINGS))

    def on_load(self) -> None:
        """Signals end it as keys do, from before anything is made of the terminal: all of that is undone."""
        for number, status in (
            (signal.SIGINT, 0),
            (signal.SIGTERM, 128 + signal.SIGTERM),
            (signal.SIGHUP, 128 + signal.SIGHUP),
        ):
            asyncio.get_running_loop().add_signal_handler(number, partial(self._end, status))

    def on_mount(self) -> None:
        """The first figures are there already."""
        self.query_one("#vgpus").focus()
        self.draw()
        self.set_interval(self._seconds, self.action_look)

    @on(Resize)
    def resized(self) -> None:
        """Lines are as wide as the terminal."""
        self.call_after_refresh(self.draw)

    def _end(self, status: int) -> None:
        self._asker.end()
        self.exit(return_code=status)

    def action_end(self) -> None:
        self._end(0)

    # What the daemon is asked, in threads.

    def action_look(self) -> None:
        """Asks, unless the answer to the look before is still to come."""
        if self._is_asking:
            self._nr_skipped += 1
            if self._nr_skipped >= _PATIENCE:
                self._be_stale(f"the daemon has not answered for {self._nr_skipped} looks")
            return
        self._is_asking = True
        self._nr_skipped = 0
        self._ask_status()
        if self._hand_overs_of is not None:
            self._ask_hand_overs(self._hand_overs_of)

    @work(thread=True, group="status")
    def _ask_status(self) -> None:
        try:
            self.post_message(self.Looked(self._asker.ask("status")))
        except FairGVError as error:
            self.post_message(self.Missed(error))

    @work(thread=True, group="hand-overs")
    def _ask_hand_overs(self, gpu: int) -> None:
        try:
            self.post_message(self.HandedOver(self._asker.ask("grants", after=0, gpu=str(gpu))["hand_overs"]))
        except FairGVError as error:
            self.post_message(self.Said(f"{error}", is_error=True))

    @work(thread=True, group="set")
    def _ask_weight(self, name: str, weight: int) -> None:
        try:
            self.post_message(self.Said(self._asker.ask("set", name=name, weight=weight)["text"]))
        except FairGVError as error:
            self.post_message(self.Said(f"{error}", is_error=True))

    @on(Looked)
    def looked(self, event: Looked) -> None:
        """Another second."""
        self._is_asking = False
        self._figures = self._looks.add(event.status)
        if self._is_stale:
            self._is_stale = False
            self.say("the daemon answers again")
        if self._figures.is_restarted:
            self.say(f"the daemon was started anew, as process {event.status['pid']}")
        self.draw()

    @on(Missed)
    def missed(self, event: Missed) -> None:
        """It is asked again at the next look."""
        self._is_asking = False
        self._be_stale(f"{event.error}")

    def _be_stale(self, why: str) -> None:
        """The figures stay, and are said to be old."""
        self._is_stale = True
        self.say(f"{why}. These are its last figures; it is asked again and again", is_error=True)
        self.draw()

    @on(Said)
    def said(self, event: Said) -> None:
        """A new weight is seen at once."""
        self.say(event.sentence, is_error=event.is_error)
        if not event.is_error:
            self.action_look()

    @on(HandedOver)
    def handed_over(self, event: HandedOver) -> None:
        """On their page, if it is still there."""
        self._hand_overs = event.told
        self._draw_page()

    # What is drawn.

    def say(self, sentence: str, *, is_error: bool = False) -> None:
        """At the bottom, until there is something else to say or a key does something."""
        said = self._main.query_one("#said", Static)
        said.update(tables.folded(sentence))
        said.set_class(is_error, "is-error")
        said.display = bool(sentence)

    @property
    def _main(self) -> Screen[object]:
        """The screen below pages and questions."""
        return self.screen_stack[0]

    def draw(self) -> None:
        """All of the screen, from the figures."""
        main, figures, width = self._main, self._figures, self.size.width
        main.set_class(self._is_stale, "is-stale")
        main.query_one("#head", Static).update(drawing.head(figures, self._orders[0], self._seconds))
        self._show("#waiting", tables.waiting(figures.status))
        main.query_one("#gpus", Static).update(Group(*drawing.gpus(figures.gpus, width, _MOST_GPUS)))
        self._set_rows(ordered(figures.vgpus, self._orders[0]))
        self._show("#remarks", drawing.remarks(figures, _MOST_REMARKS))
        self._draw_page()

    def _show(self, part: str, lines: Sequence[Text]) -> None:
        """A part of the screen that has a place only while there is something in it."""
        shown = self._main.query_one(part, Static)
        shown.update(Group(*lines))
        shown.display = bool(lines)

    def _set_rows(self, rows: list[Row]) -> None:
        """The vGPU that was selected stays so, wherever it stands now."""
        shown = self._main.query_one(OptionList)
        name = self._selected.name if self._selected else None
        self._rows = rows
        names = [row.name for row in rows]
        place = names.index(name) if name in names else 0 if rows else None
        if names != [option.id for option in shown.options]:
            with self.prevent(OptionList.OptionHighlighted):
                shown.set_options(Option("", id=each) for each in names)
                shown.highlighted = place
        self._draw_rows()

    def _draw_rows(self) -> None:
        shown = self._main.query_one(OptionList)
        is_longer = len(self._rows) > shown.size.height > 0
        table = drawing.Table(self._rows, len(self._figures.gpus), self.size.width - int(is_longer))
        self._main.query_one("#columns", Static).update(
            table.head if self._rows else Text(tables.no_vgpu(self._figures.status))
        )
        for place, row in enumerate(self._rows):
            line = table.row(row, is_selected=place == shown.highlighted)
            shown.replace_option_prompt_at_index(place, line)

    def _draw_page(self) -> None:
        """One that is still being made asks for its content itself."""
        if isinstance(self.screen, pages.Page) and self.screen.is_mounted:
            self.screen.draw()

    @property
    def _selected(self) -> Row | None:
        place = self._main.query_one(OptionList).highlighted
        return self._rows[place] if place is not None and place < len(self._rows) else None

    @on(OptionList.OptionHighlighted)
    def highlighted(self) -> None:
        """The mark goes along."""
        self._draw_rows()

    # What keys do.

    @on(OptionList.OptionSelected)
    def show_programs(self) -> None:
        """Of the selected vGPU."""
        if row := self._selected:
            content = partial(self._programs_of, row.name)
            self.push_screen(pages.Page(f"Programs of {row.name}", content))

    def _programs_of(self, name: str) -> RenderableType:
        return pages.programs_text(self._figures.status["vgpus"], name)

    def action_hand_overs(self) -> None:
        gpus = self._figures.status["gpus"]
        if not gpus:
            return
        self._hand_overs = None
        self._hand_overs_of = self._selected.entry["gpu_number"] if self._selected else gpus[0]["number"]
        self._ask_hand_overs(self._hand_overs_of)
        page = pages.Page(
            f"Hand-overs of GPU {self._hand_overs_of}",
            lambda: pages.hand_overs_text(self._hand_overs),
            head=HEAD,
            is_at_end=True,
        )
        self.push_screen(page, self._leave_hand_overs)

    def _leave_hand_overs(self, _: None) -> None:
        self._hand_overs_of = None

    def action_help(self) -> None:
        self.push_screen(pages.Page("Keys and columns", pages.help_text))

    def action_sort(self) -> None:
        """By the next order."""
        self._orders = [*self._orders[1:], self._orders[0]]
        self.say("")
        self.draw()

    def action_weigh(self, change: int) -> None:
        """Asks before it sends."""
        if row := self._selected:
            self.say("")
            question = pages.WeightQuestion(row.name, row.entry["weight"], change)
            self.push_screen(question, partial(self._set_weight, row.name))

    def _set_weight(self, name: str, weight: int | None) -> None:
        if weight is not None:
            self._ask_weight(name, weight)
