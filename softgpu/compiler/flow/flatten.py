"""
A function's body without its scopes, and without registers that are vectors: each element of one is a register of its own.

Nested blocks may declare names again (nvcc writes one block for each call, inline assembly one for each use). Here every name of a nested
block that declares something gets its own spelling, so that all later passes see one flat list and one table of names.
"""

from __future__ import annotations

from collections.abc import Mapping

from cuda_api.ptx.syntax import (
    Address,
    Arguments,
    Block,
    Bracket,
    Function,
    Guard,
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
from cuda_api.record import field, mutable_record, replace
from softgpu.compiler.base.errors import InvalidPtxError

_ELEMENTS = {axis: "xyzw"[index % 4] for index, axis in enumerate("xyzwrgba")}
"""Of a vector, by all their names."""

_MOST_REGISTERS = 1 << 20
"""Of one declaration. Compilers declare as many as they use, and code of so many would be tens of megabytes of text."""


@mutable_record
class FlatFunction:
    """`registers` maps each register to its declared PTX type; `variables` holds everything else that was declared in the body."""

    function: Function
    code: list[Instruction | Label] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    targets: dict[str, Targets] = field(default_factory=dict)

    @property
    def instructions(self) -> list[Instruction]:
        return [item for item in self.code if isinstance(item, Instruction)]


def flatten(function: Function) -> FlatFunction:
    """The function with unique names. Parameters in the register space become registers."""
    flat = FlatFunction(function)
    for parameter in (*function.returns, *function.parameters):
        if parameter.space == "reg":
            flat.registers[parameter.name] = parameter.type
    if function.body is not None:
        _Flattener(flat).block(function.body, {}, is_outermost=True)
    return flat


class _Flattener:
    def __init__(self, flat: FlatFunction) -> None:
        self._flat = flat
        self._nr_scopes = 0
        self._vectors: dict[str, Vector] = {}

    def block(self, block: Block, outer: Mapping[str, str], *, is_outermost: bool) -> None:
        names: Mapping[str, str] = outer
        if not is_outermost:
            self._nr_scopes += 1
            own = {name: f"{name}@{self._nr_scopes}" for name in _declared(block)}
            names = {**outer, **own} if own else outer
        for statement in block.statements:
            self._statement(statement, names)

    def _statement(self, statement: Statement, names: Mapping[str, str]) -> None:
        flat = self._flat
        match statement:
            case Instruction():
                flat.code.append(self._renamed(statement, names) if names or self._vectors else statement)
            case Label(name):
                flat.code.append(Label(names.get(name, name)))
            case Variable(space="reg"):
                for name in _register_names(statement):
                    self._register(names.get(name, name), statement)
            case Variable():
                name = names.get(statement.name, statement.name)
                flat.variables[name] = replace(statement, name=name)
            case Prototype():
                flat.prototypes[names.get(statement.name, statement.name)] = statement
            case Targets():
                targets = tuple(names.get(target, target) for target in statement.targets)
                flat.targets[names.get(statement.name, statement.name)] = replace(statement, targets=targets)
            case Block():
                self.block(statement, names, is_outermost=False)

    def _register(self, name: str, variable: Variable) -> None:
        if variable.vector == 1:
            self._flat.registers[name] = variable.type
            return
        elements = tuple(Name(f"{name}.{axis}") for axis in "xyzw"[: variable.vector])
        self._vectors[name] = Vector(elements)
        for element in elements:
            self._flat.registers[element.text] = variable.type

    def _renamed(self, instruction: Instruction, names: Mapping[str, str]) -> Instruction:
        guard = instruction.guard
        if guard is not None and guard.predicate in names:
            guard = Guard(names[guard.predicate], guard.is_negated)
        operands = tuple(self._operand(operand, names) for operand in instruction.operands)
        return replace(instruction, operands=operands, guard=guard)

    def _name(self, name: Name, names: Mapping[str, str]) -> Name:
        """Of what is no vector as a whole."""
        text = names.get(name.text, name.text)
        if text in self._vectors and name.component in _ELEMENTS:
            return Name(f"{text}.{_ELEMENTS[name.component]}")
        return Name(text, name.component) if text != name.text else name

    def _operand(self, operand: Operand, names: Mapping[str, str]) -> Operand:
        match operand:
            case Name(text, ""):
                return self._vectors.get(names.get(text, text)) or self._name(operand, names)
            case Name():
                return self._name(operand, names)
            case Not(name):
                return Not(self._name(name, names))
            case Negated(name):
                return Negated(self._name(name, names))
            case Vector(elements):
                return Vector(tuple(self._operand(element, names) for element in elements))
            case Arguments(elements):
                return Arguments(tuple(self._operand(element, names) for element in elements))
            case Bracket(elements):
                return Bracket(tuple(self._operand(element, names) for element in elements))
            case Pair(first, second):
                return Pair(self._operand(first, names), self._operand(second, names))
            case Address(Name() as base, offset):
                return Address(self._name(base, names), offset)
            case Offset(symbol):
                return replace(operand, symbol=self._name(symbol, names))
            case _:
                return operand


def _register_names(variable: Variable) -> list[str]:
    if variable.range_count is None:
        return [variable.name]
    if variable.range_count > _MOST_REGISTERS:
        raise InvalidPtxError(f"{variable.range_count} registers '{variable.name}'")
    return [f"{variable.name}{index}" for index in range(variable.range_count)]


def _declared(block: Block) -> list[str]:
    names: list[str] = []
    for statement in block.statements:
        match statement:
            case Variable():
                names.extend(_register_names(statement))
            case Label() | Prototype() | Targets():
                names.append(statement.name)
    return names
