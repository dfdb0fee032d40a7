"""What must be known of all functions before the first is compiled: who calls whom, who waits, what kind each register is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cuda_api.ptx.syntax import Address, Arguments, Instruction, Name, Offset, Operand
from cuda_api.record import field, mutable_record
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.flow.spin import Callees, Edge, is_fence, polls, spin_edges

WAITING = frozenset(
    (
        *("bar", "barrier", "vote", "shfl", "match", "redux", "elect", "activemask"),
        *("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"),
    )
)
"""Opcodes whose threads wait for each other."""

BUILTINS = frozenset(("vprintf", "__assertfail", "malloc", "free", "cudaGraphSetConditional", "cudaGraphLaunch"))

CURRENT_GRAPH = "%current_graph_exec"


@mutable_record
class Traits:
    """
    `reachable` includes the function itself; an indirect call reaches every function whose address is taken. All but `spin_edges`, where the
    function's own loops yield, is over everything reachable.
    """

    waits: bool = False
    spins: bool = False
    asks_who_is_active: bool = False
    knows_graphs: bool = False
    spin_edges: frozenset[Edge] = frozenset()
    exits: bool = False
    is_recursive: bool = False
    has_indirect_calls: bool = False
    reachable: set[str] = field(default_factory=set)


def callee(instruction: Instruction) -> Name | None:
    """The operand of a call that says what is called: it stands before or after the first list in parentheses."""
    names = [operand for operand in instruction.operands if isinstance(operand, Name)]
    return names[0] if names else None


def functions_by_address(flats: dict[str, FlatFunction], initialised: Iterable[str]) -> set[str]:
    """Functions whose address some instruction or some variable takes."""
    taken = {name for name in initialised if name in flats}
    for flat in flats.values():
        for instruction in flat.instructions:
            if instruction.opcode != "call":
                taken.update(name for name in _symbols(instruction.operands) if name in flats)
    return taken


def _symbols(operands: Iterable[Operand]) -> Iterable[str]:
    for operand in operands:
        match operand:
            case Name(text):
                yield text
            case Offset(symbol):
                yield symbol.text


def traits(flats: dict[str, FlatFunction], by_address: set[str]) -> dict[str, Traits]:
    """The traits of each function, over everything it can reach."""
    direct: dict[str, set[str]] = {}
    own: dict[str, Traits] = {}
    for name, flat in flats.items():
        own[name], direct[name] = _own(flat, flats, by_address)
    reachable = {name: _reachable(name, direct) for name in flats}

    def reaching(holds: Callable[[Instruction], bool]) -> frozenset[str]:
        having = {name for name, flat in flats.items() if any(holds(item) for item in flat.instructions)}
        return frozenset(name for name in flats if reachable[name] & having)

    callees = Callees(reaching(polls), reaching(is_fence), lambda call: _callees(call, flats, by_address))
    for name, flat in flats.items():
        own[name].spin_edges = spin_edges(flat, callees)
        own[name].spins = bool(own[name].spin_edges)
    return {name: _over_reachable(name, own, direct, reachable[name]) for name in flats}


def _callees(instruction: Instruction, flats: dict[str, FlatFunction], by_address: set[str]) -> set[str]:
    """The functions of the module that a call may mean."""
    target = callee(instruction)
    if target is None:
        return set()
    if target.text in flats:
        return {target.text}
    return set() if target.text in BUILTINS else by_address


def _own(flat: FlatFunction, flats: dict[str, FlatFunction], by_address: set[str]) -> tuple[Traits, set[str]]:
    found = Traits()
    direct: set[str] = set()
    for instruction in flat.instructions:
        found.waits |= instruction.opcode in WAITING
        found.exits |= instruction.opcode == "exit"
        found.asks_who_is_active |= instruction.opcode == "activemask"
        found.knows_graphs |= Name(CURRENT_GRAPH) in instruction.operands
        if instruction.opcode == "call":
            direct |= _callees(instruction, flats, by_address)
            target = callee(instruction)
            found.knows_graphs |= target is not None and target.text == "cudaGraphLaunch"
            found.has_indirect_calls |= target is not None and target.text not in BUILTINS and target.text not in flats
    return found, direct


def _reachable(name: str, direct: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(direct[current])
    return seen


def _over_reachable(name: str, own: dict[str, Traits], direct: dict[str, set[str]], reachable: set[str]) -> Traits:
    spins = any(own[reached].spins for reached in reachable)
    return Traits(
        waits=spins or any(own[reached].waits for reached in reachable),
        spins=spins,
        asks_who_is_active=any(own[reached].asks_who_is_active for reached in reachable),
        knows_graphs=any(own[reached].knows_graphs for reached in reachable),
        spin_edges=own[name].spin_edges,
        exits=any(own[reached].exits for reached in reachable),
        is_recursive=any(_reaches_itself(reached, direct) for reached in reachable),
        has_indirect_calls=any(own[reached].has_indirect_calls for reached in reachable),
        reachable=reachable,
    )


def _reaches_itself(name: str, direct: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = list(direct[name])
    while waiting:
        current = waiting.pop()
        if current == name:
            return True
        if current not in seen:
            seen.add(current)
            waiting.extend(direct[current])
    return False


_FLOAT_ARITHMETIC = frozenset(
    (
        "add",
        "sub",
        "mul",
        "fma",
        "mad",
        "div",
        "neg",
        "abs",
        "min",
        "max",
        "rcp",
        "sqrt",
        "rsqrt",
        "ex2",
        "lg2",
        "sin",
        "cos",
        "tanh",
    )
)


def floating_registers(flat: FlatFunction) -> set[str]:
    """Untyped registers (.b32, .b64) that hold floats more often than integers; the choice is about speed alone."""
    votes: dict[str, int] = {}
    for instruction in flat.instructions:
        if not instruction.modifiers or instruction.opcode in ("mov", "selp", "call", "ld", "st", "cvt", "setp"):
            continue
        is_float = instruction.modifiers[-1] in ("f32", "f64") and instruction.opcode in _FLOAT_ARITHMETIC
        for operand in instruction.operands:
            if isinstance(operand, Name):
                votes[operand.text] = votes.get(operand.text, 0) + (1 if is_float else -1)
    return {name for name, vote in votes.items() if vote > 0 and flat.registers.get(name) in ("b32", "b64")}


def pointer_registers(flat: FlatFunction, is_pointer_symbol: Callable[[str], bool]) -> set[str]:
    """
    64-bit registers that hold generic, global or constant addresses.

    Such registers become LLVM pointers, and arithmetic on them address arithmetic, which is what makes strides visible to the vectoriser.
    A wrong answer costs speed and never correctness: pointers and integers convert to each other without loss.
    """
    wide = {name for name, declared in flat.registers.items() if declared in ("b64", "u64", "s64")}
    pointers: set[str] = set()
    flows: dict[str, list[str]] = {}

    def flow(source: Operand, destination: str) -> None:
        if isinstance(source, Name) and source.text in wide:
            flows.setdefault(source.text, []).append(destination)

    for instruction in flat.instructions:
        operands = instruction.operands
        if instruction.opcode == "cvta":
            for operand in operands[
                : 1 if "shared" in instruction.modifiers or "local" in instruction.modifiers else 2
            ]:
                if isinstance(operand, Name) and operand.text in wide:
                    pointers.add(operand.text)
        elif instruction.opcode in ("ld", "st", "atom", "red", "ldu"):
            _pointer_bases(instruction, wide, pointers)
        destination = operands[0] if operands else None
        if not isinstance(destination, Name) or destination.text not in wide:
            continue
        if instruction.opcode == "mov":
            symbols = list(_symbols(operands[1:]))
            if any(is_pointer_symbol(symbol) for symbol in symbols):
                pointers.add(destination.text)
            flow(operands[1], destination.text)
        elif instruction.opcode in ("add", "sub"):
            for operand in operands[1:2] if instruction.opcode == "sub" else operands[1:]:
                flow(operand, destination.text)
    # An address base that is itself a sum of integers stays an integer; what starts as a pointer flows on.
    waiting = list(pointers)
    while waiting:
        for destination_name in flows.get(waiting.pop(), ()):
            if destination_name not in pointers:
                pointers.add(destination_name)
                waiting.append(destination_name)
    return pointers


def _pointer_bases(instruction: Instruction, wide: set[str], pointers: set[str]) -> None:
    if any(space in instruction.modifiers for space in ("shared", "local", "param")):
        return
    for operand in instruction.operands:
        match operand:
            case Address(Name(text)) if text in wide:
                pointers.add(text)
            case Arguments():
                pass
