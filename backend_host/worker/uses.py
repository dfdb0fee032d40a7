"""
Which variables of a PTX text can have no address outside of the kernels that use them, so that nothing of them depends on where the driver put
them.

CONSTANTS  all that a function does with a name is `ld.const [name+number]`, or to take the address into registers that it adds to, copies into
           others of the kind, and loads by (`ld.const [register+number]`)
TEXTS      of printf and assert: bytes that have a value, whose address goes by registers of its own to `vprintf` and `__assertfail` alone, or
           into a thread's local memory, for `%s`, in a function that reads nothing there and calls nothing else

These are rules over statements, not over the flow of data: a form that no compiler writes for that purpose counts as another use. A text that
declares a `vprintf` of its own has no TEXTS.

Texts come from guests and may be hostile: each statement is looked at a few times, whatever stands in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container

_NAMES = r"[A-Za-z_$][\w$]*+"
_WORD = r"(?<![\w.$%])"
_TYPE = r"(?:\.align\s+\d+\s+)?\.[bsuf]\d+"
_DECLARED = re.compile(
    rf"(?P<linking>\.(?:visible|extern|weak|common)\s+)?"
    rf"\.(?P<space>const|global)\s+(?P<type>{_TYPE})\s+(?P<name>{_NAMES})\s*+(?P<size>(?:\[\s*+\d*+\s*+\]\s*+)*+)(?=[=;])"
)
_BYTES = re.compile(r"=\s*\{[\d\s,]*\}")
_IS_OF_BYTES = re.compile(r"(?:\.align\s+\d+\s+)?\.b8")
_BRACES = re.compile(r"[{}]")
_NAME = re.compile(_WORD + _NAMES)
_REGISTER = re.compile(r"%[\w$]++")
_LOADED = re.compile(
    rf"{_WORD}ld\.const(?:\.\w++)*+\s+(?:%[\w$]++|\{{[^{{}}\[\];]*\}})\s*,\s*\[\s*({_NAMES})\s*(?:\+\s*\d++\s*)?\]\s*;"
)
_TAKEN = re.compile(rf"{_WORD}mov\.[bu]64\s+(%[\w$]++)\s*,\s*({_NAMES})\s*;")
_COPIED = re.compile(rf"{_WORD}mov\.[bu]64\s+(%[\w$]++)\s*,\s*(%[\w$]++)\s*;")
_ADDED = re.compile(rf"{_WORD}add\.[su]64\s+(%[\w$]++)\s*,\s*([%\w$]++)\s*,\s*([%\w$]++)\s*;")
_LOADED_BY = re.compile(
    rf"{_WORD}ld\.const(?:\.\w++)*+\s+(?:%[\w$]++|\{{[^{{}}\[\];]*\}})\s*,\s*\[\s*(%[\w$]++)\s*(?:\+\s*-?\d++\s*)?\]\s*;"
)
_MADE_GENERIC = re.compile(rf"{_WORD}cvta\.global\.u64\s+(%[\w$]++)\s*,\s*(%[\w$]++)\s*;")
_BLOCK = re.compile(r"\{[^{}]*\}")
_PRINTING = r"(?:vprintf|__assertfail)"
_OF_CALL = re.compile(
    r"\.reg\s+\.b32\s+temp_param_reg"
    r"|\.param\s+(?:\.align\s+\d+\s+)?\.[bsuf]\d+\s+\w+(?:\[\d+\])?"
    r"|st\.param\.[bu]\d+\s+\[param\d+(?:\+0)?\]\s*,\s*[%\w]+"
    rf"|call(?:\.uni)?\s+(?:\(\s*retval\d+\s*\)\s*,\s*)?{_PRINTING}\s*,\s*\([\s\w,]*\)"
    r"|ld\.param\.b32\s+%\w+\s*,\s*\[retval\d+(?:\+0)?\]"
)
_PASSED = re.compile(r"st\.param\.[bu]64\s+\[param\d+(?:\+0)?\]\s*,\s*(%[\w$]++)\s*;")
_KEPT = re.compile(r"st\.local\.[bu]64\s+\[[^\[\]]*\]\s*,\s*(%[\w$]++)\s*;")
_READS_LOCAL = re.compile(rf"{_WORD}ld\.(?!(?:volatile\.|relaxed\.|weak\.)*(?:param|const|global|shared)\b)")
_CALLS = re.compile(rf"{_WORD}call\b")
_CALLS_PRINTING = re.compile(rf"{_WORD}call(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?{_PRINTING}\s*,")
_OWN = re.compile(rf"(\.extern\s+)?\.func\b\s*+(?:\.(?!func\b)\w++\s*+)*+(?:\([^()]*+\)\s*+)?+{_PRINTING}(?![\w$])")


class Uses:
    """Of a text that comes in pieces, without comments and strings, cut between statements."""

    def __init__(self) -> None:
        self._rest = ""
        self._seen = 0
        self._depth = 0
        self._constants: set[str] = set()
        self._texts: set[str] = set()
        self._others: set[str] = set()
        self._has_own = False

    def take(self, piece: str) -> None:
        """The next piece."""
        self._rest += piece
        begin = 0
        for brace in _BRACES.finditer(self._rest, self._seen):
            self._depth += 1 if brace[0] == "{" else -1
            if self._depth <= 0:
                self._depth = 0
                self._look(self._rest[begin : brace.end()])
                begin = brace.end()
        self._rest = self._rest[begin:]
        self._seen = len(self._rest)

    def end(self) -> None:
        """There are no more."""
        self._look(self._rest)
        self._rest = ""

    @property
    def constants(self) -> set[str]:
        """Names of those."""
        return self._constants - self._others

    @property
    def texts(self) -> set[str]:
        """Names of those."""
        return set() if self._has_own else self._texts - self._others - self._constants

    def _look(self, text: str) -> None:
        """Into declarations, and one function at most, whose registers are its own."""
        self._has_own |= any(match[1] is None for match in _OWN.finditer(text))
        text = _DECLARED.sub(self._declare, text)
        if not (self._constants or self._texts):
            return
        text = _LOADED.sub(lambda match: self._without(match, self._constants, match[1]), text)
        if any(name[0] in self._constants for name in _NAME.finditer(text)):
            text = self._follow_constants(text)
        if any(name[0] in self._texts for name in _NAME.finditer(text)):
            text = self._follow_texts(text)
        self._others.update(
            name[0] for name in _NAME.finditer(text) if name[0] in self._constants or name[0] in self._texts
        )

    def _declare(self, match: re.Match[str]) -> str:
        """A value stays, for the names in it."""
        name = match["name"]
        if match["space"] == "const":
            self._constants.add(name)
        elif not match["linking"] and _IS_OF_BYTES.fullmatch(match["type"]) and _BYTES.match(match.string, match.end()):
            self._texts.add(name)
        else:
            return match[0]
        return ""

    @staticmethod
    def _without(match: re.Match[str], names: Container[str], name: str) -> str:
        return ";" if name in names else match[0]

    def _follow_constants(self, text: str) -> str:
        """The text without what becomes of constants' addresses as it should. One that goes elsewhere may be any of the function's."""
        names: set[str] = set()
        start: set[str] = set()
        leads_to: defaultdict[str, list[str]] = defaultdict(list)
        for match in _TAKEN.finditer(text):
            if match[2] in self._constants:
                names.add(match[2])
                start.add(match[1])
        for match in (*_COPIED.finditer(text), *_ADDED.finditer(text)):
            for source in match.groups()[1:]:
                leads_to[source].append(match[1])
        holds, left = set(start), [*start]
        while left:
            new = set(leads_to[left.pop()]) - holds
            holds |= new
            left += new
        text = _TAKEN.sub(lambda match: self._without(match, self._constants, match[2]), text)
        for pattern in (_COPIED, _ADDED):
            text = pattern.sub(lambda match: match[0] if holds.isdisjoint(match.groups()[1:]) else ";", text)
        text = _LOADED_BY.sub(lambda match: self._without(match, holds, match[1]), text)
        if any(register[0] in holds for register in _REGISTER.finditer(text)):
            self._others |= names
        return text

    def _follow_texts(self, text: str) -> str:
        """The text without what becomes of texts' addresses as it should; others are noted."""
        taken: defaultdict[str, set[str]] = defaultdict(set)
        made_from: defaultdict[str, set[str]] = defaultdict(set)

        def take(match: re.Match[str]) -> str:
            if match[2] in self._texts:
                taken[match[1]].add(match[2])
            return self._without(match, self._texts, match[2])

        def make_generic(match: re.Match[str]) -> str:
            if match[2] in taken:
                made_from[match[1]].add(match[2])
            return self._without(match, taken, match[2])

        text = _MADE_GENERIC.sub(make_generic, _TAKEN.sub(take, text))
        holds = {*taken, *made_from}
        text = _BLOCK.sub(lambda block: self._without_passed(block[0], holds), text)
        if not _READS_LOCAL.search(text) and sum(1 for _ in _CALLS.finditer(text)) == sum(
            1 for _ in _CALLS_PRINTING.finditer(text)
        ):
            text = _KEPT.sub(lambda match: ";" if match[1] in holds else match[0], text)
        left, seen = [register[0] for register in _REGISTER.finditer(text) if register[0] in holds], set()
        while left:
            if (register := left.pop()) not in seen:
                seen.add(register)
                self._others |= taken.get(register, set())
                left += made_from.get(register, ())
        return text

    @staticmethod
    def _without_passed(block: str, registers: Container[str]) -> str:
        statements = [statement.strip() for statement in block[1:-1].split(";")]
        if not all(_OF_CALL.fullmatch(statement) for statement in statements if statement):
            return block
        return _PASSED.sub(lambda match: ";" if match[1] in registers else match[0], block)
