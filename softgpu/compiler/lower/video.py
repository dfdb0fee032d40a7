"""
Dot products of packed integers, and the video instructions: on bytes and halves of 32-bit numbers, one or all of a number at once.

GPUs since Maxwell have few of the latter and make the others of several instructions. Programs write them in assembly.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuda_api.ptx.syntax import Instruction, Name, Negated, Operand
from softgpu.compiler.base.scalars import TYPES, Type
from softgpu.compiler.lower.arithmetic import absolute
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers


def _part(builder: Builder, value: str, index: int, bits: int, is_signed: bool) -> str:
    """The index-th group of `bits` bits, as an i32."""
    moved = builder.let(f"lshr i32 {value}, {bits * index}") if index else value
    narrow = builder.let(f"trunc i32 {moved} to i{bits}")
    return builder.let(f"{'sext' if is_signed else 'zext'} i{bits} {narrow} to i32")


@lowers("dp4a", "dp2a")
def lower_dot(builder: Builder, instruction: Instruction) -> None:
    left_type, right_type = builder.types()
    destination, first, second, third = builder.operands(4)
    left, right = builder.read(first, "i32"), builder.read(second, "i32")
    total = builder.read(third, "i32")
    is_pairs = instruction.opcode == "dp2a"
    start = 2 if is_pairs and builder.has("hi") else 0
    for index in range(2 if is_pairs else 4):
        a = _part(builder, left, index, 16 if is_pairs else 8, left_type.is_signed)
        b = _part(builder, right, index + start, 8, right_type.is_signed)
        total = builder.let(f"add i32 {total}, {builder.let(f'mul i32 {a}, {b}')}")
    builder.write(destination, total, "i32")


_PACKED = ("add", "sub", "avrg", "absdiff", "min", "max", "set")

# What of a 32-bit operand a selector behind its name means: where it begins, and of how many bits it is.
_PARTS = {"": (0, 32), "h0": (0, 16), "h1": (16, 16), **{f"b{index}": (8 * index, 8) for index in range(4)}}
_SECONDARY = ("add", "min", "max")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SCALES = {"shr7": 7, "shr15": 15}


def _component(operand: Operand) -> str:
    return operand.component if isinstance(operand, Name) else ""


def _kinds(builder: Builder, nr_sources: int) -> list[Type]:
    """The type of the result, and those of the sources. A comparison's result is unsigned."""
    kinds = builder.types()
    if builder.instruction.opcode.startswith("vset"):
        kinds = [TYPES["u32"], *kinds]
    if len(kinds) != 1 + nr_sources or any(kind.bits != 32 or kind.kind not in "us" for kind in kinds):
        raise builder.unsupported()
    return kinds


def _word(builder: Builder, words: Iterable[str]) -> str:
    """Which of the words the instruction has, or ''."""
    return next((word for word in words if builder.has(word)), "")


def _extended(builder: Builder, operand: Operand, kind: Type, wide: str) -> str:
    """The part of an operand that its selector means, by its sign."""
    place, bits = _place(builder, operand)
    value = builder.read(operand, "i32")
    if place:
        value = builder.let(f"lshr i32 {value}, {place}")
    if bits < 32:
        value = builder.let(f"trunc i32 {value} to i{bits}")
    return builder.let(f"{'sext' if kind.is_signed else 'zext'} i{bits} {value} to {wide}")


def _place(builder: Builder, operand: Operand) -> tuple[int, int]:
    try:
        return _PARTS[_component(operand)]
    except KeyError:
        raise builder.invalid(f"no part is called '{_component(operand)}'") from None


def _combined(builder: Builder, operation: str, wide: str, left: str, right: str) -> str:
    """Exact: `wide` has room for the result, but for shifts to the left."""
    if operation in ("add", "sub"):
        return builder.let(f"{operation} {wide} {left}, {right}")
    if operation == "absdiff":
        return absolute(builder, wide, builder.let(f"sub {wide} {left}, {right}"))
    if operation in ("min", "max"):
        return builder.call(f"llvm.s{operation}.{wide}", wide, left, right)
    if operation == "avrg":
        total = builder.let(f"add {wide} {left}, {right}")
        rounds_up = builder.let(f"zext i1 {builder.let(f'icmp sge {wide} {total}, 0')} to {wide}")
        return builder.let(f"ashr {wide} {builder.let(f'add {wide} {total}, {rounds_up}')}, 1")
    if operation in ("shl", "shr"):
        return _shifted(builder, operation, wide, left, right)
    comparison = _word(builder, _COMPARISONS)
    if not comparison:
        raise builder.unsupported()
    condition = comparison if comparison in ("eq", "ne") else f"s{comparison}"
    return builder.let(f"zext i1 {builder.let(f'icmp {condition} {wide} {left}, {right}')} to {wide}")


def _shifted(builder: Builder, operation: str, wide: str, value: str, amount: str) -> str:
    if builder.has("wrap"):
        amount = builder.let(f"and {wide} {amount}, 31")
    elif builder.has("clamp"):
        amount = builder.call(f"llvm.umin.{wide}", wide, amount, "32")
    else:
        raise builder.unsupported()
    return builder.let(f"{'ashr' if operation == 'shr' else operation} {wide} {value}, {amount}")


def _clamped(builder: Builder, wide: str, value: str, bits: int, *, is_signed: bool) -> str:
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    value = builder.call(f"llvm.smax.{wide}", wide, value, str(least))
    return builder.call(f"llvm.smin.{wide}", wide, value, str(most))


