"""What instructions read and write, by name: registers, variables, and memory as one name for each state space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cuda_api.ptx.syntax import (
    Address,
    Arguments,
    Bracket,
    Float,
    Instruction,
    Integer,
    Name,
    Negated,
    Not,
    Offset,
    Operand,
    Pair,
    Vector,
)
from cuda_api.record import mutable_record

_LITERALS = (Integer, Float)
_MEMORY = ("global", "shared", "local")
_WITHOUT_RESULT = frozenset(
    (
        "st",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "membar",
        "fence",
        "nanosleep",
        "prefetch",
        "bar",
        "barrier",
        "sust",
        "sured",
        "stmatrix",
    )
)


@mutable_record
class Effects:
    """`is_guarded`: it may as well do nothing."""

    is_guarded: bool
    reads: set[str]
    writes: set[str]


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Name(text):
            yield text
        case Not(name) | Negated(name):
            yield name.text
        case Offset(symbol):
            yield symbol.text
        case Address(Name(text)):
            yield text
        case Vector(elements) | Arguments(elements) | Bracket(elements):
            for element in elements:
                yield from _names(element)
        case Pair(first, second):
            yield from _names(first)
            yield from _names(second)


def names_of(operands: Iterable[Operand]) -> set[str]:
    """All names in operands, those in addresses and vectors, too."""
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Name):
            found.add(operand.text)
        elif not isinstance(operand, _LITERALS):
            found.update(_names(operand))
    return found


def _memory(instruction: Instruction) -> set[str]:
    """The memory that an access may mean; a parameter of a call goes by its own name, constants stay what they are."""
    for word in instruction.modifiers:
        space = word.split("::")[0]
        if space in ("param", "const"):
            return set()
        if space in _MEMORY:
            return {f"[{space}]"}
    return {f"[{space}]" for space in _MEMORY}


def effects(instruction: Instruction) -> Effects:
    """What one instruction does to names and memory. A call may write local memory through a pointer."""
    operands = instruction.operands
    if instruction.opcode == "st":
        reads, writes = names_of(operands[1:]), _memory(instruction) or names_of(operands[:1])
    elif instruction.opcode == "call":
        lists = [operand for operand in operands if isinstance(operand, Arguments)]
        results = names_of(lists[:1]) if isinstance(operands[0], Arguments) else set()
        reads, writes = names_of(operands) - results, results | {"[local]"}
    elif instruction.opcode in _WITHOUT_RESULT or instruction.modifiers[:1] == ("store",):  # the latter is wmma's
        reads, writes = names_of(operands), set()
    else:
        reads, writes = names_of(operands[1:]), names_of(operands[:1])
        writes.discard("_")
        if instruction.opcode in ("ld", "ldu"):
            reads |= _memory(instruction)
    if instruction.guard is not None:
        reads.add(instruction.guard.predicate)
    return Effects(instruction.guard is not None, reads, writes)
