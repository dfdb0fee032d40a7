"""
PTX text to tokens, with one regular expression for all of them. The text is cut in one go; of what kind a token is, is found out once for all
that read alike.

A name keeps its dotted tail (`ld.global.v4.f32`, `%tid.x`), because PTX has no place where the two halves are apart, and it makes an
instruction one token. Wrong for preprocessor lines (`#`), which PTX allows and no compiler emits: they are an error here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, compress

_TOKEN = re.compile(
    r"""
      (?:\s+|//[^\n]*|/\*.*?\*/)+                                                                             # skip
    | /\*.*                                                                                                  # no end
    | (?:[A-Za-z][\w$]*|[_%$][\w$]*)(?:(?:\.|::)[A-Za-z_0-9]+)*                                               # name
    | \.[A-Za-z_]\w*(?:::\w+)*                                                                               # dot
    | 0[fF][0-9a-fA-F]{8}(?![0-9a-fA-F])|0[dD][0-9a-fA-F]{16}(?![0-9a-fA-F])|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+  # float
    | 0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?                                                                  # int
    | "(?:[^"\\\n]|\\.)*+"?                                                                                  # string, perhaps without an end
    | <<|>>|==|!=|<=|>=|&&|\|\||[{}()\[\]<>,;:@!|+\-*/%&^~=?]                                                # mark
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"', re.DOTALL)


def _kind(token: str) -> str:
    """Of a token that the expression above has found."""
    first = token[0]
    if first in "_%$" or first.isalpha():
        return "name"
    if first in "0123456789":
        return _kind_of_number(token)
    if first.isspace() or token[:2] in ("//", "/*"):
        return "skip"
    if first == '"':
        return "string" if _STRING.fullmatch(token) else "open"
    return "dot" if first == "." else "mark"


def _kind_of_number(token: str) -> str:
    base = token[1:2].lower()
    if base in ("x", "b"):
        return "int"
    return "float" if base in ("f", "d") or not token.rstrip("U").isdecimal() else "int"


class _Kinds(dict[str, str]):
    def __missing__(self, token: str) -> str:
        kind = self[token] = _kind(token)
        return kind


class PtxSyntaxError(Exception):
    """The text is not PTX. `line` counts from 1; `token` is what stood there."""

    def __init__(self, message: str, line: int, token: str) -> None:
        super().__init__(f"line {line}: {message}, at '{token}'")
        self.line = line
        self.token = token


class Tokens:
    """All tokens of a text: kind, text and start offset side by side, closed by an 'end'."""

    def __init__(self, text: str) -> None:
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        found: list[str] = _TOKEN.findall(text)
        ends = list(accumulate(map(len, found)))
        if (ends[-1] if ends else 0) != len(text):
            raise self._no_token(text)
        if found and found[-1].startswith("/*") and "*/" not in found[-1][2:]:
            raise PtxSyntaxError("a comment without an end", self.line_at(ends[-1] - len(found[-1])), "/*")
        kind_of = _Kinds()
        kinds = [kind_of[token] for token in found]
        if "open" in kind_of.values():
            raise PtxSyntaxError("a string without an end", self.line_at(ends[kinds.index("open")] - 1), '"')
        is_kept = [kind != "skip" for kind in kinds]
        self.kinds: list[str] = [*compress(kinds, is_kept), "end"]
        self.texts: list[str] = [*compress(found, is_kept), "end of text"]
        self.starts: list[int] = [*compress([0, *ends], is_kept), len(text)]

    def _no_token(self, text: str) -> PtxSyntaxError:
        """The error of a text in which something is no token: `findall` passes that over."""
        position = 0
        while (match := _TOKEN.match(text, position)) is not None:
            position = match.end()
        return PtxSyntaxError(
            "no PTX token", self.line_at(position), text[position : position + 12].split("\n", maxsplit=1)[0]
        )

    def line_at(self, offset: int) -> int:
        return bisect_right(self._newlines, offset - 1) + 1