@lowers("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
def lower_scalar_video(builder: Builder, instruction: Instruction) -> None:
    """On parts of two numbers; with a third one the result is added to it, compared with it, or put into a part of it."""
    operation = instruction.opcode[1:]
    builder.check_modifiers(frozenset(("sat", *_SECONDARY, *_COMPARISONS, "wrap", "clamp")))
    destination, first, second, *rest = builder.operands(3, 4)
    result_kind, *source_kinds = _kinds(builder, 2)
    wide = "i128" if operation == "shl" else "i64"
    left = _extended(builder, first, source_kinds[0], wide)
    right = _extended(builder, second, source_kinds[1], wide)
    result = _combined(builder, operation, wide, left, right)
    place, bits = _place(builder, destination)
    if builder.has("sat"):
        result = _clamped(builder, wide, result, bits, is_signed=result_kind.is_signed)
    secondary = _word(builder, _SECONDARY)
    if bool(rest) != bool(secondary or bits < 32):
        raise builder.invalid("a third operand is to be used, by an operation or by a part of the result")
    if secondary:
        result = _combined(builder, secondary, wide, result, _extended(builder, rest[0], result_kind, wide))
    result = builder.let(f"trunc {wide} {result} to i32")
    if bits < 32:
        mask = (1 << bits) - 1
        part = builder.let(f"shl i32 {builder.let(f'and i32 {result}, {mask}')}, {place}")
        others = builder.let(f"and i32 {builder.read(rest[0], 'i32')}, {~(mask << place)}")
        result = builder.let(f"or i32 {part}, {others}")
    builder.write(destination, result, "i32")


@lowers("vmad")
def lower_vmad(builder: Builder, instruction: Instruction) -> None:
    """A product of parts and a sum, of which all bits count until the end. A negated product or summand is its complement plus one."""
    builder.check_modifiers(frozenset(("sat", "po", *_SCALES)))
    destination, *operands = builder.operands(4)
    kinds = _kinds(builder, 2)[1:]
    negated = [isinstance(operand, Negated) for operand in operands]
    first, second, third = (item.operand if isinstance(item, Negated) else item for item in operands)
    is_signed = kinds[0].is_signed or kinds[1].is_signed or negated[0] != negated[1] or negated[2]
    left, right = _extended(builder, first, kinds[0], "i128"), _extended(builder, second, kinds[1], "i128")
    result = builder.let(f"mul i128 {left}, {right}")
    if negated[0] != negated[1]:
        result = builder.let(f"sub i128 0, {result}")
    summand = _extended(builder, third, TYPES["s32" if is_signed else "u32"], "i128")
    result = builder.let(f"{'sub' if negated[2] else 'add'} i128 {result}, {summand}")
    if builder.has("po"):
        result = builder.let(f"add i128 {result}, 1")
    scale = _word(builder, _SCALES)
    if scale:
        result = builder.let(f"ashr i128 {result}, {_SCALES[scale]}")
    if builder.has("sat"):
        result = _clamped(builder, "i128", result, 32, is_signed=is_signed)
    builder.write(destination, builder.let(f"trunc i128 {result} to i32"), "i32")


@lowers(*(f"v{operation}{count}" for operation in _PACKED for count in (2, 4)))
def lower_packed_video(builder: Builder, instruction: Instruction) -> None:
    """Each part by itself; .add sums up those that the mask names, without it the others come from the third operand."""
    operation, count = instruction.opcode[1:-1], int(instruction.opcode[-1])
    bits = 32 // count
    builder.check_modifiers(frozenset(("sat", "add", *_COMPARISONS)))
    destination, first, second, third = builder.operands(4)
    result_kind, *source_kinds = _kinds(builder, 2)
    values = [builder.read(first, "i32"), builder.read(second, "i32")]
    chosen = (
        _selection(builder, first, count) or list(range(count)),
        _selection(builder, second, count) or list(range(count, 2 * count)),
    )
    mask = _mask(builder, destination, count)
    others = result = builder.read(third, "i32")
    if not builder.has("add"):
        kept = sum(((1 << bits) - 1) << (bits * index) for index in range(count) if index not in mask)
        result = builder.let(f"and i32 {others}, {kept}")
    for index in mask:
        left, right = (
            _part(builder, values[places[index] // count], places[index] % count, bits, kind.is_signed)
            for places, kind in zip(chosen, source_kinds, strict=True)
        )
        part = _combined(builder, operation, "i32", left, right)
        if builder.has("sat"):
            part = _clamped(builder, "i32", part, bits, is_signed=result_kind.is_signed)
        if builder.has("add"):
            result = builder.let(f"add i32 {result}, {part}")
        else:
            cut = builder.let(f"and i32 {part}, {(1 << bits) - 1}")
            result = builder.let(f"or i32 {result}, {builder.let(f'shl i32 {cut}, {bits * index}')}")
    builder.write(destination, result, "i32")


def _mask(builder: Builder, operand: Operand, count: int) -> list[int]:
    """Which parts of the result are meant: .b20 as 0 and 2."""
    return _digits(builder, operand, count, count) or list(range(count))


def _selection(builder: Builder, operand: Operand, count: int) -> list[int]:
    """Which parts of both sources, those of the first before those of the second, are meant, the lowest first; none without a selector."""
    found = _digits(builder, operand, count, 2 * count)
    if len(found) not in (0, count):
        raise builder.invalid(f"no parts are called '{_component(operand)}'")
    return found


def _digits(builder: Builder, operand: Operand, count: int, nr_parts: int) -> list[int]:
    selector = _component(operand)
    digits = selector[1:]
    is_known = selector[:1] == ("b" if count == 4 else "h") and digits.isdecimal()
    if selector and not (is_known and int(max(digits)) < nr_parts):
        raise builder.invalid(f"no parts are called '{selector}'")
    return [int(digit) for digit in reversed(digits)]
