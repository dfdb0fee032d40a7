"""Integer arithmetic, carry chains included. Opcodes that exist for floats too go on to `floating`."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.base.scalars import TYPES, Type
from softgpu.compiler.lower import floating
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_WIDTH_MODIFIERS = frozenset(("lo", "hi", "wide", "cc", "sat"))


def _read_two(builder: Builder, llvm: str) -> tuple[str, str]:
    operands = builder.operands(3)
    return builder.read(operands[1], llvm), builder.read(operands[2], llvm)


def _write(builder: Builder, value: str, kind: Type) -> None:
    builder.write(builder.instruction.operands[0], value, kind.integer, signed=kind.is_signed)


def _carry_in(builder: Builder, llvm: str) -> str:
    flag = builder.let(f"load i1, ptr {builder.carry_slot()}")
    return builder.let(f"zext i1 {flag} to {llvm}")


def _overflowing(builder: Builder, operation: str, llvm: str, left: str, right: str) -> tuple[str, str]:
    name = f"llvm.{operation}.with.overflow.{llvm}"
    builder.frame.unit.declare(name, f"{{ {llvm}, i1 }}", (llvm, llvm))
    both = builder.let(f"call {{ {llvm}, i1 }} @{name}({llvm} {left}, {llvm} {right})")
    return (
        builder.let(f"extractvalue {{ {llvm}, i1 }} {both}, 0"),
        builder.let(f"extractvalue {{ {llvm}, i1 }} {both}, 1"),
    )


def _sum_with_carry(builder: Builder, operation: str, llvm: str, left: str, right: str, has_carry_in: bool) -> str:
    """left +- right (+- carry), setting the carry where .cc asks for it. A subtraction that borrows nothing leaves 1: addc expects that."""
    is_sub = operation == "usub"
    value, carry = _overflowing(builder, operation, llvm, left, right)
    if has_carry_in:
        taken = _carry_in(builder, llvm)
        if is_sub:
            taken = builder.let(f"xor {llvm} {taken}, 1")
        value, second = _overflowing(builder, operation, llvm, value, taken)
        carry = builder.let(f"or i1 {carry}, {second}")
    if builder.has("cc"):
        if is_sub:
            carry = builder.let(f"xor i1 {carry}, true")
        builder.emit(f"store i1 {carry}, ptr {builder.carry_slot()}")
    return value


def _is_packed(instruction: Instruction) -> bool:
    """Whether this is two integers of 16 bits each: no type of TYPES, as few instructions know it."""
    return instruction.modifiers[-1:] in (("u16x2",), ("s16x2",))


def _packed(builder: Builder, instruction: Instruction) -> None:
    destination, *operands = builder.operands(3)
    kind = instruction.modifiers[-1]
    for word in instruction.modifiers[:-1]:
        if word != "relu" or instruction.opcode == "add" or kind != "s16x2":
            raise builder.unsupported(f"'.{word}' is not known here")
    left, right = (builder.let(f"bitcast i32 {builder.read(operand, 'i32')} to <2 x i16>") for operand in operands)
    if instruction.opcode == "add":
        value = builder.let(f"add <2 x i16> {left}, {right}")
    else:
        value = builder.call(f"llvm.{kind[0]}{instruction.opcode}.v2i16", "<2 x i16>", left, right)
    if builder.has("relu"):
        value = builder.call("llvm.smax.v2i16", "<2 x i16>", value, "zeroinitializer")
    builder.write(destination, builder.let(f"bitcast <2 x i16> {value} to i32"), "i32")


@lowers("add", "sub")
def lower_add(builder: Builder, instruction: Instruction) -> None:
    if instruction.opcode == "add" and _is_packed(instruction):
        _packed(builder, instruction)
        return
    kind = builder.type()
    if kind.is_float:
        floating.lower_sum(builder, instruction, kind)
        return
    builder.check_modifiers(_WIDTH_MODIFIERS)
    llvm = kind.integer
    pointer = _pointer_sum(builder, instruction) if kind.bits == 64 and len(instruction.modifiers) == 1 else None
    if pointer is not None:
        builder.write(instruction.operands[0], pointer, "ptr")
        return
    left, right = _read_two(builder, llvm)
    if builder.has("cc"):
        _write(builder, _sum_with_carry(builder, f"u{instruction.opcode}", llvm, left, right, False), kind)
    elif builder.has("sat"):
        _write(builder, builder.call(f"llvm.s{instruction.opcode}.sat.{llvm}", llvm, left, right), kind)
    else:
        _write(builder, builder.let(f"{instruction.opcode} {llvm} {left}, {right}"), kind)


def _pointer_sum(builder: Builder, instruction: Instruction) -> str | None:
    """pointer + integer as address arithmetic, where the registers are held so."""
    destination, first, second = builder.operands(3)
    if builder.destination_llvm(destination) != "ptr":
        return None
    if builder.destination_llvm(first) != "ptr":
        if instruction.opcode == "sub" or builder.destination_llvm(second) != "ptr":
            return None
        first, second = second, first
    displacement = builder.read(second, "i64")
    if instruction.opcode == "sub":
        displacement = builder.let(f"sub i64 0, {displacement}")
    return builder.let(f"getelementptr i8, ptr {builder.read(first, 'ptr')}, i64 {displacement}")


@lowers("addc", "subc")
def lower_addc(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    left, right = _read_two(builder, kind.integer)
    operation = f"u{instruction.opcode[:3]}"
    _write(builder, _sum_with_carry(builder, operation, kind.integer, left, right, True), kind)


def _product(builder: Builder, kind: Type, left: str, right: str) -> tuple[str, Type]:
    """left * right: the half (or the whole) that .lo, .hi or .wide asks for."""
    if builder.has("lo"):
        return builder.let(f"mul {kind.integer} {left}, {right}"), kind
    double = f"i{2 * kind.bits}"
    extend = "sext" if kind.is_signed else "zext"
    wide = builder.let(
        f"mul {double} {builder.let(f'{extend} {kind.integer} {left} to {double}')}, "
        f"{builder.let(f'{extend} {kind.integer} {right} to {double}')}"
    )
    if builder.has("wide"):
        return wide, TYPES[f"{kind.kind}{2 * kind.bits}"]
    if not builder.has("hi"):
        raise builder.invalid("expected .lo, .hi or .wide")
    high = builder.let(f"lshr {double} {wide}, {kind.bits}")
    return builder.let(f"trunc {double} {high} to {kind.integer}"), kind


@lowers("mul")
def lower_mul(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.is_float:
        floating.lower_product(builder, instruction, kind)
        return
    builder.check_modifiers(_WIDTH_MODIFIERS)
    left, right = _read_two(builder, kind.integer)
    _write(builder, *_product(builder, kind, left, right))


@lowers("mad", "madc")
def lower_mad(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.is_float:
        floating.lower_fma(builder, instruction)
        return
    builder.check_modifiers(_WIDTH_MODIFIERS)
    _, first, second, third = builder.operands(4)
    left, right = builder.read(first, kind.integer), builder.read(second, kind.integer)
    product, result = _product(builder, kind, left, right)
    addend = builder.read(third, result.integer)
    if builder.has("cc") or instruction.opcode == "madc":
        has_carry_in = instruction.opcode == "madc"
        value = _sum_with_carry(builder, "uadd", result.integer, product, addend, has_carry_in)
    elif builder.has("sat"):
        value = builder.call(f"llvm.sadd.sat.{result.integer}", result.integer, product, addend)
    else:
        value = builder.let(f"add {result.integer} {product}, {addend}")
    _write(builder, value, result)


@lowers("mul24", "mad24")
def lower_mul24(builder: Builder, instruction: Instruction) -> None:
    """The low or the high 32 bits of the 48-bit product of two 24-bit numbers."""
    kind = builder.type()
    operands = builder.operands(3, 4)
    shift = "ashr" if kind.is_signed else "lshr"
    wide = []
    for operand in operands[1:3]:
        value = builder.let(f"shl i32 {builder.read(operand, 'i32')}, 8")
        value = builder.let(f"{shift} i32 {value}, 8")
        wide.append(builder.let(f"{'sext' if kind.is_signed else 'zext'} i32 {value} to i64"))
    product = builder.let(f"mul i64 {wide[0]}, {wide[1]}")
    if builder.has("hi"):
        product = builder.let(f"lshr i64 {product}, 16")
    value = builder.let(f"trunc i64 {product} to i32")
    if len(operands) == 4:
        addend = builder.read(operands[3], "i32")
        value = (
            builder.call("llvm.sadd.sat.i32", "i32", value, addend)
            if builder.has("sat")
            else builder.let(f"add i32 {value}, {addend}")
        )
    _write(builder, value, kind)


@lowers("rem")
def lower_rem(builder: Builder, instruction: Instruction) -> None:
    _divide(builder, builder.type(), "rem")


def divide(builder: Builder, kind: Type) -> None:
    _divide(builder, kind, "div")


def _divide(builder: Builder, kind: Type, operation: str) -> None:
    """A zero divisor gives all ones, as an H200 does; the host would trap on it, and on MIN / -1."""
    llvm = kind.integer
    left, right = _read_two(builder, llvm)
    is_zero = builder.let(f"icmp eq {llvm} {right}, 0")
    avoid = is_zero
    if kind.is_signed:
        is_least = builder.let(f"icmp eq {llvm} {left}, {-(1 << (kind.bits - 1))}")
        is_minus_one = builder.let(f"icmp eq {llvm} {right}, -1")
        avoid = builder.let(f"or i1 {is_zero}, {builder.let(f'and i1 {is_least}, {is_minus_one}')}")
    divisor = builder.select(avoid, llvm, "1", right)
    value = builder.let(f"{'s' if kind.is_signed else 'u'}{operation} {llvm} {left}, {divisor}")
    _write(builder, builder.select(is_zero, llvm, "-1", value), kind)


@lowers("div")
def lower_div(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.is_float:
        floating.lower_quotient(builder, instruction, kind)
    else:
        divide(builder, kind)


@lowers("min", "max")
def lower_min(builder: Builder, instruction: Instruction) -> None:
    if _is_packed(instruction):
        _packed(builder, instruction)
        return
    kind = builder.type()
    if kind.is_float:
        floating.lower_extreme(builder, instruction, kind)
        return
    builder.check_modifiers(frozenset(("relu",)))
    left, right = _read_two(builder, kind.integer)
    sign = "s" if kind.is_signed else "u"
    value = builder.call(f"llvm.{sign}{instruction.opcode}.{kind.integer}", kind.integer, left, right)
    if builder.has("relu"):
        value = builder.call(f"llvm.smax.{kind.integer}", kind.integer, value, "0")
    _write(builder, value, kind)


@lowers("neg")
def lower_neg(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.is_float:
        floating.lower_sign(builder, instruction, kind)
        return
    _, operand = builder.operands(2)
    _write(builder, builder.let(f"sub {kind.integer} 0, {builder.read(operand, kind.integer)}"), kind)


@lowers("abs")
def lower_abs(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.is_float:
        floating.lower_sign(builder, instruction, kind)
        return
    _, operand = builder.operands(2)
    _write(builder, absolute(builder, kind.integer, builder.read(operand, kind.integer)), kind)


def absolute(builder: Builder, llvm: str, value: str) -> str:
    negated = builder.let(f"sub {llvm} 0, {value}")
    return builder.select(builder.let(f"icmp slt {llvm} {value}, 0"), llvm, negated, value)


@lowers("sad")
def lower_sad(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    _, first, second, third = builder.operands(4)
    llvm = kind.integer
    left, right = builder.read(first, llvm), builder.read(second, llvm)
    is_less = builder.let(f"icmp {'s' if kind.is_signed else 'u'}lt {llvm} {left}, {right}")
    forward = builder.let(f"sub {llvm} {left}, {right}")
    backward = builder.let(f"sub {llvm} {right}, {left}")
    difference = builder.select(is_less, llvm, backward, forward)
    _write(builder, builder.let(f"add {llvm} {difference}, {builder.read(third, llvm)}"), kind)
