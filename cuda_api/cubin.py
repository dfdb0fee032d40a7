"""
Machine code as NVIDIA's compilers write it: an ELF file of 64 bits. Its sections, and its symbols.

Images come from guests and may be hostile: every place is checked before it is read, and nothing is made that is many times as large as the
file.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

from cuda_api.fatbin import ELF_MAGIC
from cuda_api.record import record

MAX_NAME_BYTES = 4096
"""Those of C++ with templates have thousands of letters."""
MAX_SECTIONS = 0xFF00
"""With more, the symbols of a section do not tell which it is."""
SYMBOL_TABLE = 2
"""The kind of such a section."""
COMMON_SECTION = 0xFFF2
"""The section of a variable that no file has given a place to."""

_SECTION = struct.Struct("<IIQQQQIIQ8x")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOT_IN_FILE = 8


class CubinError(Exception):
    """The file is damaged."""


class SymbolKind(IntEnum):
    """Those that machine code has, besides others."""

    NONE = 0
    OBJECT = 1
    FUNCTION = 2
    SECTION = 3


@record
class Section:
    name_at: int
    kind: int
    flags: int
    offset: int
    nr_bytes: int
    link: int
    info: int
    """Of a kernel's own: the index of its code."""
    alignment: int


@record
class Symbol:
    name_at: int
    kind: int
    section: int
    """Its index. 0: it is not in this file."""
    value: int
    nr_bytes: int


def sections(content: bytes) -> list[Section]:
    """All of them, by index. Raises CubinError."""
    if content[:4] != ELF_MAGIC or len(content) < 0x40:
        raise CubinError("no ELF file")
    (table,) = struct.unpack_from("<Q", content, 0x28)
    nr, names_index = struct.unpack_from("<HH", content, 0x3C)
    if nr == 0 and 0 < table <= len(content) - _SECTION.size:
        nr = _SECTION.unpack_from(content, table)[5]  # too many for the header
    if table + nr * _SECTION.size > len(content):
        raise CubinError("a table of sections that ends behind the file")
    names_at = len(content)
    if names_index < nr:
        names_at = _SECTION.unpack_from(content, table + names_index * _SECTION.size)[4]
    return [
        Section(names_at + name, kind, flags, offset, size, link, info, alignment)
        for name, kind, flags, _, offset, size, link, info, alignment in _SECTION.iter_unpack(
            content[table : table + nr * _SECTION.size]
        )
    ]


def are_apart(content: bytes, some: Iterable[Section]) -> bool:
    """Whether some sections together are no larger than the file, as those of a compiler are, which share no byte of it."""
    return sum(section.nr_bytes for section in some) <= len(content)


def name_at(content: bytes, at: int, most_bytes: int = MAX_NAME_BYTES) -> bytes:
    """Of a section or a symbol; a longer name comes cut."""
    if at >= len(content):
        return b""
    end = content.find(b"\0", at, at + most_bytes)
    return content[at : end if end >= 0 else at + most_bytes]


def bytes_of(content: bytes, section: Section) -> bytes:
    """Those that the file has of a section. Raises CubinError when it has not all."""
    if section.kind == _NOT_IN_FILE or section.offset + section.nr_bytes > len(content):
        raise CubinError("a section that is not all in the file")
    return content[section.offset : section.offset + section.nr_bytes]


def symbols(content: bytes, table: list[Section]) -> Iterator[Symbol]:
    """Those of all symbol tables, of which there is one as a rule. Raises CubinError."""
    for section in table:
        if section.kind != SYMBOL_TABLE:
            continue
        if section.nr_bytes % _SYMBOL.size or section.link >= len(table):
            raise CubinError("a table of symbols that is none")
        names_at = table[section.link].offset
        for name, info, _, index, value, size in _SYMBOL.iter_unpack(bytes_of(content, section)):
            yield Symbol(names_at + name, info & 15, index, value, size)
