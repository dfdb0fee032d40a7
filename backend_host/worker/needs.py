"""
What a driver takes of the device for a module image: room for its code and for its variables.

Of machine code it is what the file says: the sections that are loaded. Of PTX it is computed from the text: the sizes of variables, which stand
in their declarations, and as many bytes for code as the text has, as no driver tells what it compiled. Of a container it is the most that any
of its entries which the device may run takes.

Images come from guests and may be hostile: what cannot be made out counts for more than any device has.

Wrong when: a compiler makes more code than there is text (loops that are unrolled), or a container has code for link-time optimisation, whose
variables nobody but a compiler finds. Machine code that is packed in a way that we do not know counts for its unpacked size alone.
"""

from __future__ import annotations

import re
import struct

from backend_host.worker.images import entries_for
from cuda_api.fatbin import ELF_MAGIC, Buffer, EntryKind, FatbinEntry, FatbinError
from cuda_api.ptx.expressions import constant_expression
from cuda_api.ptx.lexer import PtxSyntaxError, Tokens
from cuda_api.ptx.reader import Reader

UNKNOWABLE_BYTES = 1 << 60
"""No device has so much."""

_MOST_UNPACKED_BYTES = 1 << 30
"""Of all entries of an image that a device may run. A few kilobytes can be made to unpack to a quarter of it, again and again."""
_MAX_NESTING = 8
"""Of braces in what a variable begins with: dimensions of an array."""

_SECTION = struct.Struct("<IIQQQQ24x")
_LOADED = 2  # SHF_ALLOC
_NOT_IN_MEMORY = (b".nv.shared", b".nv.local")
"""Memory of blocks and threads, of which a section tells the size."""

# A string without an end is one up to where its line ends: to look for another in it would take time that grows with its square.
_ASIDE = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_DECLARATION = re.compile(r"(?<![\w.$%])\.(?:global|const)\b([^;]*)")
_BEGINNING = re.compile(r"=[^,]*")
_BRACES = re.compile(r"\{[^{}]*\}")
_TYPE = re.compile(r"\.(?:[bsuf](\d{1,4})\b|[a-z]\w*)")
_VECTOR = re.compile(r"\.v(\d)\b")
_ALIGNMENT = re.compile(r"\.align\s+(\d{1,9})\b")
_DIRECTIVE = re.compile(r"\.align\s+\d+|\.attribute\s*\([^)]{0,200}\)|\.\w+")
_DECLARED = re.compile(r"[A-Za-z_$%][\w$]*((?:\s*\[[^\[\]]{0,200}\])*)")
# A dimension of an array has 200 letters at most. Compilers write numbers; a longer text is an attack on our time.
_LARGEST_BYTES = 16
"""Of a variable that is no array: of 128 bits."""


def needs_bytes(image: Buffer, capability: int, *, is_exact: bool) -> int:
    """Of an image for a device of this capability (90 for 9.0), in one context.

    Without `is_exact` packed machine code is not unpacked, which takes 2 ms a megabyte: it counts for its size.
    """
    try:
        entries = entries_for(image, capability)
    except FatbinError:
        return len(image)  # which the driver will find, too
    if not is_exact or sum(entry.uncompressed_bytes for entry in entries) <= _MOST_UNPACKED_BYTES:
        most_bytes = max((_of_entry(entry, is_exact) for entry in entries), default=len(image))
        if most_bytes < UNKNOWABLE_BYTES:
            return most_bytes
    return UNKNOWABLE_BYTES if is_exact else len(image)


def _of_entry(entry: FatbinEntry, is_exact: bool) -> int:
    size_bytes = max(entry.uncompressed_bytes, len(entry.stored))
    if entry.uncompressed_bytes and not is_exact:
        return size_bytes
    try:
        content = entry.payload()
    except FatbinError:
        return size_bytes
    if content[:4] == ELF_MAGIC:
        return _of_machine_code(content)
    return _of_ptx(content) if entry.kind == EntryKind.PTX else size_bytes


def _of_machine_code(content: bytes) -> int:
    try:
        sections = _sections(content)
    except (struct.error, OverflowError):  # the latter of places beyond any address
        return len(content)
    return sum(size for name, size in sections if not name.startswith(_NOT_IN_MEMORY))


def _sections(content: bytes) -> list[tuple[bytes, int]]:
    """Name and size of those that are loaded. struct.error: the tables are not all there."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    nr, names_index = struct.unpack_from("<HH", content, 0x3C)
    if nr == 0 and table:
        nr = _SECTION.unpack_from(content, table)[5]  # too many for the header
    if table + nr * _SECTION.size > len(content):
        raise struct.error("a table of sections that ends behind the file")
    sections = list(_SECTION.iter_unpack(content[table : table + nr * _SECTION.size]))
    names = content[sections[names_index][4] :] if names_index < len(sections) else b""
    return [(names[name : name + 16], size) for name, _, flags, _, _, size in sections if flags & _LOADED]


def _of_ptx(content: bytes) -> int:
    text = _ASIDE.sub(lambda aside: '""' if aside[0][0] == '"' else " ", content.decode("latin-1"))
    if "#" in text:
        return UNKNOWABLE_BYTES  # of the preprocessor, whose macros would have to be expanded; no compiler writes any
    return len(content) + sum(_of_declaration(match[1]) for match in _DECLARATION.finditer(text))


def _of_declaration(text: str) -> int:
    """What stands between `.global` and `;`: directives, a type, and names with dimensions, perhaps with what they begin with."""
    values = text.count(",") + 1
    for _ in range(_MAX_NESTING):
        text, nr = _BRACES.subn("", text)
        if nr == 0:
            break
    directives, text = text.partition("=")[0], _BEGINNING.sub("", text)
    element_bytes = _element_bytes(directives)
    alignment = max((int(match[1]) for match in _ALIGNMENT.finditer(directives)), default=1)
    declared = [match[1] for match in _DECLARED.finditer(_DIRECTIVE.sub(" ", text))]
    if text.count("[") != sum(dimensions.count("[") for dimensions in declared):
        return UNKNOWABLE_BYTES
    return sum(max(element_bytes * _elements(dimensions, values), alignment) for dimensions in declared)


def _element_bytes(directives: str) -> int:
    bits = [int(match[1]) for match in _TYPE.finditer(directives) if match[1]]
    vector = max((int(match[1]) for match in _VECTOR.finditer(directives)), default=1)
    return vector * (max(bits) // 8 if bits else _LARGEST_BYTES)


def _elements(dimensions: str, values: int) -> int:
    nr = 1
    for dimension in re.findall(r"\[([^\]]*)\]", dimensions):
        nr *= _number(dimension) if dimension.strip() else values
        if nr > UNKNOWABLE_BYTES:
            return UNKNOWABLE_BYTES
    return nr


def _number(expression: str) -> int:
    try:
        number = constant_expression(Reader(Tokens(expression)))
    except (PtxSyntaxError, ValueError, RecursionError):
        return UNKNOWABLE_BYTES
    return number if number >= 0 else UNKNOWABLE_BYTES
