"""The calls that are exported and not carried, read from refused.toml and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cuda_api.table import Table, TableError

REFUSED_TOML = Path(__file__).parent / "refused.toml"
_CALL = re.compile(r"(cu\w+) (\d{4,5})(?: (_ptsz|_ptds))?")
_KEYS = {"about", "result", "calls"}


@dataclass(frozen=True)
class RefusedCall:
    """One symbol. `since` is a CUDA version, 12010 for 12.1; `per_thread` the suffix of its twin, or empty."""

    name: str
    since: int
    per_thread: str
    result: str

    @property
    def base_name(self) -> str:
        """The name that programs give to cuGetProcAddress. What came after 13.0 keeps its suffix there."""
        return self.name if self.since > 13000 else re.sub(r"_v\d+$", "", self.name)

    @property
    def symbols(self) -> tuple[str, ...]:
        """All names that the library exports for it."""
        return (self.name, self.name + self.per_thread) if self.per_thread else (self.name,)


@dataclass(frozen=True)
class Family:
    """Calls that are not carried for one reason."""

    title: str
    about: str
    calls: tuple[RefusedCall, ...]


@dataclass(frozen=True)
class Refused:
    families: tuple[Family, ...]

    @cached_property
    def calls(self) -> tuple[RefusedCall, ...]:
        """All of them, by base name and age."""
        found = (call for family in self.families for call in family.calls)
        return tuple(sorted(found, key=lambda call: (call.base_name, call.since)))


def read(table: Table, path: Path = REFUSED_TOML) -> Refused:
    """The calls of the file. TableError for a word that is unknown, and for a call that the table carries."""
    return from_text(table, path.read_text())


def from_text(table: Table, text: str) -> Refused:
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"refused.toml is no TOML: {error}") from error
    refused = Refused(tuple(_family(title, entry) for title, entry in entries.items()))
    known = {name for call in table.symbols for name in (call.name, call.name + call.per_thread)}
    for call in refused.calls:
        for name in call.symbols:
            if name in known:
                raise TableError(f"refused.toml: {name} stands twice, or is carried")
            known.add(name)
    return refused


def _family(title: str, entry: object) -> Family:
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise TableError(f"refused.toml, {title}: needs {', '.join(sorted(_KEYS))} and nothing else")
    if not re.fullmatch(r"CUDA_ERROR_\w+", str(entry["result"])):
        raise TableError(f"refused.toml, {title}: {entry['result']!r} is no error")
    return Family(title, str(entry["about"]), tuple(_calls(title, str(entry["result"]), entry["calls"])))


def _calls(title: str, result: str, words: list[str]) -> Iterator[RefusedCall]:
    for word in words:
        match = _CALL.fullmatch(word)
        if match is None:
            raise TableError(f'refused.toml, {title}: {word!r} is not "NAME SINCE [TWIN]"')
        yield RefusedCall(match[1], int(match[2]), match[3] or "", result)
