"""What a kernel is made of: the functions it may call and the variables all of them name. And whether it can have a variant at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cuda_api.generated.values import Whole
from cuda_api.ptx.syntax import Alias, Function, Instruction, Integer, Module, Name, Prototype, Targets, Variable
from cuda_api.ptx.variants.part import AXES, PREFIX, RunsWholeError
from cuda_api.ptx.variants.waiting import reads_others, waits
from cuda_api.ptx.variants.walk import declared_names, instructions, names_of

_PROVIDED = frozenset(("vprintf", "malloc", "free", "__assertfail"))
"""Functions that the driver has for every module, and that concern one thread."""
_LAUNCHES = (
    "cudaLaunchDevice",
    "cudaGetParameterBuffer",
    "__cudaCDP",
    "cudaStream",
    "cudaEvent",
    "cudaDeviceSynchronize",
)
_GRID_SYNC = ("cudaCG",)
_CLUSTER_REGISTERS = ("%cluster", "%nclusterid", "%is_explicit_cluster")
_CLUSTER_TUNING = frozenset(("reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters"))
_CLUSTER_OPCODES = frozenset(("mapa", "getctarank"))
_PARTS_SHOW = frozenset(("%gridid", "%current_graph_exec"))
_REFERENCES = frozenset(("texref", "surfref", "samplerref"))


@dataclass(frozen=True)
class Used:
    """By name. `names`: every function and variable of the module that the variant needs. Of the variables, `globals` are the original's, to
    be found by address; `literals`, which nobody writes, need not be found; `constants` are to be copied before each launch."""

    names: frozenset[str]
    globals: tuple[str, ...]
    literals: frozenset[str]
    constants: tuple[str, ...]


def used_by(module: Module, kernel: str) -> Used:
    """Raises RunsWholeError when the kernel must run whole, whatever the variant."""
    if any(isinstance(item, Alias) for item in module.items):
        raise RunsWholeError(Whole.NOT_UNDERSTOOD, "an alias")
    functions = {item.name: item for item in module.functions if item.body is not None}
    variables = {item.name: item for item in module.variables}
    entry = functions.get(kernel)
    if entry is None or not entry.is_entry:
        raise RunsWholeError(Whole.NO_PTX, f"no kernel {kernel}")
    reached = _reached(entry, functions, {item.name for item in module.functions} - functions.keys())
    for function in reached.values():
        _check(function, variables)
    _check_waiting(reached)
    named = {name for function in reached.values() for name in _names(function)}
    found = [variables[name] for name in variables if name in named]
    return Used(
        names=frozenset(reached) | named,
        globals=tuple(item.name for item in found if item.space == "global"),
        literals=frozenset(item.name for item in found if _is_literal(item)),
        constants=tuple(item.name for item in found if item.space == "const"),
    )


def _reached(entry: Function, functions: dict[str, Function], declared: set[str]) -> dict[str, Function]:
    reached = {entry.name: entry}
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        for name in _called(function, functions, declared):
            if name not in reached:
                reached[name] = functions[name]
                waiting.append(functions[name])
    return reached


def _called(function: Function, functions: dict[str, Function], declared: set[str]) -> Iterator[str]:
    """Functions with a body that are called by name; an address of one that is taken may be called anywhere."""
    assert function.body is not None
    for instruction in instructions(function.body):
        names = [name.text for name in names_of(instruction.operands)]
        if instruction.opcode != "call":
            for name in names:
                if name in functions and functions[name].is_entry:
                    raise RunsWholeError(Whole.DYNAMIC_PARALLELISM, f"{function.name} takes the address of {name}")
                if name in functions or name in declared:
                    raise RunsWholeError(Whole.INDIRECT_CALLS, f"{function.name} takes the address of {name}")
            continue
        direct = [operand.text for operand in instruction.operands if isinstance(operand, Name)]
        if len(direct) != 1:
            raise RunsWholeError(Whole.INDIRECT_CALLS, f"{function.name} calls by address")
        if direct[0] in functions:
            yield direct[0]
        elif direct[0] not in _PROVIDED:
            raise RunsWholeError(_foreign(direct[0]), f"{function.name} calls {direct[0]}")


def _foreign(name: str) -> Whole:
    if name.startswith(_LAUNCHES):
        return Whole.DYNAMIC_PARALLELISM
    return Whole.GRID_SYNC if name.startswith(_GRID_SYNC) else Whole.UNKNOWN_FUNCTION


def _check(function: Function, variables: dict[str, Variable]) -> None:
    assert function.body is not None
    for word in function.tuning:
        if getattr(word, "name", "") in _CLUSTER_TUNING:
            raise RunsWholeError(Whole.CLUSTERS, f"{function.name} has a cluster's size")
    own = set(declared_names(function.body)) | {item.name for item in (*function.parameters, *function.returns)}
    if any(name.lstrip("%").startswith(PREFIX) for name in own) or not own.isdisjoint(variables):
        raise RunsWholeError(Whole.NOT_UNDERSTOOD, f"{function.name} uses a name in two ways")
    for statement in function.body.statements:
        if isinstance(statement, Targets | Prototype) and getattr(statement, "kind", "") != "branchtargets":
            raise RunsWholeError(Whole.INDIRECT_CALLS, f"{function.name} calls by address")
    for instruction in instructions(function.body):
        _check_instruction(function.name, instruction, variables)


def _check_instruction(function: str, instruction: Instruction, variables: dict[str, Variable]) -> None:
    if instruction.opcode in _CLUSTER_OPCODES or (
        instruction.opcode in ("barrier", "cp", "red", "st", "multimem") and _is_of_cluster(instruction)
    ):
        raise RunsWholeError(Whole.CLUSTERS, f"{function}: {instruction.spelling}")
    for name in names_of(instruction.operands):
        if name.text.startswith("%envreg"):
            raise RunsWholeError(Whole.GRID_SYNC, f"{function} reads {name.text}")
        if name.text.startswith(_CLUSTER_REGISTERS):
            raise RunsWholeError(Whole.CLUSTERS, f"{function} reads {name.text}")
        if name.text in _PARTS_SHOW or (name.text in ("%ctaid", "%nctaid") and name.component not in AXES):
            raise RunsWholeError(Whole.SPECIAL_REGISTER, f"{function} reads {name.text}")
        variable = variables.get(name.text)
        if variable is not None and (variable.type in _REFERENCES or variable.space == "tex"):
            raise RunsWholeError(Whole.TEXTURE_REFERENCE, f"{function} uses {name.text}")


def _is_of_cluster(instruction: Instruction) -> bool:
    """Copies by the tensor unit say shared::cluster without any cluster, too."""
    words = instruction.modifiers
    return "cluster" in words or "multicast::cluster" in words or (instruction.opcode == "st" and "async" in words)


def _check_waiting(reached: dict[str, Function]) -> None:
    bodies = {name: function.body for name, function in reached.items() if function.body is not None}
    reading = frozenset(name for name, body in bodies.items() if reads_others(body))
    for name, body in bodies.items():
        if waits(body, reading):
            raise RunsWholeError(Whole.WAITS_FOR_BLOCKS, f"a loop of {name}")


def _names(function: Function) -> Iterator[str]:
    assert function.body is not None
    for instruction in instructions(function.body):
        yield from (name.text for name in names_of(instruction.operands))


def _is_literal(variable: Variable) -> bool:
    """A string: bytes that end with the only zeros."""
    values = variable.initialiser
    if variable.space != "global" or variable.type not in ("b8", "u8", "s8") or not isinstance(values, tuple):
        return False
    numbers = [value.value for value in values if isinstance(value, Integer)]
    return len(numbers) == len(values) and numbers[-1:] == [0] and all(numbers[: numbers.index(0)] or [1])
