"""What `top` shows: shares and waits of the time between two looks at the daemon's status, and a minute of them.

Nothing is made up: what is not known is None. Wrong when: two vGPUs of one name follow each other between two looks, and the second has used
more than the first.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from backend_host.ipc import Message

MINUTE_NS = 60_000_000_000
_ENOUGH = 0.9
"""Of what is due: a share of a second wavers by a turn, of 6 or 30 ms, at its begin and at its end."""


class _Point(NamedTuple):
    at_ns: int
    used_ns: int


class Minute:
    """GPU time that one used, look by look, for a minute."""

    def __init__(self) -> None:
        self._points: list[_Point] = []

    def note(self, at_ns: int, used_ns: int) -> None:
        """Up to a moment, later than the one before."""
        self._points.append(_Point(at_ns, used_ns))
        while len(self._points) > 1 and self._points[1].at_ns <= at_ns - MINUTE_NS:
            del self._points[0]

    def shares(self, nr: int) -> list[float | None]:
        """Of the minute in so many spans, the oldest first. They begin at multiples of their length, so that a span keeps its figure while time
        goes on; the last is the one that now is in. None: nobody looked."""
        if len(self._points) < 2:
            return [None] * nr
        span_ns = MINUTE_NS // nr
        end_ns = -(-self._points[-1].at_ns // span_ns) * span_ns
        return [self._share(*ends) for ends in pairwise(end_ns - span_ns * left for left in range(nr, -1, -1))]

    def _share(self, begin_ns: int, end_ns: int) -> float | None:
        """Of a span, or of as much of it as is known."""
        begin_ns, end_ns = max(begin_ns, self._points[0].at_ns), min(end_ns, self._points[-1].at_ns)
        return (self._used_ns(end_ns) - self._used_ns(begin_ns)) / (end_ns - begin_ns) if begin_ns < end_ns else None

    def _used_ns(self, at_ns: int) -> float:
        """Up to a moment; between two looks it grew evenly."""
        place = bisect_left(self._points, at_ns, key=attrgetter("at_ns"))
        if place == 0:
            return self._points[0].used_ns
        before, after = self._points[place - 1 : place + 1]
        part = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
        return before.used_ns + (after.used_ns - before.used_ns) * part


@dataclass(frozen=True)
class Row:
    """A Gpu or a vGPU: `entry` is what the status says of it."""

    entry: Message
    share: float
    """Of its Gpu's time since the look before; at the first look, in the shortest window that the daemon tells of."""
    wait_ns: float | None
    """Mean of the waits for a turn that ended since the look before; None: none did, or there was none before."""
    minute: Minute
    is_short: bool = False
    """Of a vGPU: it got less than its entitled part of the time that all used."""

    @property
    def name(self) -> str:
        return str(self.entry["name"])


@dataclass(frozen=True)
class Figures:
    """Of one look."""

    status: Message
    gpus: Sequence[Row]
    vgpus: Sequence[Row]
    is_restarted: bool = False
    """Another daemon answered than at the look before."""


class Looks:
    """One after the other."""

    def __init__(self) -> None:
        self._before: Message | None = None
        self._minutes: dict[Hashable, Minute] = {}

    def add(self, status: Message) -> Figures:
        """The newest one."""
        before, self._before = self._before, status
        is_restarted = before is not None and _is_another(before, status)
        if before is None or is_restarted:
            before, self._minutes = {"uptime_ns": status["uptime_ns"], "gpus": [], "vgpus": []}, {}
        minutes: dict[Hashable, Minute] = {}
        gpus = self._rows(before, status, "gpus", "number", minutes)
        vgpus = self._rows(before, status, "vgpus", "name", minutes)
        used = {gpu.entry["number"]: gpu.share for gpu in gpus}
        figures = Figures(
            status=status,
            gpus=gpus,
            vgpus=[replace(row, is_short=_is_short(row, used)) for row in vgpus],
            is_restarted=is_restarted,
        )
        self._minutes = minutes
        return figures

    def _rows(
        self, before: Message, now: Message, what: str, key: str, minutes: dict[Hashable, Minute]
    ) -> Sequence[Row]:
        earlier = {entry[key]: entry for entry in before[what]}
        passed_ns = now["uptime_ns"] - before["uptime_ns"]
        rows = []
        for entry in now[what]:
            old = earlier.get(entry[key])
            if old is not None and (old["used_ns"] > entry["used_ns"] or passed_ns <= 0):
                old = None  # another one of that name
            minute = self._minutes.get((what, entry[key])) if old is not None else None
            minutes[what, entry[key]] = minute = minute or Minute()
            minute.note(now["uptime_ns"], entry["used_ns"])
            share = next(iter(entry["recent_shares"].values()))
            if old is not None:
                share = (entry["used_ns"] - old["used_ns"]) / passed_ns
            rows.append(Row(entry, share, _wait_ns(old, entry), minute))
        return rows


def _is_short(row: Row, used: Mapping[int, float]) -> bool:
    """`used`: the part of the time that each Gpu was."""
    entitled: float | None = row.entry["entitled_share"]
    return entitled is not None and row.share < entitled * min(1.0, used[row.entry["gpu_number"]]) * _ENOUGH


def _is_another(before: Message, now: Message) -> bool:
    return bool(before["pid"] != now["pid"] or before["uptime_ns"] > now["uptime_ns"])


def _wait_ns(before: Message | None, now: Message) -> float | None:
    """Of a vGPU; a Gpu has none."""
    if before is None or "totals" not in now:
        return None
    nr = _nr_waits(now) - _nr_waits(before)
    waited_ns: int = now["totals"]["wait_ns"] - before["totals"]["wait_ns"]
    return waited_ns / nr if nr > 0 <= waited_ns else None


def _nr_waits(entry: Message) -> int:
    counts: Mapping[str, int] = entry["totals"]["nr_waits"]
    return sum(counts.values())


def _by_share(row: Row) -> float:
    """In whole percent: who gets as much as another stays where it is."""
    return -round(row.share, 2)


def _by_memory(row: Row) -> float:
    return -float(row.entry["memory_bytes"])


def _by_wait(row: Row) -> float:
    return -row.wait_ns if row.wait_ns is not None else 1.0


ORDERS = {"share": _by_share, "name": None, "memory": _by_memory, "wait": _by_wait}
"""By which rows can be sorted, the greatest first; equal ones go by their names."""


def ordered(rows: Iterable[Row], order: str) -> list[Row]:
    """By one of ORDERS."""
    by_name = sorted(rows, key=attrgetter("name"))
    key = ORDERS[order]
    return by_name if key is None else sorted(by_name, key=key)
