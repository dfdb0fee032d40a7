"""Wire structs: members at natural alignment, no hidden gaps, whole multiples of 8 bytes.

Generated structs get explicit padding; a struct that a person wrote in the table must have none missing, because both
of its hand-written ends fill it in member by member.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cuda_api.c_types import WIRE_BYTES, Field

_MEMBER = re.compile(r"(?P<wire>\w+) (?P<name>[a-z]\w*)(?:\[(?P<count>[1-9]\d*|[a-z]\w*)\])?")


class LayoutError(Exception):
    """The members do not make a wire struct."""


@dataclass(frozen=True)
class Struct:
    """Members with their offsets; size_bytes is a multiple of 8, 0 when there are no members."""

    fields: tuple[tuple[int, Field], ...]
    size_bytes: int

    def offset(self, name: str) -> int:
        return next(offset for offset, field in self.fields if field.name == name)


EMPTY = Struct((), 0)


def lay_out(members: list[Field]) -> Struct:
    """Members in their order, with padding members where needed."""
    placed: list[tuple[int, Field]] = []
    offset = 0
    for member in members:
        gap = -offset % member.align_bytes
        if gap:
            placed.append((offset, Field(f"padding_{offset}", "uint8_t", gap)))
        placed.append((offset + gap, member))
        offset += gap + member.size_bytes
    gap = -offset % 8
    if gap:
        placed.append((offset, Field(f"padding_{offset}", "uint8_t", gap)))
    return Struct(tuple(placed), offset + gap)


def parse(text: str, structs: Mapping[str, Struct], lengths: Mapping[str, int]) -> Struct:
    """The struct that `uint64_t stream; uint32_t grid[3]; ...` spells; LayoutError names the member that is wrong.

    A member may be one of `structs`; the length of an array may be one of `lengths`.
    """
    placed: list[tuple[int, Field]] = []
    offset = 0
    for part in text.split(";"):
        match = _MEMBER.fullmatch(part.strip())
        if match is None or match["wire"] not in {*WIRE_BYTES, *structs}:
            raise LayoutError(f"not a member of a wire struct: {part.strip()!r}")
        count = match["count"] or "0"
        if not count.isdecimal() and lengths.get(count, 0) == 0:
            raise LayoutError(f"{match['name']}: {count} is the length of no array")
        inner_bytes = structs[match["wire"]].size_bytes if match["wire"] in structs else 0
        field = Field(match["name"], match["wire"], lengths[count] if count in lengths else int(count), inner_bytes)
        if offset % field.align_bytes:
            raise LayoutError(f"{field.name} at offset {offset} is not aligned to {field.align_bytes} bytes")
        if any(field.name == other.name for _, other in placed):
            raise LayoutError(f"two members named {field.name}")
        placed.append((offset, field))
        offset += field.size_bytes
    if offset % 8:
        raise LayoutError(f"{offset} bytes are no multiple of 8")
    return Struct(tuple(placed), offset)
