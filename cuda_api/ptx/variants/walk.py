"""Trees of instructions: going through them, and replacing names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cuda_api.ptx.syntax import (
    Address,
    Arguments,
    Block,
    Bracket,
    Instruction,
    Label,
    Name,
    Negated,
    Not,
    Offset,
    Operand,
    Pair,
    Prototype,
    Statement,
    Targets,
    Variable,
    Vector,
)
from cuda_api.record import replace


def instructions(block: Block) -> Iterator[Instruction]:
    """All of them, those of nested blocks in their place."""
    for statement in block.statements:
        if isinstance(statement, Instruction):
            yield statement
        elif isinstance(statement, Block):
            yield from instructions(statement)


def names_of(operands: Iterable[Operand]) -> Iterator[Name]:
    """Every name in operands, those in addresses, lists and vectors, too."""
    for operand in operands:
        match operand:
            case Name():
                yield operand
            case Not(name) | Negated(name) | Offset(name) | Address(Name() as name):
                yield name
            case Vector(elements) | Arguments(elements) | Bracket(elements):
                yield from names_of(elements)
            case Pair(first, second):
                yield from names_of((first, second))


def declared_names(block: Block) -> Iterator[str]:
    """What a body declares, in nested blocks, too; a range of registers by its stem."""
    for statement in block.statements:
        match statement:
            case Variable() | Label() | Prototype() | Targets():
                yield statement.name
            case Block():
                yield from declared_names(statement)


def rewritten(block: Block, change: Callable[[Instruction], Iterable[Statement]]) -> Block:
    """The block with each instruction replaced by what `change` makes of it."""
    statements: list[Statement] = []
    for statement in block.statements:
        if isinstance(statement, Instruction):
            statements.extend(change(statement))
        elif isinstance(statement, Block):
            statements.append(rewritten(statement, change))
        else:
            statements.append(statement)
    return Block(tuple(statements))


def with_names(instruction: Instruction, change: Callable[[Name], Name]) -> Instruction:
    """The instruction with every name of its operands replaced; its guard stays."""
    return replace(instruction, operands=tuple(_operand(operand, change) for operand in instruction.operands))


def _operand(operand: Operand, change: Callable[[Name], Name]) -> Operand:
    match operand:
        case Name():
            return change(operand)
        case Not(name):
            return Not(change(name))
        case Negated(name):
            return Negated(change(name))
        case Vector(elements):
            return Vector(tuple(_operand(element, change) for element in elements))
        case Arguments(elements):
            return Arguments(tuple(_operand(element, change) for element in elements))
        case Bracket(elements):
            return Bracket(tuple(_operand(element, change) for element in elements))
        case Pair(first, second):
            return Pair(_operand(first, change), _operand(second, change))
        case Address(Name() as base, offset):
            return Address(change(base), offset)
        case Offset(symbol):
            return replace(operand, symbol=change(symbol))
        case _:
            return operand
