"""
Tensor cores: wmma, mma, ldmatrix, stmatrix, movmatrix.

The driver's runtime multiplies and moves for a whole warp (softgpu/driver/runtime/matrix.c, matrix_move.c); what is done here is to bring
registers into its order. Loads and stores of wmma are each thread's own: a lane has elements that lie next to each other in a row of A, C
and D, or in a column of B. Numbers are those of kernel_abi.h.

Not known: sparse matrices, elements of 8 bits and less that are floats, m8n8k4 in f16 (for capability 7.0), f64 rounded otherwise than to
nearest even.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Instruction, Integer, Operand, Vector
from cuda_api.record import record
from softgpu.compiler.lower.memory import space_of
from softgpu.compiler.text.builder import REACH_ADDRESS, Builder
from softgpu.compiler.text.registry import lowers
from softgpu.compiler.text.special import lane

_WARP = 32
_DEALT, _SATURATES, _AND = 1 << 0, 1 << 1, 1 << 2
_FLAGS_SHIFT, _ELEMENTS_SHIFT = 48, 32
_FROM_MEMORY, _TO_MEMORY, _TRANSPOSES = 1 << 3, 1 << 4, 1 << 5
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
_NUMBERS = {element: number for number, element in enumerate(_BITS)}
_DEALT_HALVES = 16
_ROOM_WORDS = 40
"""Of one thread, for all four matrices; the most is 16, 8, 8 and 8 of m16n8k16 in f64."""

_BYTES, _HALF_BYTES = ("s8", "u8"), ("s4", "u4")
_MMA_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    **dict.fromkeys(_BYTES, ("m8n8k16", "m16n8k16", "m16n8k32")),
    **dict.fromkeys(_HALF_BYTES, ("m8n8k32", "m16n8k32", "m16n8k64")),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
_WMMA_SHAPES = {
    **dict.fromkeys(("f16", "bf16", *_BYTES), ("m16n16k16", "m32n8k16", "m8n32k16")),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
    **dict.fromkeys(_HALF_BYTES, ("m8n8k32",)),
    "b1": ("m8n8k128",),
}
_RESULTS = {
    "f16": ("f16", "f32"),
    "bf16": ("f32",),
    "tf32": ("f32",),
    "f64": ("f64",),
    **dict.fromkeys((*_BYTES, *_HALF_BYTES, "b1"), ("s32",)),
}


def _dimensions(shape: str) -> tuple[int, int, int]:
    """(16, 8, 4) of m16n8k4."""
    rows, rest = shape[1:].split("n")
    columns, depth = rest.split("k")
    return int(rows), int(columns), int(depth)


@record
class _Product:
    """What is multiplied; `elements` are those of A, B, C and D."""

    shape: str
    elements: tuple[str, str, str, str]
    flags: int

    @property
    def form(self) -> int:
        rows, columns, depth = _dimensions(self.shape)
        elements = sum(_NUMBERS[element] << 4 * place for place, element in enumerate(self.elements))
        return rows | columns << 8 | depth << 16 | elements << _ELEMENTS_SHIFT | self.flags << _FLAGS_SHIFT

    def nr_elements(self, place: int) -> int:
        """Of a thread."""
        rows, columns, depth = _dimensions(self.shape)
        return _nr_elements(
            (rows * depth, depth * columns, rows * columns, rows * columns)[place],
            self.elements[place],
            is_factor=place < 2,
            is_dealt=bool(self.flags & _DEALT),
        )


def _nr_elements(total: int, element: str, *, is_factor: bool, is_dealt: bool) -> int:
    return _DEALT_HALVES if is_dealt and is_factor and element == "f16" else total // _WARP


def _registers(builder: Builder, operand: Operand, nr_elements: int, element: str) -> tuple[tuple[Operand, ...], int]:
    """The registers of a fragment, and how many bits each has."""
    registers = operand.elements if isinstance(operand, Vector) else (operand,)
    bits = max(_BITS[element], 32)
    if len(registers) * bits != nr_elements * _BITS[element]:
        raise builder.invalid(f"expected {nr_elements * _BITS[element] // bits} registers, found {len(registers)}")
    return registers, bits


def _at(builder: Builder, pointer: str, offset_bytes: int) -> str:
    return builder.let(f"getelementptr i8, ptr {pointer}, i64 {offset_bytes}") if offset_bytes else pointer


def _words(builder: Builder) -> tuple[list[str], str, list[str]]:
    """The modifiers that name elements, the one that names a shape, and the others."""
    elements, shapes, others = [], [], []
    for word in builder.instruction.modifiers:
        if word in _BITS:
            elements.append(word)
        elif word[:1] == "m" and word[1:2].isdigit():
            shapes.append(word)
        else:
            others.append(word)
    if len(shapes) != 1:
        raise builder.unsupported()
    return elements, shapes[0], others


def _check_others(builder: Builder, others: Iterable[str], allowed: tuple[str, ...]) -> None:
    for word in others:
        if word not in allowed:
            raise builder.unsupported(f"'.{word}' is not known here")


def _product(builder: Builder, shapes: dict[str, tuple[str, ...]], flags: int) -> _Product:
    elements, shape, others = _words(builder)
    if len(elements) == 2:  # wmma in f16 names its results alone
        elements = [elements[0], "f16", "f16", elements[1]]
    if len(elements) != 4:
        raise builder.unsupported()
    result, first, second, addend = elements
    allowed = ["mma", "sync", "aligned", "row", "col"]
    if first == "b1":
        allowed += ["popc", "xor", "and"]
        flags |= _AND if "and" in others else 0
    elif first in (*_BYTES, *_HALF_BYTES):
        allowed.append("satfinite")
        flags |= _SATURATES if "satfinite" in others else 0
    elif first == "f64":
        allowed.append("rn")
    _check_others(builder, others, tuple(allowed))
    if shape not in shapes.get(first, ()) or not {result, addend} <= set(_RESULTS[first]):
        raise builder.unsupported()
    if second != first and not any({first, second} <= set(alike) for alike in (_BYTES, _HALF_BYTES)):
        raise builder.unsupported()
    if not flags & _DEALT and [word for word in others if word in ("row", "col")] != ["row", "col"]:
        raise builder.unsupported()
    return _Product(shape, (first, second, addend, result), flags)


def _multiply(builder: Builder, product: _Product) -> None:
    target, *factors = builder.operands(4)
    room = builder.once("matrices", f"alloca [{_ROOM_WORDS} x i32], align 8")
    end_bytes = 0
    for place, operand in enumerate(factors):
        registers, bits = _registers(builder, operand, product.nr_elements(place), product.elements[place])
        for register in registers:
            value = builder.read(register, f"i{bits}")
            builder.emit(f"store i{bits} {value}, ptr {_at(builder, room, end_bytes)}, align 4")
            end_bytes += bits // 8
    registers, bits = _registers(builder, target, product.nr_elements(3), product.elements[3])
    builder.runtime("matrix_multiply", "void", "ptr %self", f"i64 {product.form}", f"ptr {room}")
    for register in registers:
        value = builder.let(f"load i{bits}, ptr {_at(builder, room, end_bytes)}, align 4")
        builder.write(register, value, f"i{bits}")
        end_bytes += bits // 8


@lowers("mma")
def lower_mma(builder: Builder, instruction: Instruction) -> None:
    _multiply(builder, _product(builder, _MMA_SHAPES, 0))


@lowers("wmma")
def lower_wmma(builder: Builder, instruction: Instruction) -> None:
    if builder.has("mma"):
        _multiply(builder, _product(builder, _WMMA_SHAPES, _DEALT))
    elif builder.has("load"):
        target, address, *stride = builder.operands(2, 3)
        _load(builder, _Dealt.of(builder), target, address, stride)
    elif builder.has("store"):
        address, source, *stride = builder.operands(2, 3)
        _store(builder, _Dealt.of(builder), source, address, stride)
    else:
        raise builder.unsupported()


_MEMORY_WORDS = (
    "load",
    "store",
    "a",
    "b",
    "c",
    "d",
    "sync",
    "aligned",
    "row",
    "col",
    "global",
    "shared",
    "shared::cta",
)


@record
class _Dealt:
    """
    A lane's part of a matrix of wmma, and how the matrix lies in memory.

    The matrix is taken as lines of `length` elements, rows of A, C and D, columns of B; a lane has `nr` elements of one line. In memory they
    lie next to each other (`is_along`), or each in the next line.
    """

    element: str
    nr_lines: int
    length: int
    nr: int
    is_along: bool

    @staticmethod
    def of(builder: Builder) -> _Dealt:
        elements, shape, others = _words(builder)
        _check_others(builder, others, _MEMORY_WORDS)
        roles = [word for word in others if word in ("a", "b", "c", "d")]
        orders = [word for word in others if word in ("row", "col")]
        if len(elements) != 1 or len(roles) != 1 or len(orders) != 1:
            raise builder.unsupported()
        element, role = elements[0], roles[0]
        is_factor = role in ("a", "b")
        factors = (element,) if is_factor else tuple(first for first, known in _RESULTS.items() if element in known)
        if not any(shape in _WMMA_SHAPES.get(factor, ()) for factor in factors):
            raise builder.unsupported()
        rows, columns, depth = _dimensions(shape)
        nr_lines, length = {"a": (rows, depth), "b": (columns, depth)}.get(role, (rows, columns))
        is_along = (orders[0] == "row") != (role == "b")
        if _BITS[element] < 8 and not is_along:
            raise builder.unsupported("such elements lie next to each other")
        nr = _nr_elements(nr_lines * length, element, is_factor=is_factor, is_dealt=True)
        return _Dealt(element, nr_lines, length, nr, is_along)

    @property
    def moved_bits(self) -> int:
        """What is moved at once: a register's worth where elements lie next to each other."""
        return max(_BITS[self.element], 32) if self.is_along else _BITS[self.element]

    def pointers(self, builder: Builder, address: Operand, stride: list[Operand]) -> list[str]:
        """Where what is moved at once lies."""
        bits = _BITS[self.element]
        start = builder.address(address, space_of(builder.instruction))
        builder.check_address(start, max(bits // 8, 1))
        between = stride[0] if stride else Integer(self.length if self.is_along else self.nr_lines)
        step = builder.let(f"sext i32 {builder.read(between, 'i32')} to i64")
        first = builder.let(
            f"and i32 {builder.let(f'mul i32 {lane(builder)}, {self.nr}')}, {self.nr_lines * self.length - 1}"
        )
        line = builder.let(f"zext i32 {builder.let(f'udiv i32 {first}, {self.length}')} to i64")
        place = builder.let(f"zext i32 {builder.let(f'urem i32 {first}, {self.length}')} to i64")
        across, along = (line, place) if self.is_along else (place, line)
        offset = builder.let(f"add i64 {builder.let(f'mul i64 {across}, {step}')}, {along}")
        distance = builder.let(f"mul i64 {1 if self.is_along else step}, {self.moved_bits if self.is_along else bits}")
        found = []
        place_bits = builder.let(f"mul i64 {offset}, {bits}")
        for _ in range(self.nr * bits // self.moved_bits):
            pointer = builder.let(f"getelementptr i8, ptr {start}, i64 {builder.let(f'ashr i64 {place_bits}, 3')}")
            builder.check_address(pointer, 1)
            found.append(pointer)
            place_bits = builder.let(f"add i64 {place_bits}, {distance}")
        return found


def _load(builder: Builder, dealt: _Dealt, target: Operand, address: Operand, stride: list[Operand]) -> None:
    registers, bits = _registers(builder, target, dealt.nr, dealt.element)
    moved = dealt.moved_bits
    pointers = iter(dealt.pointers(builder, address, stride))
    values = []
    for _ in registers:
        value = builder.let(f"load i{moved}, ptr {next(pointers)}, align 1")
        value = builder.convert_bits(value, f"i{moved}", f"i{bits}")
        for place in range(moved, bits, moved):
            part = builder.let(f"load i{moved}, ptr {next(pointers)}, align 1")
            part = builder.convert_bits(part, f"i{moved}", f"i{bits}")
            value = builder.let(f"or i{bits} {value}, {builder.let(f'shl i{bits} {part}, {place}')}")
        values.append(value)
    for register, value in zip(registers, values, strict=True):  # behind all loads: one may be the address
        builder.write(register, value, f"i{bits}")


def _store(builder: Builder, dealt: _Dealt, source: Operand, address: Operand, stride: list[Operand]) -> None:
    registers, bits = _registers(builder, source, dealt.nr, dealt.element)
    moved = dealt.moved_bits
    pointers = iter(dealt.pointers(builder, address, stride))
    for register in registers:
        value = builder.read(register, f"i{bits}")
        for place in range(0, bits, moved):
            part = builder.let(f"lshr i{bits} {value}, {place}") if place else value
            part = builder.convert_bits(part, f"i{bits}", f"i{moved}")
            builder.emit(f"store i{moved} {part}, ptr {next(pointers)}, align 1")


_MOVE_WORDS = ("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
_ROW_BYTES = 16


def _move(builder: Builder, form: int, row: str, sources: tuple[Operand, ...], targets: tuple[Operand, ...]) -> None:
    room = builder.once("matrices", f"alloca [{_ROOM_WORDS} x i32], align 8")
    for place, register in enumerate(sources):
        builder.emit(f"store i32 {builder.read(register, 'i32')}, ptr {_at(builder, room, 4 * place)}, align 4")
    form |= _TRANSPOSES if builder.has("trans") else 0
    builder.runtime("matrix_move", "void", "ptr %self", f"i32 {form}", f"ptr {row}", f"ptr {room}")
    for place, register in enumerate(targets):
        builder.write(register, builder.let(f"load i32, ptr {_at(builder, room, 4 * place)}, align 4"), "i32")


def _row(builder: Builder, address: Operand, number: int) -> str:
    """The lane's address, which is looked at where it is one of a row."""
    pointer = builder.address(address, space_of(builder.instruction))
    is_row = builder.let(f"icmp ult i32 {lane(builder)}, {8 * number}")
    checked = builder.select(is_row, "ptr", pointer, f"inttoptr (i64 {REACH_ADDRESS} to ptr)")
    builder.check_address(checked, _ROW_BYTES)
    return pointer


@lowers("ldmatrix", "stmatrix")
def lower_matrix_rows(builder: Builder, instruction: Instruction) -> None:
    _check_others(builder, instruction.modifiers, _MOVE_WORDS)
    numbers = [int(word[1:]) for word in instruction.modifiers if word in ("x1", "x2", "x4")]
    if len(numbers) != 1 or not builder.has("m8n8") or not builder.has("b16"):
        raise builder.unsupported()
    is_load = instruction.opcode == "ldmatrix"
    first, second = builder.operands(2)
    registers, _ = _registers(builder, first if is_load else second, 2 * numbers[0], "f16")
    row = _row(builder, second if is_load else first, numbers[0])
    if is_load:
        _move(builder, numbers[0] | _FROM_MEMORY, row, (), registers)
    else:
        _move(builder, numbers[0] | _TO_MEMORY, row, registers, ())


@lowers("movmatrix")
def lower_movmatrix(builder: Builder, instruction: Instruction) -> None:
    _check_others(builder, instruction.modifiers, _MOVE_WORDS)
    target, source = builder.operands(2)
    _move(builder, 1, "null", (source,), (target,))
