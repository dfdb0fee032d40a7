"""What two ends agree on beside calls and records: the [values] of calls.toml, checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuda_api import layout
from cuda_api.layout import EMPTY, Struct

#: Who the two ends are: guest and worker; or who makes variants of kernels, and the worker.
ENDS = ("ring", "variants")
_KINDS = ("enum", "constant", "struct")
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_TEXT = re.compile(r"[ -!#-\[\]-~]+")
_END = 2**32


class ValueTableError(Exception):
    """A value that must not be; the text names it."""


@dataclass(frozen=True)
class Value:
    """An enumeration, a constant or a struct. The fields are the keys of calls.toml; of the last three one is there."""

    name: str
    about: str
    ends: str
    enum: tuple[tuple[str, int], ...] = ()
    constant: int | str | None = None
    struct: Struct = EMPTY

    @property
    def c_name(self) -> str:
        return f"FGV_{self.name.upper()}"

    @property
    def class_name(self) -> str:
        """Of an enumeration or a struct, in Python."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True)
class Values:
    """All values in the order of the table, and what members of structs and records may say."""

    all: tuple[Value, ...] = ()

    @property
    def lengths(self) -> dict[str, int]:
        """Constants that may stand for the length of an array."""
        return {value.name: value.constant for value in self.all if isinstance(value.constant, int)}

    @property
    def structs(self) -> dict[str, Struct]:
        return {value.name: value.struct for value in self.all if value.struct.size_bytes}


def read(tables: Mapping[str, Any]) -> Values:
    """The values of the table, or ValueTableError."""
    values = Values()
    for name, entry in tables.items():
        values = Values((*values.all, _read_one(name, entry if isinstance(entry, dict) else {}, values)))
    c_names = [name for value in values.all for name in _c_names(value)]
    for name in sorted({name for name in c_names if c_names.count(name) > 1}):
        raise ValueTableError(f"values: {name} is there twice")
    return values


def facts(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What guest and host must agree on: the values of the ring without their sentences."""
    ring = {name: entry for name, entry in tables.items() if entry["ends"] == "ring"}
    return {name: {key: value for key, value in entry.items() if key != "about"} for name, entry in ring.items()}


def _read_one(name: str, entry: dict[str, Any], before: Values) -> Value:
    def error(text: str) -> ValueTableError:
        return ValueTableError(f"values.{name}: {text}")

    if not _NAME.fullmatch(name):
        raise error("a name is of small letters, digits and single underscores")
    for key in sorted(entry.keys() - {"about", "ends", *_KINDS}):
        raise error(f"{key!r} means nothing")
    if entry.get("ends") not in ENDS:
        raise error(f"ends = {entry.get('ends')!r} is none of {', '.join(ENDS)}")
    about = entry.get("about")
    if not isinstance(about, str) or not about.endswith("."):
        raise error(f"about = {about!r} is no sentence")
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        raise error(f"has {' and '.join(kinds) or 'none'} of {', '.join(_KINDS)}")
    value = entry[kinds[0]]
    for problem in _problems(kinds[0], value):
        raise error(problem)
    if kinds[0] == "enum":
        return Value(name, about, entry["ends"], enum=tuple(value.items()))
    if kinds[0] == "constant":
        return Value(name, about, entry["ends"], constant=value)
    try:
        struct = layout.parse(value, before.structs, before.lengths)
    except layout.LayoutError as wrong:
        raise error(f"struct: {wrong}") from wrong
    if any(field.name == "size" for _, field in struct.fields):
        raise error("struct: size is what Python calls the size of the struct")
    return Value(name, about, entry["ends"], struct=struct)


def _problems(kind: str, value: Any) -> Iterator[str]:
    if kind == "struct" and not isinstance(value, str):
        yield f"struct = {value!r} is not a str"
    elif kind == "constant":
        is_text = isinstance(value, str) and _TEXT.fullmatch(value)
        if not is_text and not _is_number(value):
            yield f"constant = {value!r} is neither a number of 32 bits nor plain text"
    elif kind == "enum":
        if not isinstance(value, dict) or not value:
            yield f"enum = {value!r} has no members"
            return
        for member, number in value.items():
            if not _NAME.fullmatch(member):
                yield f"enum: {member!r} is no name of a member"
            if not _is_number(number):
                yield f"enum: {member} = {number!r} is no number of 32 bits"
            if list(value.values()).count(number) > 1:
                yield f"enum: {member} has the number of another member"


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _END


def _c_names(value: Value) -> Iterator[str]:
    yield value.c_name
    yield from (f"{value.c_name}_{member.upper()}" for member, _ in value.enum)
