"""
What the names of one function mean: registers, variables of every space, parameters, other functions, special registers.

Local memory is an alloca. Inside a kernel that hands no local address to anybody, an address in the local space is an offset into it, which
LLVM can see through; elsewhere it is the generic address itself. Shared addresses are always offsets into the block's shared memory.
"""

from __future__ import annotations

from copy import copy

from cuda_api.ptx.syntax import Label, Name
from softgpu.compiler.base.layout import Placed, Stack, alignment_bytes, size_bytes
from softgpu.compiler.base.scalars import TYPES
from softgpu.compiler.flow.analysis import BUILTINS, Traits, callee, floating_registers, pointer_registers
from softgpu.compiler.flow.flatten import FlatFunction
from softgpu.compiler.text.special import read_special
from softgpu.compiler.text.unit import Unit
from softgpu.compiler.text.writer import Writer


class Frame:
    """Names of one function. `own_shared` are the kernel's shared variables, `dynamic_offset` where the launch's bytes begin."""

    def __init__(self, unit: Unit, flat: FlatFunction, traits: Traits, own_shared: dict[str, Placed]) -> None:
        self.unit = unit
        self.flat = flat
        self.name = flat.function.name
        self.is_entry = flat.function.is_entry
        self.traits = traits
        self._own_shared = own_shared
        self._registers: dict[str, str | None] = {}
        self.local = Stack()
        for variable in flat.variables.values():
            if variable.space == "local":
                self.local.place(variable)
        self.parameters = Stack()
        for parameter in flat.function.parameters:
            if parameter.space == "param" and self.is_entry:
                self.parameters.place(parameter)
        self.are_locals_offsets = self.is_entry and not self._shares_local_addresses()
        self._floats = floating_registers(flat)
        self._pointers = pointer_registers(flat, self._is_pointer_symbol)
        self.spin_targets = self._spin_targets()
        self._argument_slots: dict[str, str] = {}
        self._parameter_names = {item.name: f"%arg{i}" for i, item in enumerate(flat.function.parameters)}
        self._parameter_names |= {item.name: f"%ret{i}" for i, item in enumerate(flat.function.returns)}

    def _spin_targets(self) -> dict[int, frozenset[str]]:
        """For each branch of a loop that waits, by its index in the code, the labels before which it yields."""
        found: dict[int, frozenset[str]] = {}
        for source, target in self.traits.spin_edges:
            label = self.flat.code[target]
            if isinstance(label, Label):
                found[source] = found.get(source, frozenset()) | {label.name}
        return found

    def _shares_local_addresses(self) -> bool:
        for instruction in self.flat.instructions:
            if instruction.opcode == "alloca":
                return True
            if instruction.opcode == "cvta" and "to" in instruction.modifiers and "local" in instruction.modifiers:
                return True
            if instruction.opcode == "call":
                target = callee(instruction)
                if target is None or target.text not in BUILTINS:
                    return True
        return False

    def _is_pointer_symbol(self, name: str) -> bool:
        if name in self.local.places:
            return not self.are_locals_offsets
        return name in self.unit.globals.places

    # Registers

    def is_register(self, name: str) -> bool:
        return name in self.flat.registers

    def register_type(self, name: str) -> str | None:
        declared = self.flat.registers.get(name)
        if declared is None or declared not in TYPES:
            return None
        if name in self._pointers:
            return "ptr"
        known = TYPES[declared]
        if known.kind == "p":
            return "i1"
        if known.name in ("f32", "f64"):
            return known.llvm
        if name in self._floats:
            return "float" if known.bits == 32 else "double"
        return known.integer

    # Memory

    def of_unit(self, unit: Unit) -> Frame:
        """The same for another unit that collects what the code asks for."""
        other = copy(self)
        other.unit, other._argument_slots = unit, {}
        return other

    def part(self, unit: Unit, flat: FlatFunction, traits: Traits, local_base: str) -> Frame:
        """The same names for a part of the function that is a function of its own. Its local variables lie at `local_base`."""
        other = copy(self)
        other.unit, other.flat, other.traits = unit, flat, traits
        other._argument_slots = {"local": local_base}
        return other

    @property
    def local_alignment(self) -> int:
        return max([16, *(alignment_bytes(v) for v in self.flat.variables.values() if v.space == "local")])

    def local_base(self, writer: Writer) -> str:
        if "local" not in self._argument_slots:
            array = f"[{max(self.local.end_bytes, 1)} x i8]"
            self._argument_slots["local"] = writer.allocate(array, self.local_alignment)
        return self._argument_slots["local"]

    def shared_offset(self, name: str) -> str | None:
        """A shared variable's offset in the block's shared memory, or the value that holds it."""
        placed = self._own_shared.get(name) or self.unit.common_shared.places.get(name)
        if placed is not None:
            return str(placed.offset_bytes)
        return "%dynamic" if name in self.unit.dynamic_shared else None

    def parameter_pointer(self, writer: Writer, name: str) -> str | None:
        """Where a .param variable lies. One of the body, an argument or a result of a call, gets room when first asked for."""
        variable = self.flat.variables.get(name)
        if variable is not None and variable.space == "param":
            if name not in self._argument_slots:
                size, alignment = max(size_bytes(variable), 1), max(alignment_bytes(variable), 8)
                self._argument_slots[name] = writer.allocate(f"[{size} x i8]", alignment)
            return self._argument_slots[name]
        if self.is_entry and name in self.parameters.places:
            offset = self.parameters.places[name].offset_bytes
            return writer.let(f"getelementptr i8, ptr %params, i64 {offset}")
        return self._parameter_names.get(name)

    def read_symbol(self, writer: Writer, name: Name) -> tuple[str, str]:
        """The value of a name that is no register, and its LLVM type: an address in its space, a token, a special register."""
        text = name.text
        if text in self.local.places:
            offset = self.local.places[text].offset_bytes
            if self.are_locals_offsets:
                return str(offset), "i64"
            return writer.let(f"getelementptr i8, ptr {self.local_base(writer)}, i64 {offset}"), "ptr"
        shared = self.shared_offset(text)
        if shared is not None:
            return (writer.let(f"zext i32 {shared} to i64") if shared[0] == "%" else shared), "i64"
        parameter = self.parameter_pointer(writer, text)
        if parameter is not None:
            return parameter, "ptr"
        if text in self.unit.globals.places:
            offset = self.unit.globals.places[text].offset_bytes
            return writer.let(f"getelementptr i8, ptr %globals, i64 {offset}"), "ptr"
        if text in self.unit.function_tokens:
            return str(self.unit.function_tokens[text]), "i64"
        if text == "WARP_SZ":
            return "32", "i32"
        return read_special(writer, self.unit, name)

    def space_of(self, name: str) -> str:
        if name in self.local.places:
            return "local"
        return "shared" if self.shared_offset(name) is not None else ""
