"""Where a parser stands in its tokens: looking at the next one, taking it, and saying what was expected instead."""

from __future__ import annotations

from cuda_api.ptx.expressions import constant_expression
from cuda_api.ptx.lexer import PtxSyntaxError, Tokens
from cuda_api.ptx.syntax import Name


class Reader:
    """A place in the tokens, and the ways to go on from it."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.at = 0
        self.names: dict[str, Name] = {}

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

    def integer(self) -> int:
        return constant_expression(self)

    def take_integer_token(self) -> int | None:
        if self.kinds[self.at] != "int":
            return None
        text = self.texts[self.at].rstrip("U")
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
