"""
PTX text to tokens, with one regular expression for all of them.

A name keeps its dotted tail (`ld.global.v4.f32`, `%tid.x`), because PTX has no place where the two halves are apart, and it makes an
instruction one token. Wrong for preprocessor lines (`#`), which PTX allows and no compiler emits: they are an error here.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_TOKEN = re.compile(
    r"""
      (?P<skip>(?:\s+|//[^\n]*|/\*.*?\*/)+)
    | (?P<name>(?:[A-Za-z][\w$]*|[_%$][\w$]*)(?:(?:\.|::)[A-Za-z_0-9]+)*)
    | (?P<dot>\.[A-Za-z_]\w*(?:::\w+)*)
    | (?P<float>0[fF][0-9a-fA-F]{8}(?![0-9a-fA-F])|0[dD][0-9a-fA-F]{16}(?![0-9a-fA-F])|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
    | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<mark><<|>>|==|!=|<=|>=|&&|\|\||[{}()\[\]<>,;:@!|+\-*/%&^~=?])
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {index: name for name, index in _TOKEN.groupindex.items()}


class PtxSyntaxError(Exception):
    """The text is not PTX. `line` counts from 1; `token` is what stood there."""

    def __init__(self, message: str, line: int, token: str) -> None:
        super().__init__(f"line {line}: {message}, at '{token}'")
        self.line = line
        self.token = token


class Tokens:
    """All tokens of a text: kind, text and start offset side by side, closed by an 'end'."""

    def __init__(self, text: str) -> None:
        kinds: list[str] = []
        texts: list[str] = []
        starts: list[int] = []
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        names = _KINDS
        position = 0
        for match in _TOKEN.finditer(text):
            start = match.start()
            if start != position:
                break
            position = match.end()
            kind = names[match.lastindex or 0]
            if kind != "skip":
                kinds.append(kind)
                texts.append(match.group())
                starts.append(start)
        if position != len(text):
            raise PtxSyntaxError(
                "no PTX token", self.line_at(position), text[position : position + 12].split("\n", maxsplit=1)[0]
            )
        kinds.append("end")
        texts.append("end of text")
        starts.append(len(text))
        self.kinds, self.texts, self.starts = kinds, texts, starts

    def line_at(self, offset: int) -> int:
        return bisect_right(self._newlines, offset - 1) + 1
