"""
Several PTX modules as one, as a device linker makes of separately compiled files.

What a module keeps to itself, neither .visible nor .extern, .weak or .common, gets another name where other modules have the same one. Of a
name that all share there is one definition: a .weak one gives way to any other, the largest of .common variables stays, and two others are
an error, as is a name that is used and defined nowhere. Kernels are always shared.

nvcc links every program of separately compiled files with NVIDIA's library for kernels that launch kernels. It is left out: it stands on
functions that only NVIDIA's driver has, and a program that does not use it runs without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from cuda_api.ptx.syntax import (
    Address,
    Alias,
    Arguments,
    Block,
    Bracket,
    Function,
    Initialiser,
    Instruction,
    Label,
    Module,
    Name,
    Negated,
    Not,
    Offset,
    Operand,
    Pair,
    Pragma,
    Statement,
    Targets,
    Variable,
    Vector,
)
from cuda_api.record import replace
from softgpu.compiler.base.errors import DuplicateSymbolError, UndefinedSymbolError, UnsupportedCallError
from softgpu.compiler.base.layout import size_bytes
from softgpu.compiler.lower.calls import BUILTINS
from softgpu.compiler.module.tables import target_of

Symbol = Function | Variable
ModuleItem = Function | Variable | Alias | Pragma
_DRIVER_FUNCTIONS = ("cnp", "__cuda_syscall_cnp")
"""What the names begin with of the functions that the library for launches from kernels expects of a driver."""
_SHARED_LINKAGES = ("visible", "extern", "weak", "common")


def link(modules: Sequence[Module], *, is_complete: bool = True) -> Module:
    """Raises DuplicateSymbolError, and unless more modules are to come, UndefinedSymbolError and UnsupportedCallError."""
    library = [module for module in modules if _is_device_runtime(module)]
    apart = list(_with_own_names([module for module in modules if module not in library]))
    symbols = _chosen(item for module in apart for item in module.items if isinstance(item, Symbol))
    others = [item for module in apart for item in module.items if not isinstance(item, Symbol)]
    aliases = {item.name for item in others if isinstance(item, Alias)}
    if is_complete:
        left_out = {function.name for module in library for function in module.functions}
        _check_defined(symbols, aliases, left_out)
    newest = max(apart, key=lambda module: target_of(module.targets))
    version = max(module.version for module in apart)
    return Module(version, newest.targets, newest.address_size, (*symbols.values(), *others))


def _is_device_runtime(module: Module) -> bool:
    return any(_rank(function) == 0 and function.name.startswith(_DRIVER_FUNCTIONS) for function in module.functions)


def _is_own(item: object) -> bool:
    if isinstance(item, Function):
        return not item.is_entry and item.linkage not in _SHARED_LINKAGES
    return isinstance(item, Variable) and item.linkage not in _SHARED_LINKAGES


def _with_own_names(modules: Sequence[Module]) -> Iterator[Module]:
    """Module-level names that only one module may mean, made different from those of all others."""
    names = [{item.name for item in module.items if isinstance(item, Symbol | Alias)} for module in modules]
    nr_holders = Counter(name for held in names for name in held)
    taken = set(nr_holders)
    for index, module in enumerate(modules):
        own = {item.name for item in module.items if isinstance(item, Symbol) and _is_own(item)}
        new_names = {name: _fresh(name, index, taken) for name in sorted(own) if nr_holders[name] > 1}
        renamer = _Renamer(new_names)
        yield replace(module, items=tuple(renamer.item(item) for item in module.items)) if new_names else module


def _fresh(name: str, index: int, taken: set[str]) -> str:
    new = f"{name}${index}"
    while new in taken:
        new += "$"
    taken.add(new)
    return new


def _rank(symbol: Symbol) -> int:
    """0 is a declaration; a definition of rank 1 gives way to one of rank 2."""
    if symbol.linkage == "extern" or (isinstance(symbol, Function) and symbol.body is None):
        return 0
    return 1 if symbol.linkage in ("weak", "common") else 2


def _chosen(items: Iterable[Symbol]) -> dict[str, Symbol]:
    chosen: dict[str, Symbol] = {}
    for item in items:
        known = chosen.setdefault(item.name, item)
        if known is item:
            continue
        if type(known) is not type(item) or (_rank(item) == 2 and _rank(known) == 2):
            raise DuplicateSymbolError(f"'{item.name}' is defined more than once")
        if _rank(item) > _rank(known) or _is_larger_common(item, known):
            chosen[item.name] = item
    return chosen


def _is_larger_common(item: Symbol, known: Symbol) -> bool:
    if not (isinstance(item, Variable) and isinstance(known, Variable)):
        return False
    return item.linkage == known.linkage == "common" and size_bytes(item) > size_bytes(known)


def _check_defined(symbols: dict[str, Symbol], aliases: set[str], left_out: set[str]) -> None:
    declared = {
        name
        for name, symbol in symbols.items()
        if _rank(symbol) == 0 and not (isinstance(symbol, Variable) and symbol.space == "shared")
    }
    missing = declared - aliases - BUILTINS.keys()
    if not missing:
        return
    for symbol in symbols.values():
        for used in _used_names(symbol):
            if used in missing & left_out:
                raise UnsupportedCallError(f"'{symbol.name}' calls '{used}' (kernels cannot launch kernels)")
            if used in missing:
                raise UndefinedSymbolError(f"'{symbol.name}' refers to '{used}', which is defined nowhere")


def _used_names(symbol: Symbol) -> Iterator[str]:
    if isinstance(symbol, Function):
        yield from _names_in_block(symbol.body) if symbol.body else ()
    elif symbol.initialiser is not None:
        yield from _names_in_initialiser(symbol.initialiser)


def _names_in_block(block: Block) -> Iterator[str]:
    for statement in block.statements:
        if isinstance(statement, Block):
            yield from _names_in_block(statement)
        elif isinstance(statement, Instruction):
            for operand in statement.operands:
                yield from _names_in_operand(operand)


def _names_in_operand(operand: Operand) -> Iterator[str]:
    match operand:
        case Name(text):
            yield text
        case Address(base=Name(text)) | Offset(symbol=Name(text)):
            yield text
        case Arguments(elements) | Vector(elements) | Bracket(elements):
            for element in elements:
                yield from _names_in_operand(element)


def _names_in_initialiser(value: Initialiser) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _names_in_initialiser(item)
    elif isinstance(value, Name | Offset):
        yield from _names_in_operand(value)


class _Renamer:
    """Gives module-level names others, wherever a function or block has not declared the same name for something of its own."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def _without(self, declared: set[str]) -> _Renamer:
        return _Renamer({old: new for old, new in self._names.items() if old not in declared})

    def _name(self, text: str) -> str:
        return self._names.get(text, text)

    def item(self, item: ModuleItem) -> ModuleItem:
        match item:
            case Function():
                inner = self._without({variable.name for variable in (*item.returns, *item.parameters)})
                body = inner._block(item.body) if item.body else None
                return replace(item, name=self._name(item.name), body=body)
            case Variable():
                return self._variable(item, self._name(item.name))
            case Alias(name, target):
                return Alias(self._name(name), self._name(target))
        return item

    def _variable(self, variable: Variable, name: str) -> Variable:
        value = variable.initialiser
        return replace(variable, name=name, initialiser=None if value is None else self._initialiser(value))

    def _initialiser(self, value: Initialiser) -> Initialiser:
        if isinstance(value, tuple):
            return tuple(self._initialiser(item) for item in value)
        return cast(Initialiser, self._operand(value))

    def _block(self, block: Block) -> Block:
        declared = {item.name for item in block.statements if isinstance(item, Variable | Label | Targets)}
        inner = self._without(declared)
        return Block(tuple(inner._statement(statement) for statement in block.statements)) if inner._names else block

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case Instruction():
                return replace(statement, operands=tuple(map(self._operand, statement.operands)))
            case Block():
                return self._block(statement)
            case Variable():
                return self._variable(statement, statement.name)
            case Targets():
                return replace(statement, targets=tuple(map(self._name, statement.targets)))
        return statement

    def _operand(self, operand: Operand) -> Operand:
        match operand:
            case Name(text):
                return replace(operand, text=self._name(text)) if text in self._names else operand
            case Address(base=Name()):
                return replace(operand, base=cast(Name, self._operand(operand.base)))
            case Offset(symbol=symbol):
                return replace(operand, symbol=cast(Name, self._operand(symbol)))
            case Vector(elements) | Bracket(elements) | Arguments(elements):
                return replace(operand, elements=tuple(map(self._operand, elements)))
            case Pair(first, second):
                return Pair(self._operand(first), self._operand(second))
            case Not(inner) | Negated(inner):
                return replace(operand, operand=cast(Name, self._operand(inner)))
        return operand
