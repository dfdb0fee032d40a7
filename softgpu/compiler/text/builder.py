"""
What lowerings write a function with: blocks, registers, operands, addresses.

A register is an alloca that LLVM turns into SSA values; all of them start as zero. Operands are read in the type the instruction wants and
written back in the register's own, so that a lowering never sees how a register was declared.
"""

from __future__ import annotations

import struct

from cuda_api.ptx.syntax import Address, Float, Instruction, Integer, Label, Name, Negated, Not, Offset, Operand, Vector
from softgpu.compiler.base.layout import single_of_double
from softgpu.compiler.base.scalars import BITS_OF_LLVM, TYPES, Type
from softgpu.compiler.text.frame import Frame
from softgpu.compiler.text.writer import Writer

REACH_ADDRESS = 0x680000000000
REACH_BYTES = 1 << 43
"""Of the addresses that kernels may use."""


def float_constant(bits: int, llvm: str) -> str:
    return f"bitcast (i{BITS_OF_LLVM[llvm]} {bits} to {llvm})"


def zero(llvm: str) -> str:
    """Zero in a type that registers are held in."""
    return "null" if llvm == "ptr" else "0.0" if llvm in ("float", "double") else "0"


class Builder(Writer):
    """Emission state of one function. `frame` knows what its names mean."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame.name)
        self.frame = frame
        self.is_terminated = False
        self._slots: dict[str, tuple[str, str]] = {}
        self._checked_bytes: dict[str, int] = {}
        self._addresses: dict[int, str] = {}
        self.bad_bits = self.allocate("i64")
        self.entry.append(f"  store i64 0, ptr {self.bad_bits}")
        self.labels: dict[str, str] = {}
        self.yields_to: frozenset[str] = frozenset()

    # Blocks

    def name_labels(self, code: list[Instruction | Label]) -> None:
        self.labels = {item.name: f"L{index}" for index, item in enumerate(code) if isinstance(item, Label)}

    def branch(self, label: str) -> None:
        self._collect_addresses()
        self.emit(f"br label %{label}")
        self.is_terminated = True

    def branch_if(self, condition: str, then: str, otherwise: str) -> None:
        self._collect_addresses()
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}")
        self.is_terminated = True

    def start(self, label: str) -> None:
        """Begins a block, falling into it where the one before is open."""
        if not self.is_terminated:
            self.branch(label)
        self.lines.append(f"{label}:")
        self.is_terminated = False
        self._checked_bytes.clear()

    def terminate(self, text: str) -> None:
        self._collect_addresses()
        self.emit(text)
        self.is_terminated = True

    # Types

    def type(self, index: int = -1) -> Type:
        """The type named by a modifier, by default the last one."""
        modifiers = self.instruction.modifiers
        try:
            return TYPES[modifiers[index]]
        except (IndexError, KeyError):
            raise self.unsupported("its type is not known here") from None

    def types(self) -> list[Type]:
        """All modifiers that name types, in order."""
        return [TYPES[word] for word in self.instruction.modifiers if word in TYPES]

    def has(self, modifier: str) -> bool:
        return modifier in self.instruction.modifiers

    def check_modifiers(self, allowed: frozenset[str]) -> None:
        """Refuses modifiers that would change the meaning in a way nobody implemented."""
        for word in self.instruction.modifiers:
            if word not in allowed and word not in TYPES:
                raise self.unsupported(f"'.{word}' is not known here")

    def operands(self, least: int, most: int = 0) -> tuple[Operand, ...]:
        operands = self.instruction.operands
        if not least <= len(operands) <= (most or least):
            raise self.invalid(f"expected {least} operands, found {len(operands)}")
        return operands

    # Registers

    def slot(self, name: str) -> tuple[str, str]:
        """A register's alloca and its LLVM type."""
        known = self._slots.get(name)
        if known is None:
            llvm = self.frame.register_type(name)
            if llvm is None:
                raise self.invalid(f"'{name}' is not declared")
            pointer = self.allocate(llvm)
            self.entry.append(f"  store {llvm} {zero(llvm)}, ptr {pointer}")
            known = self._slots[name] = (pointer, llvm)
        return known

    def carry_slot(self) -> str:
        """The condition code's carry flag."""
        if "%cc" not in self._slots:
            pointer = self.allocate("i1")
            self.entry.append(f"  store i1 0, ptr {pointer}")
            self._slots["%cc"] = (pointer, "i1")
        return self._slots["%cc"][0]

    def convert_bits(self, value: str, source: str, target: str, *, signed: bool = False) -> str:
        """The same bits in another LLVM type; cut or extended where the widths differ."""
        if source == target:
            return value
        from_bits, to_bits = BITS_OF_LLVM[source], BITS_OF_LLVM[target]
        if source == "ptr":
            value, source = self.let(f"ptrtoint ptr {value} to i64"), "i64"
            return self.convert_bits(value, source, target, signed=signed)
        if from_bits == to_bits:
            if target == "ptr":
                if not source.startswith("i"):
                    value = self.let(f"bitcast {source} {value} to i64")
                return self.let(f"inttoptr i64 {value} to ptr")
            return self.let(f"bitcast {source} {value} to {target}")
        if not source.startswith("i"):
            value = self.let(f"bitcast {source} {value} to i{from_bits}")
        if from_bits > to_bits:
            value = self.let(f"trunc i{from_bits} {value} to i{to_bits}")
        else:
            value = self.let(f"{'sext' if signed else 'zext'} i{from_bits} {value} to i{to_bits}")
        return self.convert_bits(value, f"i{to_bits}", target)

    # Operands

    def read(self, operand: Operand, llvm: str) -> str:
        """An operand as a value of an LLVM type of the same width or narrower."""
        match operand:
            case Name(text) if text in self._slots or self.frame.is_register(text):
                pointer, held = self.slot(text)
                return self.convert_bits(self.let(f"load {held}, ptr {pointer}"), held, llvm)
            case Integer(number):
                return self._integer(number, llvm)
            case Float(bits, width):
                return self._float(bits, width, llvm)
            case Name():
                value, held = self.frame.read_symbol(self, operand)
                return self.convert_bits(value, held, llvm)
            case Offset(symbol, offset):
                value, held = self.frame.read_symbol(self, symbol)
                if held == "ptr":
                    return self.convert_bits(self.let(f"getelementptr i8, ptr {value}, i64 {offset}"), held, llvm)
                return self.convert_bits(self.let(f"add {held} {value}, {offset}"), held, llvm)
            case Not(name):
                return self.let(f"xor i1 {self.read(name, 'i1')}, true")
            case Negated(name):
                return self.let(f"sub {llvm} 0, {self.read(name, llvm)}")
            case Vector(elements):
                return self._pack(elements, llvm)
            case _:
                raise self.invalid("an operand of this shape is not expected")

    def read_wide(self, operand: Operand) -> str:
        """A 32-bit operand, extended to 64 with zeros."""
        return self.let(f"zext i32 {self.read(operand, 'i32')} to i64")

    def _integer(self, value: int, llvm: str) -> str:
        if llvm.startswith("i"):
            bits = BITS_OF_LLVM[llvm]
            if bits == 1:
                return "true" if value else "false"
            value %= 1 << bits
            return str(value - (1 << bits) if value >> (bits - 1) else value)
        if llvm == "ptr":
            return f"inttoptr (i64 {value % (1 << 64)} to ptr)"
        return float_constant(value % (1 << BITS_OF_LLVM[llvm]), llvm)

    def _float(self, bits: int, width: int, llvm: str) -> str:
        if BITS_OF_LLVM[llvm] == 32 and width == 64:
            bits = int.from_bytes(single_of_double(bits), "little")
        elif BITS_OF_LLVM[llvm] == 64 and width == 32:
            number = struct.unpack("<f", struct.pack("<I", bits))[0]
            bits = struct.unpack("<Q", struct.pack("<d", number))[0]
        return self._integer(bits, llvm)

    def _pack(self, elements: tuple[Operand, ...], llvm: str) -> str:
        total = BITS_OF_LLVM[llvm]
        bits = total // len(elements)
        packed = "0"
        for index, element in enumerate(elements):
            part = self.let(f"zext i{bits} {self.read(element, f'i{bits}')} to i{total}")
            if index:
                part = self.let(f"shl i{total} {part}, {index * bits}")
                part = self.let(f"or i{total} {packed}, {part}")
            packed = part
        return self.convert_bits(packed, f"i{total}", llvm)

    def write(self, operand: Operand, value: str, llvm: str, *, signed: bool = False) -> None:
        """Stores a value into a register (or `_`), extended by `signed` where the register is wider."""
        if isinstance(operand, Vector):
            self._unpack(operand, value, llvm)
            return
        if not isinstance(operand, Name):
            raise self.invalid("the destination is no register")
        if operand.text == "_":
            return
        self._checked_bytes.pop(operand.text, None)
        pointer, held = self.slot(operand.text)
        converted = self.convert_bits(value, llvm, held, signed=signed)
        self.emit(f"store {held} {converted}, ptr {pointer}")

    def _unpack(self, operand: Vector, value: str, llvm: str) -> None:
        total = BITS_OF_LLVM[llvm]
        bits = total // len(operand.elements)
        whole = self.convert_bits(value, llvm, f"i{total}")
        for index, element in enumerate(operand.elements):
            part = self.let(f"lshr i{total} {whole}, {index * bits}") if index else whole
            self.write(element, self.let(f"trunc i{total} {part} to i{bits}"), f"i{bits}")

    def destination_llvm(self, operand: Operand) -> str:
        """The type a register is held in."""
        if isinstance(operand, Name) and operand.text != "_" and self.frame.is_register(operand.text):
            return self.slot(operand.text)[1]
        return ""

    # Addresses

    def address(self, operand: Operand, space: str) -> str:
        """The host address of [base+offset] in a state space ('' is generic)."""
        if not isinstance(operand, Address):
            raise self.invalid("expected an address")
        base, offset = operand.base, operand.offset
        if isinstance(base, Name) and not self.frame.is_register(base.text):
            value, llvm = self.frame.read_symbol(self, base)
            return self._displaced(value, llvm, offset, self.frame.space_of(base.text) or space)
        if isinstance(base, Integer):
            return self._displaced(str(base.value), "i64", offset, space)
        _, held = self.slot(base.text)
        if held not in ("ptr", "i64"):
            held = "i32"
        return self._displaced(self.read(base, held), held, offset, space)

    def _displaced(self, value: str, llvm: str, offset: int, space: str) -> str:
        if llvm == "ptr" and space != "shared" and not (space == "local" and self.frame.are_locals_offsets):
            return self.let(f"getelementptr i8, ptr {value}, i64 {offset}") if offset else value
        # Shared and local addresses have 32 bits and wrap: a register may hold less than 0 and the offset make up for it.
        value = self.convert_bits(value, llvm, "i64", signed=space in ("shared", "local"))
        if space == "shared":
            value = self.let(f"getelementptr i8, ptr %shared, i64 {value}")
        elif space == "local" and self.frame.are_locals_offsets:
            value = self.let(f"getelementptr i8, ptr {self.frame.local_base(self)}, i64 {value}")
        else:
            value = self.let(f"inttoptr i64 {value} to ptr")
        return self.let(f"getelementptr i8, ptr {value}, i64 {offset}") if offset else value

    # Shorthands for lowerings

    def call(self, intrinsic: str, llvm: str, *arguments: str) -> str:
        """An LLVM intrinsic or helper on values of one type that returns the same type."""
        self.frame.unit.declare(intrinsic, llvm, (llvm,) * len(arguments))
        return self.let(f"call {llvm} @{intrinsic}({', '.join(f'{llvm} {value}' for value in arguments)})")

    def select(self, condition: str, llvm: str, then: str, otherwise: str) -> str:
        return self.let(f"select i1 {condition}, {llvm} {then}, {llvm} {otherwise}")

    def check_address(self, pointer: str, alignment_bytes: int, *, is_atomic: bool = False) -> None:
        """
        Notes it if an address is not a multiple of a power of two, or outside of what kernels reach.

        The host would not mind, so that this alone tells; it is collected as bits, those of a block together, and looked at when the kernel
        ends, which leaves loops over threads without branches. The access itself must not claim an alignment, or LLVM believes it; an atomic
        one has to, and its address is checked behind LLVM's back.
        """
        address = self.let(f"ptrtoint ptr {pointer} to i64")
        if is_atomic:
            address = self.let(f'call i64 asm "", "=r,0"(i64 {address})')
        address = self.let(f"xor i64 {address}, {REACH_ADDRESS}")
        others = self._addresses.get(alignment_bytes)
        self._addresses[alignment_bytes] = self.let(f"or i64 {others}, {address}") if others else address

    def check_offset(self, offset: str, alignment_bytes: int) -> None:
        """The same of an i64 that is an offset from an address that is all right: whether it is a multiple."""
        if alignment_bytes > 1:
            self.collect(self.bad_bits, self.let(f"and i64 {offset}, {alignment_bytes - 1}"))

    def _collect_addresses(self) -> None:
        """At the end of a block."""
        for alignment_bytes, address in self._addresses.items():
            self.collect(self.bad_bits, self.let(f"and i64 {address}, {alignment_bytes - 1 - REACH_BYTES}"))
        self._addresses.clear()

    def is_new_address(self, register: str, alignment_bytes: int) -> bool:
        """Whether this block has not asked for as much of the register's value; from here on it has."""
        is_new = self._checked_bytes.get(register, 0) < alignment_bytes
        if is_new:
            self._checked_bytes[register] = alignment_bytes
        return is_new

    def collect(self, place: str, bits: str) -> None:
        """Adds bits to an i64 in memory."""
        known = self.let(f"load i64, ptr {place}")
        self.emit(f"store i64 {self.let(f'or i64 {known}, {bits}')}, ptr {place}")

    def end_function(self) -> None:
        """Returns, after handing the caller what was collected."""
        self._collect_addresses()
        self.collect("%bad_bits", self.let(f"load i64, ptr {self.bad_bits}"))
        self.terminate("ret void")

    def helper(self, name: str) -> str:
        """Makes a helper of `helpers` part of the module; gives its LLVM name."""
        return self.frame.unit.use_helper(name)
