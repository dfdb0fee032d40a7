"""
Integer constant expressions, folded while they are parsed: C's operators, precedence and grouping on 64-bit integers.

PTX computes them signed unless an operand is unsigned; the two differ only in the top bit, which division, shifts to the right and
comparisons see. Here everything is computed in more bits than that, so `0xffffffffffffffff / 2` is the unsigned answer; in no more than
a product of two numbers takes, as a text may go on multiplying.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


class Source(Protocol):
    """What the parser offers: a look at the next token, and taking it."""

    def peek(self) -> str: ...
    def accept(self, text: str) -> bool: ...
    def expect(self, text: str) -> None: ...
    def take_integer_token(self) -> int | None: ...
    def nested(self) -> AbstractContextManager[None]: ...
    def error(self, message: str) -> Exception: ...


def _quotient(left: int, right: int) -> int:
    sign = -1 if (left < 0) != (right < 0) else 1
    return sign * (abs(left) // abs(right))


_LIMIT = 1 << 128
_OPERATORS = frozenset(text for level in _LEVELS for text in level) | {"?"}


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b,
}


def constant_expression(source: Source) -> int:
    """The value of the expression that starts at the next token."""
    alone = source.take_integer_token()
    if alone is not None and source.peek() not in _OPERATORS:
        return alone
    condition = _binary(source, 0, alone)
    if not source.accept("?"):
        return condition
    with source.nested():
        chosen = constant_expression(source)
        source.expect(":")
        other = constant_expression(source)
    return chosen if condition else other


def constant_product(source: Source) -> int:
    """The value of the products, quotients and single numbers that start at the next token, up to a sum's next sign."""
    return _binary(source, len(_LEVELS) - 1)


def _binary(source: Source, level: int, first: int | None = None) -> int:
    """`first` is the first operand, where it is taken already."""
    if level == len(_LEVELS):
        return _unary(source) if first is None else first
    left = _binary(source, level + 1, first)
    while (text := source.peek()) in _LEVELS[level]:
        source.accept(text)
        right = _binary(source, level + 1)
        if text in ("/", "%") and right == 0:
            raise source.error("division by zero")
        left = _OPERATIONS[text](left, right)
        if abs(left) > _LIMIT:
            raise source.error("a constant of too many bits")
    return left


def _unary(source: Source) -> int:
    value = source.take_integer_token()
    if value is not None:
        return value
    with source.nested():
        return _composed(source)


def _composed(source: Source) -> int:
    if source.accept("-"):
        return -_unary(source)
    if source.accept("+"):
        return _unary(source)
    if source.accept("~"):
        return ~_unary(source)
    if source.accept("!"):
        return int(not _unary(source))
    if source.accept("("):
        if source.peek() in (".s64", ".u64"):
            is_unsigned = source.peek() == ".u64"
            source.accept(source.peek())
            source.expect(")")
            value = _unary(source)
            return value % (1 << 64) if is_unsigned else value
        value = constant_expression(source)
        source.expect(")")
        return value
    raise source.error("expected an integer")
