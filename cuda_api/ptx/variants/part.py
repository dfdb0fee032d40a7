"""What both variants share: why a kernel has none, and the kernel's module reduced to what the variant needs."""

from __future__ import annotations

from collections.abc import Mapping

from cuda_api.generated.values import Whole
from cuda_api.ptx.syntax import Function, Instruction, Integer, Module, Name, Variable
from cuda_api.ptx.variants.walk import rewritten, with_names
from cuda_api.record import replace

PREFIX = "fgv_"
"""Of every name that a variant adds."""
DESCRIPTOR = f"{PREFIX}launch"
"""The parameter that is appended: what part of the grid, and how large the grid is."""
BLOCK = f"{PREFIX}block"
"""In shared memory: the block's index (x, y, z), whether there is one, and the size of the grid (x, y, z)."""
AXES = ("x", "y", "z")


class RunsWholeError(Exception):
    """The kernel has no variant. `reason` is what is counted; the text names what was found."""

    def __init__(self, reason: Whole, found: str) -> None:
        super().__init__(f"{reason.text}: {found}")
        self.reason = reason


def alone(module: Module, names: frozenset[str], addresses: Mapping[str, int]) -> Module:
    """The module with the functions and variables `names` only; the original's variables in `addresses` are reached by those."""
    items: list[Function | Variable] = []
    for item in module.items:
        if isinstance(item, Function) and item.name in names:
            items.append(_by_address(item, addresses))
        elif isinstance(item, Variable) and item.name in names and item.name not in addresses:
            items.append(_declared_again(item))
    return replace(module, items=tuple(items))


def _declared_again(variable: Variable) -> Variable:
    """Constants are filled from the original before each launch, so what they begin with matters only to those that nobody fills."""
    linkage = variable.linkage if variable.linkage == "extern" else ""
    initialiser = None if variable.space == "const" else variable.initialiser
    return replace(variable, linkage=linkage, initialiser=initialiser)


def _by_address(function: Function, addresses: Mapping[str, int]) -> Function:
    if function.body is None:
        return function
    used: dict[str, str] = {}

    def change(instruction: Instruction) -> tuple[Instruction, ...]:
        before: list[Instruction] = []

        def register(name: Name) -> Name:
            if name.text not in addresses:
                return name
            own = used.setdefault(name.text, f"%{PREFIX}v{len(used)}")
            before.append(Instruction("mov", ("u64",), (Name(own), Integer(addresses[name.text]))))
            return Name(own)

        changed = with_names(instruction, register)
        return (*before, changed)

    body = rewritten(function.body, change)
    registers = tuple(Variable("reg", "b64", name) for name in used.values())
    return replace(function, body=replace(body, statements=(*registers, *body.statements)))
