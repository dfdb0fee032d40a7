"""One PTX module on its way to LLVM modules: places, tokens, and every function in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial

from cuda_api.ptx.syntax import Alias, Function, Initialiser, Module, Name, Offset, Variable
from cuda_api.record import replace
from softgpu.compiler.base.errors import InvalidPtxError
from softgpu.compiler.base.layout import (
    DYNAMIC_SHARED_ALIGNMENT_BYTES,
    FUNCTION_TOKEN_STEP,
    RESERVED_SHARED,
    Stack,
    align,
    alignment_bytes,
    place_globals,
)
from softgpu.compiler.flow.analysis import Traits, functions_by_address, traits
from softgpu.compiler.flow.flatten import FlatFunction, flatten
from softgpu.compiler.flow.lockstep import keep_in_step, name_members
from softgpu.compiler.flow.segments import fission
from softgpu.compiler.module.fission import fission_pieces
from softgpu.compiler.module.function import kernel_piece, lower_function
from softgpu.compiler.module.kernel import Kernel
from softgpu.compiler.module.tables import module_tables
from softgpu.compiler.text.frame import Frame
from softgpu.compiler.text.pieces import Part, Piece, spread
from softgpu.compiler.text.unit import Unit

_METADATA = (
    "!0 = !{}",
    "!1 = distinct !{}",
    "!2 = !{i32 1, i32 1025}",
    "!3 = !{i32 0, i32 2147483647}",
    "!4 = !{i32 1, i32 -2147483648}",
    "!5 = distinct !{!5}",
    "!6 = distinct !{!6, !5}",
    "!7 = distinct !{!7, !5}",
    "!8 = !{!6}",
    "!9 = !{!7}",
    '!10 = !{!"branch_weights", i32 1000000, i32 1}',
)

_INSTRUCTIONS_OF_TABLES = 8
"""As many cost as much in the tables, which need each kernel's number of registers, as one does in the code."""
_LEAST_WEIGHT, _LEAST_WEIGHT_OF_PART = 40, 150
"""Of what is worth a process: to start one and to link what it makes costs as much as some 30 instructions."""
_ALLOCA_BYTES = 64 << 10
"""What alloca can count on, beside the program's stack limit."""


