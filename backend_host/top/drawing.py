"""Figures as lines of text, for the view and for `--once`. A line is as wide as it is told, or cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from rich.cells import cell_len
from rich.text import Text

from backend_host import tables
from backend_host.ipc import Message
from backend_host.sizes import format_size, format_time, format_uptime
from backend_host.top.bars import FAINT, SHORT, bar, curve, scale_of, whole_bar
from backend_host.top.figures import Figures, Row, ordered

UNKNOWN = "-"
HELP = (
    ("up, down", "select a vGPU"),
    ("Enter", "its programs"),
    ("+ -", "its weight up and down, as fairgv-host set does; asks first"),
    ("s", "sort by share, name, memory, wait"),
    ("h", "the last hand-overs of its Gpu, as fairgv-host grants has them"),
    ("space", "look again at once"),
    ("Esc", "back from a page"),
    ("q, Ctrl-C", "end"),
)
COLUMNS_HELP = (
    ("got", "share of the Gpu's time since the look before; the bar"),
    ("entitled", "what it is entitled to now; the mark ┃. Dots: it got less."),
    ("", "In the other colour: less than its part of what all used"),
    ("minute", "its share in the last minute, scaled as the bars"),
    ("wait", "mean wait for a turn since the look before"),
    ("memory", "device memory, and the quota if it has one"),
    ("demand", "what its programs would use, each alone, in the last minute"),
    ("min-max", "least over greatest part of their due in a minute: 1 is fair"),
    (UNKNOWN, "not known, or none"),
)
_LEAST_NAME, _ENOUGH_NAME, MOST_NAME = 6, 16, 24
_LEAST_BAR, _MOST_BAR = 10, 40
_LEAST_CURVE, _MOST_CURVE = 6, 60
_SELECTED, _NOT_SELECTED = "▸ ", "  "


def percent(share: float | None) -> str:
    """In five cells as a rule; what is above 1 was charged as long work ended."""
    if share is None:
        return UNKNOWN
    return f"{share:.1%}" if share < 0.9995 else f"{share:.0%}"


def short_size(nr_bytes: int) -> str:
    """As options take it: `512M`."""
    return format_size(nr_bytes).replace(" ", "").removesuffix("iB")


def _memory(row: Row) -> str:
    used, quota = short_size(row.entry["memory_bytes"]), row.entry["quota_bytes"]
    return f"{used}/{short_size(quota)}" if quota else used


def _wait(row: Row) -> str:
    return UNKNOWN if row.wait_ns is None else format_time(round(row.wait_ns))


def _got(row: Row) -> Text:
    return Text(percent(row.share), SHORT if row.is_short else "")


@dataclass(frozen=True)
class _Column:
    """Figures stand at the right. `width` is the least; a flexible one gets more where there is room."""

    head: str
    cell: Callable[[Row, int], Text]
    width: int
    is_left: bool = False
    most: int = 0

    def shown(self, text: Text, width: int) -> Text:
        text.truncate(width, overflow="ellipsis")
        text.align("left" if self.is_left else "right", width)
        return text


def _figure(head: str, show: Callable[[Row], str | Text], width: int) -> _Column:
    def cell(row: Row, width: int) -> Text:
        shown = show(row)
        return Text(shown) if isinstance(shown, str) else shown

    return _Column(head, cell, width)


def _columns(rows: Sequence[Row], nr_gpus: int, most_name: int) -> list[_Column]:
    """From the left, the most important first."""

    def widest(show: Callable[[Row], str], least: int) -> int:
        return max([least, *(cell_len(show(row)) for row in rows)])

    longest = widest(attrgetter("name"), _LEAST_NAME)
    name = _Column(
        "vGPU",
        lambda row, width: tables.printable(row.name),
        min(_ENOUGH_NAME, longest),
        is_left=True,
        most=min(most_name, longest),
    )
    scale = 100 * scale_of(share for row in rows for share in (row.share, row.entry["entitled_share"] or 0.0))
    gpu = [_figure("GPU", lambda row: str(row.entry["gpu_number"]), 3)] if nr_gpus > 1 else []
    return [
        name,
        *gpu,
        _figure("weight", lambda row: str(row.entry["weight"]), 6),
        _Column(
            f"0 - {scale:.3g} %",
            lambda row, width: bar(row.share, row.entry["entitled_share"], width, scale / 100, is_short=row.is_short),
            _LEAST_BAR,
            is_left=True,
            most=_MOST_BAR,
        ),
        _figure("got", _got, 5),
        _figure("entitled", lambda row: percent(row.entry["entitled_share"]), 8),
        _Column(
            "minute",
            lambda row, width: curve(row.minute.shares(width), scale / 100),
            _LEAST_CURVE,
            is_left=True,
            most=_MOST_CURVE,
        ),
        _figure("wait", _wait, 7),
        _figure("memory", _memory, widest(_memory, 7)),
        _figure("programs", lambda row: str(len(row.entry["clients"])), 8),
        _figure("demand", lambda row: percent(row.entry.get("demand")), 6),
    ]


class Table:
    """The vGPUs in lines of `width` cells; columns that have no place are left out, from the right. Names have `most_name` at most."""

    def __init__(self, rows: Sequence[Row], nr_gpus: int, width: int, most_name: int = MOST_NAME) -> None:
        columns = _columns(rows, nr_gpus, most_name)
        room = width - len(_SELECTED)
        while len(columns) > 1 and sum(column.width + 1 for column in columns) - 1 > room:
            columns.pop()
        self._columns = columns
        self._widths = _widths(columns, room)

    @property
    def head(self) -> Text:
        """Above the rows."""
        heads = [
            column.shown(Text(column.head), width) for column, width in zip(self._columns, self._widths, strict=True)
        ]
        return self._line(_NOT_SELECTED, heads, "bold")

    def row(self, row: Row, *, is_selected: bool = False) -> Text:
        """One vGPU's line."""
        cells = [
            column.shown(column.cell(row, width), width)
            for column, width in zip(self._columns, self._widths, strict=True)
        ]
        return self._line(_SELECTED if is_selected else _NOT_SELECTED, cells, "")

    @staticmethod
    def _line(begin: str, cells: Sequence[Text], style: str) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis", style=style)
        return line.append(begin).append_text(Text(" ").join(cells))


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """What is left goes to names, then to bars and curves alike."""
    widths = [column.width for column in columns]
    left = room - sum(widths) - (len(columns) - 1)
    if columns:
        more = min(left, max(0, columns[0].most - widths[0]))
        widths[0] += more
        left -= more
    flexible = [place for place, column in enumerate(columns) if place and column.most]
    while left > 0 and (able := [place for place in flexible if widths[place] < columns[place].most]):
        place = min(able, key=lambda place: widths[place])
        widths[place] += 1
        left -= 1
    return widths


