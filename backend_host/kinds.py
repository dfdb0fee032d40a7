"""The rows of backend_host/worker/calls/kinds.c, read for the page that tells of them.

Wrong when: a row is put together by a macro. It is not found then, and the number of rows is no longer that of the array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS_C = Path(__file__).with_name("worker") / "calls" / "kinds.c"
PAGE = Path(__file__).parent.parent / "docs" / "objects.md"
_PLACE = re.compile(r"(<!-- kinds: begin\b[^>]*-->).*?(<!-- kinds: end -->)", re.DOTALL)
_ARRAY = re.compile(r"fgw_kinds\[FGW_NR_KINDS\] = \{\n(.*?)\n\};", re.DOTALL)
_ROW = re.compile(r"(?:/\*(?P<saved>(?:(?!\*/).)*)\*/\s*)?\[(?P<key>\w+)\] = \{(?P<members>[^{}]*)\},", re.DOTALL)
_MEMBER = re.compile(r"\.(\w+) =\s*((?:\"[^\"]*\"\s*|[^\",])+)")
_BELOW = re.compile(r"FGW_BELOW\((\w+)\)")


class KindsError(Exception):
    """A row says something that the page cannot tell; the text names it."""


@dataclass(frozen=True)
class Kind:
    """One row: a kind of handles."""

    name: str
    above: tuple[str, ...]
    """Names of the kinds that it may go with; "client" for none of them."""
    is_of_context: bool
    """It goes with the context that was current when it was made."""
    saved: str
    """What is saved of it, "" when it cannot be saved."""
    cannot: str
    """Why it cannot be saved, "" when it can."""


def _text(value: str) -> str:
    """A C string, in pieces or whole."""
    return "".join(re.findall(r'"([^"]*)"', value))


def _members(text: str) -> dict[str, str]:
    return {name: value.strip() for name, value in _MEMBER.findall(text)}


def _kind(members: dict[str, str], saved: str, names: dict[str, str]) -> Kind:
    name, can = _text(members["name"]), "save" in members
    if can != ("restore" in members) or can == ("cannot" in members):
        raise KindsError(f"{name}: it has save and restore, or cannot")
    if can != bool(saved):
        raise KindsError(f"{name}: a comment before the row says what is saved, where something is")
    above = tuple(names[key] for key in _BELOW.findall(members.get("above", "")) if key in names)
    if len(above) != members.get("above", "").count("FGW_BELOW") or not above:
        raise KindsError(f"{name}: above = {members.get('above')} are no kinds")
    return Kind(name, above, members.get("is_of_context") == "true", saved, _text(members.get("cannot", "")))


def from_text(text: str) -> tuple[Kind, ...]:
    """In the order of the file."""
    array = _ARRAY.search(text)
    if array is None:
        raise KindsError("there is no array fgw_kinds")
    rows = [(row["key"], _members(row["members"]), row["saved"] or "") for row in _ROW.finditer(array[1])]
    if len(rows) != array[1].count("] = {"):
        raise KindsError("a row is none that this reader knows")
    if unnamed := [key for key, members, _ in rows if "name" not in members]:
        raise KindsError(f"{unnamed[0]}: it has no name")
    names = {"0": "client", **{key: _text(members["name"]) for key, members, _ in rows}}
    return tuple(_kind(members, " ".join(saved.replace("\n     * ", " ").split()), names) for _, members, saved in rows)


def read() -> tuple[Kind, ...]:
    return from_text(KINDS_C.read_text())


def table(kinds: tuple[Kind, ...]) -> Iterator[str]:
    """Lines of Markdown, a row for each kind."""
    yield from ("| kind | goes with | saved of it | why it is not saved |", "|---|---|---|---|")
    for kind in kinds:
        above = " or ".join(f"its {name}" if name != "client" else "the client" for name in kind.above)
        lodging = ", and its context" if kind.is_of_context and "context" not in kind.above else ""
        yield f"| {kind.name} | {above}{lodging} | {kind.saved} | {kind.cannot} |"


def page(text: str) -> str:
    """The page with its table made anew."""
    made = "\n".join(table(read()))
    fresh, nr = _PLACE.subn(lambda place: f"{place[1]}\n\n{made}\n\n{place[2]}", text)
    if nr != 1:
        raise KindsError(f"{PAGE.name} has {nr} places for the table")
    return fresh