class Translation:
    """`text()` is the whole as one LLVM module, `parts()` as several."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._defined = self._definitions(module)
        self.flats = {name: flatten(function) for name, function in self._defined.items()}
        for flat in self.flats.values():
            keep_in_step(flat)
            name_members(flat, module.targets)
        self._function_tokens = {
            name: FUNCTION_TOKEN_STEP * (index + 1)
            for index, name in enumerate(name for name, item in self._defined.items() if not item.is_entry)
        }
        self._aliases()
        places = place_globals(self._image_variables(), self._function_tokens)
        initialised = set(_initialiser_names(variable.initialiser for variable in self._image_variables()))
        device = {name: flat for name, flat in self.flats.items() if not flat.function.is_entry}
        by_address = functions_by_address(self.flats, initialised) & device.keys() if device else set()
        self.traits = traits(self.flats, by_address)
        self._names = {name: frozenset(_names_of(flat)) for name, flat in self.flats.items()}
        self._dynamic_shared: set[str] = set()
        self._dynamic_alignment = DYNAMIC_SHARED_ALIGNMENT_BYTES
        self._common_shared = Stack()
        if self._uses_reserved_shared(self._defined):
            self._common_shared.place(RESERVED_SHARED)
        self._place_common_shared()
        self._unit = Unit(self.flats, self._function_tokens, places, self._common_shared, self._dynamic_shared)

    @staticmethod
    def _definitions(module: Module) -> dict[str, Function]:
        defined: dict[str, Function] = {}
        for function in module.functions:
            if function.body is not None:
                if function.name in defined and defined[function.name].linkage != "weak":
                    raise InvalidPtxError(f"line {function.line}: '{function.name}' is defined twice")
                defined[function.name] = function
        return defined

    def _aliases(self) -> None:
        for item in self._module.items:
            if isinstance(item, Alias):
                if item.target not in self._defined:
                    raise InvalidPtxError(f"alias '{item.name}' of '{item.target}', which is no function")
                self.flats[item.name] = self.flats[item.target]
                self._function_tokens[item.name] = self._function_tokens[item.target]

    def _image_variables(self) -> Iterator[Variable]:
        yield from (item for item in self._module.variables if item.space in ("global", "const"))
        for flat in self.flats.values():
            yield from (item for item in flat.variables.values() if item.space in ("global", "const"))

    def _is_of_kernels(self, variable: Variable) -> bool:
        """A shared variable of the module that no device function names: each kernel that does has a place of its own for it."""
        functions = (name for name, flat in self.flats.items() if not flat.function.is_entry)
        return variable.linkage != "extern" and not any(variable.name in self._names[name] for name in functions)

    def _place_common_shared(self) -> None:
        of_module = [item for item in self._module.variables if item.space == "shared"]
        self._kernels_shared = [item for item in of_module if self._is_of_kernels(item)]
        variables = [item for item in of_module if item not in self._kernels_shared]
        for flat in self.flats.values():
            own = [item for item in flat.variables.values() if item.space == "shared"]
            variables += own if not flat.function.is_entry else [item for item in own if item.linkage == "extern"]
        for variable in variables:
            if variable.linkage == "extern":
                self._dynamic_shared.add(variable.name)
                self._dynamic_alignment = max(self._dynamic_alignment, alignment_bytes(variable))
            elif variable.name not in self._common_shared.places:
                self._common_shared.place(variable)

    def text(self) -> str:
        """The LLVM module, in text form."""
        return self._part(self._pieces(), is_first=True)

    def parts(self, nr_most: int) -> list[Part]:
        """The same as up to so many LLVM modules of about the same weight."""
        pieces = self._pieces()
        large = sum(piece.weight >= _LEAST_WEIGHT for piece in pieces)
        nr_parts = min(nr_most, large, sum(piece.weight for piece in pieces) // _LEAST_WEIGHT_OF_PART)
        parts = spread(pieces, max(nr_parts, 1))
        return [
            Part(partial(self._part, part, is_first=part is parts[0]), sum(piece.weight for piece in part))
            for part in parts
        ]

    def _pieces(self) -> list[Piece]:
        """What the module's code consists of."""
        pieces: list[Piece] = []
        kernels: list[Kernel] = []
        for index, (name, flat) in enumerate(self.flats.items()):
            if flat.function.name != name or not flat.function.is_entry:
                continue
            kernel = self._kernel(index, flat)
            plan = fission(flat, self.flats, self.traits[name]) if not kernel.reserved_shared else None
            frame = Frame(self._unit, plan.flat if plan else flat, self.traits[name], kernel.shared.places)
            kernel.parameters = frame.parameters
            kernel.local_bytes = frame.local.end_bytes
            kernels.append(kernel)
            pieces.extend(fission_pieces(kernel, frame, plan) if plan else [kernel_piece(kernel, frame)])
        return [*pieces, self._tables(kernels, pieces)]

    def _tables(self, kernels: list[Kernel], pieces: list[Piece]) -> Piece:
        named = {name: text for piece in pieces for name, text in piece.defines.items() if not name.startswith("loop")}
        weight = sum(len(kernel.flat.code) for kernel in kernels) // _INSTRUCTIONS_OF_TABLES
        return Piece(lambda unit: module_tables(self._module, unit.globals, kernels), weight, uses=named)

    def _part(self, pieces: Sequence[Piece], *, is_first: bool) -> str:
        """
        An LLVM module of some pieces and of the functions they call. What no kernel calls is in the first: it is compiled to be refused where
        something in it is not supported.
        """
        unit = replace(self._unit, declarations={}, helpers={}, uses_function_table=False)
        parts = [line for piece in pieces for line in piece.lines(unit)]
        reachable = {name for piece in pieces for name in piece.reachable}
        if is_first:
            kernels = (self.traits[name] for name, item in self._defined.items() if item.is_entry)
            reachable |= self._defined.keys() - {name for found in kernels for name in found.reachable}
        wanted = {self.flats[name].function.name for name in reachable}
        parts += self._lowered(unit, wanted)
        if unit.uses_function_table:  # some function of those may have asked for it
            parts += self._lowered(unit, self._defined.keys() - wanted)
            parts.append(self._function_table())
        if any("bfloat" in part for part in (*parts, *unit.helpers.values())):
            unit.use_helper("__truncsfbf2")
        defined = {name for piece in pieces for name in piece.defines}
        named = {name: text for piece in pieces for name, text in piece.uses.items() if name not in defined}
        shared = dict.fromkeys(line for piece in pieces for line in piece.shared)
        return "\n".join(
            (*parts, *shared, *named.values(), *unit.helpers.values(), *unit.declarations.values(), *_METADATA, "")
        )

    def _lowered(self, unit: Unit, names: Set[str]) -> Iterator[str]:
        """The device functions of these names, in the module's order."""
        for name, item in self._defined.items():
            if name in names and not item.is_entry:
                yield from lower_function(Frame(unit, self.flats[name], self.traits[name], {}))

    def _function_table(self) -> str:
        names = [name for name, item in self._defined.items() if not item.is_entry]
        entries = ", ".join(f'ptr @"f.{name}"' for name in names)
        return f"@functions = internal constant [{len(names)} x ptr] [{entries}]"

    def _kernel(self, index: int, flat: FlatFunction) -> Kernel:
        found = self.traits[flat.function.name]
        shared = Stack()
        if self._uses_common_shared(found):
            shared.end_bytes = self._common_shared.end_bytes
        named = (item for item in self._kernels_shared if item.name in self._names[flat.function.name])
        own = {item.name: item for item in (*named, *flat.variables.values())}
        for variable in own.values():
            if variable.space == "shared" and variable.linkage != "extern":
                shared.place(variable)
        static_bytes = shared.end_bytes
        if self._uses(found, self._dynamic_shared):
            static_bytes = align(static_bytes, self._dynamic_alignment)
        reserved = (
            self._common_shared.places.get(RESERVED_SHARED.name)
            if self._uses_reserved_shared(found.reachable)
            else None
        )
        return Kernel(index, flat, found, shared, static_bytes, self._stack_bytes(found), reserved)

    def _stack_bytes(self, found: Traits) -> int:
        """An upper guess at the stack of one thread: its local arrays, spilled registers, and what the runtime's printf needs."""
        needed = 32 << 10
        for name in found.reachable:
            flat = self.flats[name]
            local = sum(v.dimensions[0] if v.dimensions else 16 for v in flat.variables.values() if v.space == "local")
            needed += local + 4 * min(len(flat.registers), 4096)
            needed += _ALLOCA_BYTES * any(instruction.opcode == "alloca" for instruction in flat.instructions)
        return needed + (256 << 10 if found.is_recursive or found.has_indirect_calls else 0)

    def _uses_common_shared(self, found: Traits) -> bool:
        return self._uses(found, set(self._common_shared.places)) or self._uses_reserved_shared(found.reachable)

    def _uses_reserved_shared(self, functions: Iterable[str]) -> bool:
        return any(
            isinstance(operand, Name) and operand.text.startswith(RESERVED_SHARED.name)
            for name in functions
            for instruction in self.flats[name].instructions
            if instruction.opcode == "mov"
            for operand in instruction.operands
        )

    def _uses(self, found: Traits, names: set[str]) -> bool:
        return any(not self._names[name].isdisjoint(names) for name in found.reachable)


def _names_of(flat: FlatFunction) -> Iterator[str]:
    """All that its instructions name."""
    waiting = [operand for instruction in flat.instructions for operand in instruction.operands]
    while waiting:
        operand = waiting.pop()
        waiting += getattr(operand, "elements", ())
        base = getattr(operand, "base", getattr(operand, "symbol", operand))
        if isinstance(base, Name):
            yield base.text


def _initialiser_names(values: Iterable[Initialiser | None]) -> Iterator[str]:
    for value in values:
        if isinstance(value, tuple):
            yield from _initialiser_names(value)
        elif isinstance(value, Name):
            yield value.text
        elif isinstance(value, Offset):
            yield value.symbol.text