def head(figures: Figures, order: str, seconds: float) -> Text:
    """The first line."""
    nr = len(figures.vgpus)
    return tables.printable(
        f"fairgv-host top, up {format_uptime(figures.status['uptime_ns'])}, {nr} vGPU{'' if nr == 1 else 's'} "
        f"sorted by {order}, every {seconds:g} s"
    )


def gpus(rows: Sequence[Row], width: int, most: int | None = None) -> list[Text]:
    """A line each, `most` at most: the last one tells how many more there are."""
    shown = rows if most is None or len(rows) <= most else rows[: most - 1]
    lines = [_gpu(row, width) for row in shown]
    return [*lines, Text(f"... and {len(rows) - len(shown)} more Gpus")] if len(shown) < len(rows) else lines


def _gpu(row: Row, width: int) -> Text:
    entry = row.entry
    bars = max(_LEAST_BAR, min(_MOST_BAR, (width - 56) // 2))
    ratio = entry["min_max_ratio"]
    line = Text(f"GPU {entry['number']} ", no_wrap=True, overflow="ellipsis", style="bold")
    line.append(_state(entry))
    line.append_text(whole_bar(row.share, bars)).append(f" {percent(row.share):>5} in use ")
    line.append_text(curve(row.minute.shares(bars)))
    line.append("" if ratio is None else f" min-max {ratio:.2f}")
    line.append(f" {short_size(entry['used_bytes'])}/{short_size(entry['memory_bytes'])}")
    line.append_text(tables.printable(f" {entry['name']}"))
    line.truncate(width, overflow="ellipsis")
    return line


def _state(gpu: Message) -> str:
    """In a word, where it is not as it should be. A daemon of an earlier release tells nothing of that."""
    return "failed " if gpu.get("failed") else "drained " if gpu.get("is_drained") else ""


def remarks(figures: Figures, most: int | None = None) -> list[Text]:
    """What there is to say beside, a line each, the gravest first; `most` at most."""
    vgpus = figures.status["vgpus"]
    spaces = tables.spaces(figures.status.get("spaces", []))
    notes = [*spaces, *tables.late_work(vgpus), *tables.debts(figures.status["debts"]), *tables.held_back(vgpus)]
    lines = [tables.printable(note.plain) for note in notes]
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], Text(f"... and {len(lines) - most + 1} more remarks", FAINT)]


def once(figures: Figures, width: int, most_name: int = MOST_NAME) -> list[Text]:
    """All of it, however many lines that are, by share."""
    rows = ordered(figures.vgpus, "share")
    table = Table(rows, len(figures.gpus), width, most_name)
    parts = [
        tables.waiting(figures.status),
        gpus(figures.gpus, width),
        [table.head, *map(table.row, rows)] if rows else [Text(tables.no_vgpu(figures.status))],
        remarks(figures),
    ]
    return [*chain.from_iterable((Text(), *part) for part in parts if part)][1:]
