"""
The variables that a PTX text declares in memory of a module, global or constant, and how large they are: without a parser, which takes seconds
for a large text.

Texts come from guests and may be hostile: what cannot be made out is larger than any device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuda_api.ptx.expressions import constant_expression
from cuda_api.ptx.lexer import PtxSyntaxError, Tokens
from cuda_api.ptx.reader import Reader

UNKNOWABLE_BYTES = 1 << 60
"""No device has so much."""

_MAX_NESTING = 8
"""Of braces in what a variable begins with: dimensions of an array."""

# A string without an end is one up to where its line ends: to look for another in it would take time that grows with its square.
_ASIDE = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
# A parameter may be said to point to global memory: `.param .u64 .ptr .global .align 4 p`.
# What stands before the dot is looked at behind it: a pattern that begins with a letter of its own is found four times as fast.
_DECLARATION = re.compile(r"\.(?<![\w.$%]\.)(?:ptr\s++\.(?:global|const)\b|(?:global|const)\b([^;]*))")
_BEGINNING = re.compile(r"=[^,]*")
_BRACES = re.compile(r"\{[^{}]*\}")
_TYPE = re.compile(r"\.(?:[bsuf](\d{1,4})\b|[a-z]\w*)")
_VECTOR = re.compile(r"\.v(\d)\b")
_ALIGNMENT = re.compile(r"\.align\s+(\d{1,9})\b")
_DIRECTIVE = re.compile(r"\.align\s+\d+|\.attribute\s*\([^)]{0,200}\)|\.\w+")
_DECLARED = re.compile(r"([A-Za-z_$%][\w$]*)((?:\s*\[[^\[\]]{0,200}\])*)")
# A dimension of an array has 200 letters at most. Compilers write numbers; a longer text is an attack on our time.
_LARGEST_BYTES = 16
"""Of a variable that is no array: of 128 bits."""


def without_asides(text: str) -> str:
    """The text without its comments and without what stands in strings."""
    return _ASIDE.sub(lambda aside: '""' if aside[0][0] == '"' else " ", text)


def variables(text: str) -> Iterator[tuple[str, int]]:
    """Name and size of each, of a text without comments; UNKNOWABLE_BYTES for a declaration that is not understood."""
    for match in _DECLARATION.finditer(text):
        if match[1] is not None:
            yield from _of_declaration(match[1])


def _of_declaration(text: str) -> Iterator[tuple[str, int]]:
    """What stands between `.global` and `;`: directives, a type, and names with dimensions, perhaps with what they begin with."""
    values = text.count(",") + 1
    for _ in range(_MAX_NESTING):
        text, nr = _BRACES.subn("", text)
        if nr == 0:
            break
    directives, text = text.partition("=")[0], _BEGINNING.sub("", text)
    element_bytes = _element_bytes(directives)
    alignment = max((int(match[1]) for match in _ALIGNMENT.finditer(directives)), default=1)
    text = _DIRECTIVE.sub(" ", text)
    if text.count("[") != sum(match[2].count("[") for match in _DECLARED.finditer(text)):
        yield "", UNKNOWABLE_BYTES
        return
    for match in _DECLARED.finditer(text):
        yield match[1], max(element_bytes * _elements(match[2], values), alignment)


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
