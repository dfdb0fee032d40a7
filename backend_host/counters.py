"""The table of what workers count, read from counters.toml and checked. That file's head explains each key."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_api.c_types import Field
from cuda_api.value import Value

COUNTERS_TOML = Path(__file__).with_name("counters.toml")
_WORDS = {
    "unit": ("count", "bytes", "ns", "CUresult"),
    "keep": ("sum", "last"),
    "seen_by": ("guest", "operator", "nobody"),
}
_NAMES = {
    "count": r"nr_[a-z][a-z0-9_]*",
    "bytes": r"[a-z][a-z0-9_]*_bytes",
    "ns": r"[a-z][a-z0-9_]*_ns",
    "CUresult": r"[a-z][a-z0-9_]*_error",
}

LONGER = "longer"
"""The word for times beyond the last bound."""


class CountersError(Exception):
    """The table says something that it must not; the text names the counter."""


@dataclass(frozen=True)
class Counter:
    """One line of the table."""

    name: str
    unit: str
    keep: str
    seen_by: str
    help: str
    each: Value | None = None
    """The enumeration of which every member is counted by itself."""
    room: int = 0
    bounds_ns: tuple[int, ...] = ()
    """Of a counter of times by their length: the longest that each of its numbers counts, the last one's left out."""
    sum: str = ""
    """And the counter of what these times sum to."""

    @property
    def nr(self) -> int:
        """How many numbers it is; 0: it is one by itself."""
        return self.room or (len(self.bounds_ns) + 1 if self.bounds_ns else 0)

    @property
    def words(self) -> tuple[str, ...]:
        """By which people see the numbers of a counter of times: their bounds in ns."""
        return (*map(str, self.bounds_ns), LONGER)

    @property
    def shown_name(self) -> str:
        """What people see, and Python says."""
        return self.each.name if self.each else self.name

    @property
    def is_shown(self) -> bool:
        return self.seen_by != "nobody"

    @property
    def is_total(self) -> bool:
        """Whether people see the sum over the programs of a vGPU."""
        return self.is_shown and self.keep == "sum"

    @property
    def field(self) -> Field:
        """In the worker's slot."""
        wire = "uint32_t" if self.each else "uint64_t"
        return Field(self.name, wire, self.nr) if self.nr else Field(self.name, wire)


def read(values: tuple[Value, ...], path: Path = COUNTERS_TOML) -> tuple[Counter, ...]:
    """The table in the file, or CountersError; `values` are those of the table of calls."""
    return from_text(path.read_text(), values)


def from_text(text: str, values: tuple[Value, ...]) -> tuple[Counter, ...]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CountersError(f"the table is no TOML: {error}") from error
    enums = {value.name: value for value in values if value.enum}
    counters = tuple(_read_one(name, entry, enums) for name, entry in tables.items())
    shown = [counter.shown_name for counter in counters]
    for counter in counters:
        if shown.count(counter.shown_name) > 1:
            raise CountersError(f"{counter.name}: {counter.shown_name} is shown twice")
        if counter.sum and not any(other.name == counter.sum and other.unit == "ns" for other in counters):
            raise CountersError(f"{counter.name}: sum = {counter.sum!r} is no counter in ns")
    return counters


def layout_hash(counters: tuple[Counter, ...]) -> int:
    """Of what a page has where: who maps it compares."""
    fields = [[field.name, field.wire, field.count] for field in (counter.field for counter in counters)]
    return int.from_bytes(hashlib.sha256(json.dumps(fields).encode()).digest()[:8], "little")


def _read_one(name: str, entry: Any, enums: Mapping[str, Value]) -> Counter:
    for problem in _problems(name, entry, enums):
        raise CountersError(f"{name}: {problem}")
    each = {"each": enums[entry["each"]]} if "each" in entry else {}
    return Counter(name, **entry | each | {"bounds_ns": tuple(entry.get("bounds_ns", ()))})


def _problems(name: str, entry: Any, enums: Mapping[str, Value]) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{entry!r} is no table"
        return
    for key in sorted(entry.keys() - {*_WORDS, "help", "each", "room", "bounds_ns", "sum"}):
        yield f"{key!r} means nothing"
    for key, words in _WORDS.items():
        if entry.get(key) not in words:
            yield f"{key} = {entry.get(key)!r} is none of {', '.join(words)}"
    if not re.fullmatch(_NAMES[entry["unit"]], name):
        yield f"no name of something in {entry['unit']}"
    if not isinstance(entry.get("help"), str) or not entry["help"].endswith("."):
        yield f"help = {entry.get('help')!r} is no sentence"
    if ("each" in entry) != ("room" in entry):
        yield "each and room stand together"
    if "each" in entry and entry["each"] not in enums:
        yield f"each = {entry['each']!r} is no enumeration of cuda_api/calls.toml"
    if "each" in entry and not _has_room(entry["room"], enums[entry["each"]]):
        yield f"room = {entry['room']!r} is not for all of {entry['each']}, or odd"
    if ("bounds_ns" in entry) != ("sum" in entry):
        yield "bounds_ns and sum stand together"
    if "bounds_ns" in entry and "each" in entry:
        yield "it is by each or by bounds_ns"
    if "bounds_ns" in entry and not _are_bounds(entry["bounds_ns"]):
        yield f"bounds_ns = {entry['bounds_ns']!r} are no times that grow"


def _has_room(room: Any, enum: Value) -> bool:
    """Members lie at multiples of 8 bytes."""
    return type(room) is int and room % 2 == 0 and room > max(number for _, number in enum.enum)


def _are_bounds(bounds: Any) -> bool:
    return (
        isinstance(bounds, list)
        and bool(bounds)
        and all(type(bound) is int and bound > 0 for bound in bounds)
        and bounds == sorted(set(bounds))
    )
