"""Instructions and their operands, parsed by shape alone."""

from __future__ import annotations

import struct

from cuda_api.ptx.expressions import constant_product
from cuda_api.ptx.reader import Reader
from cuda_api.ptx.syntax import (
    Address,
    Arguments,
    Bracket,
    Float,
    Guard,
    Instruction,
    Integer,
    Negated,
    Not,
    Offset,
    Operand,
    Pair,
    Vector,
)


class InstructionReader(Reader):
    """The part of the parser that reads instructions."""

    def instruction(self, guard: Guard | None) -> Instruction:
        line = self.line()
        opcode, *modifiers = self.take("name", "an instruction").split(".")
        operands: list[Operand] = []
        if self.accept(";"):
            return Instruction(opcode, tuple(modifiers), (), guard, line)
        while True:
            if (
                self.kinds[self.at] == "name" and self.texts[self.at + 1] in ",;"
            ):  # as most are: without a call for each token
                operands.append(self.name(self.texts[self.at]))
                self.at += 1
            elif opcode == "call" and self.peek() == "(":
                operands.append(Arguments(self._list("(", ")")))
            else:
                operands.append(self._operand())
            if self.accept(","):
                continue
            if self.accept(";"):
                return Instruction(opcode, tuple(modifiers), tuple(operands), guard, line)
            raise self.error("expected ',' or ';'")

    def _operand(self) -> Operand:
        operand = self._simple_operand()
        if self.accept("|"):
            return Pair(operand, self._simple_operand())
        return operand

    def _simple_operand(self) -> Operand:
        kind = self.kinds[self.at]
        if kind == "name":
            name = self.name(self.texts[self.at])
            self.at += 1
            if self.peek() in ("+", "-"):
                return Offset(name, self.plus())
            return name
        if kind in ("int", "float"):
            return self.float_literal() or Integer(self.integer())
        text = self.peek()
        if text == "[":
            return self._address()
        if text == "{":
            return Vector(self._list("{", "}"))
        if text == "!" and self.kinds[self.at + 1] == "name":
            self.at += 1
            return Not(self.name(self.take("name", "a predicate")))
        if text == "-" and self.kinds[self.at + 1] == "name":
            self.at += 1
            return Negated(self.name(self.take("name", "a register")))
        return self.float_literal() or Integer(self.integer())

    def _list(self, opening: str, closing: str) -> tuple[Operand, ...]:
        self.expect(opening)
        elements: list[Operand] = []
        with self.nested():
            while not self.accept(closing):
                if elements:
                    self.expect(",")
                elements.append(self._operand())
        return tuple(elements)

    def _address(self) -> Operand:
        self.expect("[")
        if self.kinds[self.at] == "name":
            base = self.name(self.texts[self.at])
            self.at += 1
            offset = self.plus()
            if self.accept("]"):
                return Address(base, offset)
            first: Operand = Offset(base, offset) if offset else base
        else:
            with self.nested():
                first = self._operand()
            if self.accept("]"):
                return Address(first) if isinstance(first, Integer) else Bracket((first,))
        elements = [first]
        with self.nested():
            while self.accept(","):
                elements.append(self._operand())
        self.expect("]")
        return Bracket(tuple(elements))

    def float_literal(self) -> Float | None:
        kinds = self.kinds
        negative = self.peek() == "-" and kinds[self.at + 1] == "float"
        if not negative and kinds[self.at] != "float":
            return None
        self.at += negative
        text = self.take("float", "a number")
        if text[1] in "fF":
            literal = Float(int(text[2:], 16), 32)
        elif text[1] in "dD":
            literal = Float(int(text[2:], 16), 64)
        else:
            literal = Float(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
        return Float(literal.bits ^ (1 << (literal.width - 1)), literal.width) if negative else literal

    def plus(self) -> int:
        """The sum of the constants that follow, each with its sign."""
        offset = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.accept("+") else -1 if self.accept("-") else 0
            offset += sign * constant_product(self)
        return offset
