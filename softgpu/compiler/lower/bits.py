"""Logic, shifts and bit fields. PTX clamps shift amounts: 32 places to the left of an i32 leave zero."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Integer, Operand, Pair
from softgpu.compiler.base.scalars import Type
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

# For each mode, the four selectors that c = 0, 1, 2, 3 stand for.
_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@lowers("and", "or", "xor")
def lower_logic(builder: Builder, instruction: Instruction) -> None:
    llvm = builder.type().llvm
    destination, first, second = builder.operands(3)
    left, right = builder.read(first, llvm), builder.read(second, llvm)
    builder.write(destination, builder.let(f"{instruction.opcode} {llvm} {left}, {right}"), llvm)


@lowers("not")
def lower_not(builder: Builder, instruction: Instruction) -> None:
    llvm = builder.type().llvm
    destination, operand = builder.operands(2)
    value = builder.read(operand, llvm)
    builder.write(destination, builder.let(f"xor {llvm} {value}, {'true' if llvm == 'i1' else '-1'}"), llvm)


@lowers("cnot")
def lower_cnot(builder: Builder, instruction: Instruction) -> None:
    llvm = builder.type().llvm
    destination, operand = builder.operands(2)
    is_zero = builder.let(f"icmp eq {llvm} {builder.read(operand, llvm)}, 0")
    builder.write(destination, builder.let(f"zext i1 {is_zero} to {llvm}"), llvm)


def shifted(builder: Builder, operation: str, llvm: str, bits: int, value: str, amount: str) -> str:
    """A shift whose amount (an i32 of any size) is clamped as PTX says."""
    if amount.lstrip("-").isdigit():
        count = int(amount) % (1 << 32)
        if operation == "ashr":
            count = min(count, bits - 1)
        return builder.let(f"{operation} {llvm} {value}, {count}") if count < bits else "0"
    last = bits - 1
    too_far = builder.let(f"icmp ugt i32 {amount}, {last}")
    if operation == "ashr":
        amount = builder.select(too_far, "i32", str(last), amount)
    resized = builder.convert_bits(amount, "i32", llvm)
    value = builder.let(f"{operation} {llvm} {value}, {resized}")
    return value if operation == "ashr" else builder.select(too_far, llvm, "0", value)


@lowers("shl", "shr")
def lower_shift(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    destination, first, second = builder.operands(3)
    operation = "shl" if instruction.opcode == "shl" else "ashr" if kind.is_signed else "lshr"
    value = builder.read(first, kind.integer)
    amount = str(second.value % (1 << 32)) if isinstance(second, Integer) else builder.read(second, "i32")
    value = shifted(builder, operation, kind.integer, kind.bits, value, amount)
    builder.write(destination, value, kind.integer, signed=kind.is_signed)


@lowers("shf")
def lower_funnel(builder: Builder, instruction: Instruction) -> None:
    destination, low, high, count = builder.operands(4)
    joined = builder.let(f"shl i64 {builder.read_wide(high)}, 32")
    joined = builder.let(f"or i64 {joined}, {builder.read_wide(low)}")
    amount = builder.read(count, "i32")
    amount = (
        builder.let(f"and i32 {amount}, 31")
        if builder.has("wrap")
        else builder.call("llvm.umin.i32", "i32", amount, "32")
    )
    wide = builder.let(f"zext i32 {amount} to i64")
    if builder.has("l"):
        joined = builder.let(f"lshr i64 {builder.let(f'shl i64 {joined}, {wide}')}, 32")
    else:
        joined = builder.let(f"lshr i64 {joined}, {wide}")
    builder.write(destination, builder.let(f"trunc i64 {joined} to i32"), "i32")


def _position_and_length(builder: Builder, bits: int, operands: tuple[Operand, ...]) -> tuple[str, str]:
    """Of 32-bit fields the lower byte counts; of 64-bit ones the whole number, on an H200, though the manual says a byte."""
    position, length = (builder.read(item, "i32") for item in operands)
    if bits == 32:
        position, length = (builder.let(f"and i32 {value}, 255") for value in (position, length))
    return position, length


@lowers("bfe")
def lower_bfe(builder: Builder, instruction: Instruction) -> None:
    kind: Type = builder.type()
    destination, operand, first, second = builder.operands(4)
    llvm, bits = kind.integer, kind.bits
    position, length = _position_and_length(builder, bits, (first, second))
    value = shifted(builder, "ashr" if kind.is_signed else "lshr", llvm, bits, builder.read(operand, llvm), position)
    is_short = builder.let(f"icmp ult i32 {length}, {bits}")
    if kind.is_signed:
        unused = builder.let(f"sub i32 {bits}, {builder.select(is_short, 'i32', length, str(bits))}")
        field = shifted(builder, "shl", llvm, bits, value, unused)
        field = shifted(builder, "ashr", llvm, bits, field, unused)
        is_empty = builder.let(f"icmp eq i32 {length}, 0")
        field = builder.select(is_empty, llvm, "0", field)
    else:
        mask = builder.let(f"sub {llvm} {shifted(builder, 'shl', llvm, bits, '1', length)}, 1")
        field = builder.let(f"and {llvm} {value}, {mask}")
    builder.write(destination, field, llvm, signed=kind.is_signed)


@lowers("bfi")
def lower_bfi(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    destination, source, base, first, second = builder.operands(5)
    llvm, bits = kind.integer, kind.bits
    position, length = _position_and_length(builder, bits, (first, second))
    mask = builder.let(f"sub {llvm} {shifted(builder, 'shl', llvm, bits, '1', length)}, 1")
    mask = shifted(builder, "shl", llvm, bits, mask, position)
    inserted = shifted(builder, "shl", llvm, bits, builder.read(source, llvm), position)
    inserted = builder.let(f"and {llvm} {inserted}, {mask}")
    kept = builder.let(f"and {llvm} {builder.read(base, llvm)}, {builder.let(f'xor {llvm} {mask}, -1')}")
    builder.write(destination, builder.let(f"or {llvm} {inserted}, {kept}"), llvm)


@lowers("bmsk")
def lower_bmsk(builder: Builder, instruction: Instruction) -> None:
    destination, first, second = builder.operands(3)
    wide = []
    for operand in (first, second):
        value = builder.read(operand, "i32")
        value = (
            builder.let(f"and i32 {value}, 31")
            if builder.has("wrap")
            else builder.call("llvm.umin.i32", "i32", value, "32")
        )
        wide.append(builder.let(f"zext i32 {value} to i64"))
    mask = builder.let(f"sub i64 {builder.let(f'shl i64 1, {wide[1]}')}, 1")
    mask = builder.let(f"shl i64 {mask}, {wide[0]}")
    builder.write(destination, builder.let(f"trunc i64 {mask} to i32"), "i32")


@lowers("szext")
def lower_szext(builder: Builder, instruction: Instruction) -> None:
    """The low b bits of a, extended to 32."""
    kind = builder.type()
    destination, operand, count = builder.operands(3)
    width = builder.read(count, "i32")
    if builder.has("wrap"):
        width = builder.let(f"and i32 {width}, 31")
    unused = builder.let(f"sub i32 32, {builder.call('llvm.umin.i32', 'i32', width, '32')}")
    value = shifted(builder, "shl", "i32", 32, builder.read(operand, "i32"), unused)
    value = shifted(builder, "ashr" if kind.is_signed else "lshr", "i32", 32, value, unused)
    value = builder.select(builder.let(f"icmp eq i32 {width}, 0"), "i32", "0", value)
    builder.write(destination, value, "i32")


@lowers("popc", "brev", "clz")
def lower_count(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    llvm = kind.integer
    destination, operand = builder.operands(2)
    value = builder.read(operand, llvm)
    if instruction.opcode == "brev":
        builder.write(destination, builder.call(f"llvm.bitreverse.{llvm}", llvm, value), llvm)
        return
    count = (
        builder.call(f"llvm.ctpop.{llvm}", llvm, value)
        if instruction.opcode == "popc"
        else leading_zeros(builder, llvm, value)
    )
    builder.write(destination, builder.convert_bits(count, llvm, "i32"), "i32")


def leading_zeros(builder: Builder, llvm: str, value: str) -> str:
    name = f"llvm.ctlz.{llvm}"
    builder.frame.unit.declare(name, llvm, (llvm, "i1"))
    return builder.let(f"call {llvm} @{name}({llvm} {value}, i1 false)")


@lowers("bfind")
def lower_bfind(builder: Builder, instruction: Instruction) -> None:
    """The place of the highest bit that differs from the sign, or all ones."""
    kind = builder.type()
    llvm = kind.integer
    destination, operand = builder.operands(2)
    value = builder.read(operand, llvm)
    if kind.is_signed:
        value = builder.let(f"xor {llvm} {value}, {builder.let(f'ashr {llvm} {value}, {kind.bits - 1}')}")
    zeros = builder.convert_bits(leading_zeros(builder, llvm, value), llvm, "i32")
    place = zeros if builder.has("shiftamt") else builder.let(f"sub i32 {kind.bits - 1}, {zeros}")
    is_none = builder.let(f"icmp eq {llvm} {value}, 0")
    builder.write(destination, builder.select(is_none, "i32", "-1", place), "i32")


@lowers("fns")
def lower_fns(builder: Builder, instruction: Instruction) -> None:
    destination, mask, base, offset = builder.operands(4)
    values = ", ".join(f"i32 {builder.read(item, 'i32')}" for item in (mask, base, offset))
    builder.write(destination, builder.let(f"call i32 @{builder.helper('sgp.fns')}({values})"), "i32")


@lowers("lop3")
def lower_lop3(builder: Builder, instruction: Instruction) -> None:
    """Any function of three bits, as the or of the table's minterms; LLVM finds the short form. A predicate may tell whether any is set."""
    destination, first, second, third, table, *rest = builder.operands(5, 6)
    sources = (first, second, third)
    if not isinstance(table, Integer):
        raise builder.invalid("the table is no number")
    values = [builder.read(source, "i32") for source in sources]
    inverted = [builder.let(f"xor i32 {value}, -1") for value in values]
    result = "0"
    for index in range(8):
        if table.value >> index & 1:
            a, b, c = (values[i] if index >> (2 - i) & 1 else inverted[i] for i in range(3))
            term = builder.let(f"and i32 {builder.let(f'and i32 {a}, {b}')}, {c}")
            result = builder.let(f"or i32 {result}, {term}")
    combination = next((word for word in ("and", "or") if builder.has(word)), "")
    if combination:
        if not isinstance(destination, Pair) or not rest:
            raise builder.invalid("expected a result and two predicates")
        is_any = builder.let(f"icmp ne i32 {result}, 0")
        is_any = builder.let(f"{combination} i1 {is_any}, {builder.read(rest[0], 'i1')}")
        builder.write(destination.first, result, "i32")
        builder.write(destination.second, is_any, "i1")
    else:
        builder.write(destination, result, "i32")


