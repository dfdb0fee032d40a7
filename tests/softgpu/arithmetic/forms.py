"""What a form is: one instruction, or a short chain of them, with the kinds of its operands and results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.softgpu.arithmetic.operands import base_type

OPERAND_NAMES = "abcef"
LEAST_TARGET = 70


@dataclass(frozen=True, slots=True)
class Form:
    """
    `text` is PTX on %a, %b, %c, %e, %f and %d0, %d1, ... (%d stands for %d0), and the form's name. `target` is the sm_ it needs.

    Atomics find their cell, with %a in it, at %cell (global) and %shared (shared).
    """

    text: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    target: int = LEAST_TARGET
    is_nan_exact: bool = False

    @property
    def opcode(self) -> str:
        """The first word: the instruction with its modifiers."""
        return self.text.split(" ", 1)[0]

    @property
    def uses_cell(self) -> bool:
        return "%cell" in self.text or "%shared" in self.text


def form(opcode: str, results: str, sources: str, *, target: int = LEAST_TARGET, nan: str = "") -> Form:
    """
    A form of one instruction, its operands in order; kinds separated by spaces.

    A text with '%' in it is taken as it is. `nan='exact'` where it is defined which NaN the result is.
    """
    kinds = tuple(sources.split())
    text = opcode
    if "%" not in opcode:
        text = ", ".join([f"{opcode} %d", *(f"%{letter}" for letter, _ in zip(OPERAND_NAMES, kinds, strict=False))])
    return Form(text, tuple(results.split()), kinds, target, nan == "exact")


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    forms: tuple[Form, ...]


def family(name: str, forms: Iterator[Form]) -> Family:
    """Raises ValueError when two forms have one name."""
    members = tuple(forms)
    if len({member.text for member in members}) != len(members):
        raise ValueError(f"{name} has a form twice")
    return Family(name, members)


def register_type(kind: str) -> str:
    """The register that holds a kind."""
    name = base_type(kind)
    if name in ("pred", "f32", "f64"):
        return name
    if name.endswith("x2"):
        return "b32"
    return f"b{max(int(name.lstrip('bfsu')), 16)}"
