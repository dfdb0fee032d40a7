"""Where a parser stands in its tokens: looking at the next one, taking it, and saying what was expected instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cuda_api.ptx.expressions import constant_expression
from cuda_api.ptx.lexer import PtxSyntaxError, Tokens
from cuda_api.ptx.syntax import Name

_MOST_NESTED = 64
"""Blocks, lists and expressions inside each other. Compilers nest a handful; a text of braces alone would be as deep as it is long."""
_MOST_DIGITS = 66
"""Of an integer: 64 bits as 0b... A longer one fits no register, and takes time that grows with its square."""


class Reader:
    """A place in the tokens, and the ways to go on from it."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.at = 0
        self.names: dict[str, Name] = {}
        self._nr_open = 0

    def error(self, message: str) -> PtxSyntaxError:
        return PtxSyntaxError(message, self.line(), self.texts[self.at])

    def line(self) -> int:
        return self.tokens.line_at(self.tokens.starts[self.at])

    def peek(self) -> str:
        return self.texts[self.at]

    def accept(self, text: str) -> bool:
        if self.texts[self.at] == text and self.kinds[self.at] != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected '{text}'")

    def take(self, kind: str, what: str) -> str:
        if self.kinds[self.at] != kind:
            raise self.error(f"expected {what}")
        text = self.texts[self.at]
        self.at += 1
        return text

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Around what may hold itself. Raises PtxSyntaxError where that is too deep."""
        if self._nr_open == _MOST_NESTED:
            raise self.error("nested too deep")
        self._nr_open += 1
        yield
        self._nr_open -= 1

    def integer(self) -> int:
        return constant_expression(self)

    def take_integer_token(self) -> int | None:
        if self.kinds[self.at] != "int":
            return None
        text = self.texts[self.at].rstrip("U")
        if len(text) > _MOST_DIGITS:
            raise self.error("a number of too many digits")
        self.at += 1
        if text[0] == "0" and len(text) > 1 and text[1].isdigit():
            try:
                return int(text, 8)
            except ValueError:
                raise PtxSyntaxError("not an octal number", self.line(), text) from None
        return int(text, 0)

    def name(self, text: str) -> Name:
        name = self.names.get(text)
        if name is None:
            base, _, component = text.partition(".")
            name = self.names[text] = Name(base, component)
        return name