@lowers("prmt")
def lower_prmt(builder: Builder, instruction: Instruction) -> None:
    """Four bytes picked from eight; bit 3 of a selector spreads the byte's sign instead."""
    destination, first, second, selector = builder.operands(4)
    joined = builder.let(f"shl i64 {builder.read_wide(second)}, 32")
    joined = builder.let(f"or i64 {joined}, {builder.read_wide(first)}")
    choice = builder.read(selector, "i32")
    modes = [mode for mode in _PERMUTATIONS if builder.has(mode)]
    if modes:
        table = sum(entry << (16 * index) for index, entry in enumerate(_PERMUTATIONS[modes[0]]))
        low = builder.let(f"zext i32 {builder.let(f'and i32 {choice}, 3')} to i64")
        chosen = builder.let(f"lshr i64 {builder.read(Integer(table), 'i64')}, {builder.let(f'shl i64 {low}, 4')}")
        choice = builder.let(f"trunc i64 {chosen} to i32")
    result = "0"
    for index in range(4):
        nibble = builder.let(f"lshr i32 {choice}, {4 * index}")
        place = builder.let(f"shl i32 {builder.let(f'and i32 {nibble}, 7')}, 3")
        moved = builder.let(f"lshr i64 {joined}, {builder.let(f'zext i32 {place} to i64')}")
        byte = builder.let(f"trunc i64 {moved} to i8")
        if not modes:
            spreads = builder.let(f"icmp ne i32 {builder.let(f'and i32 {nibble}, 8')}, 0")
            byte = builder.select(spreads, "i8", builder.let(f"ashr i8 {byte}, 7"), byte)
        part = builder.let(f"shl i32 {builder.let(f'zext i8 {byte} to i32')}, {8 * index}")
        result = builder.let(f"or i32 {result}, {part}")
    builder.write(destination, result, "i32")
