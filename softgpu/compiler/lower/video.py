"""Dot products of packed integers, and the packed absolute differences."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
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


@lowers("vabsdiff2", "vabsdiff4")
def lower_vabsdiff(builder: Builder, instruction: Instruction) -> None:
    """Each part by itself; .add sums them up. Masks, part selection and .sat are refused."""
    kinds = builder.types()
    builder.check_modifiers(frozenset(("add",)))
    destination, first, second, third = builder.operands(4)
    if len(kinds) != 3 or kinds[0].bits != 32:
        raise builder.unsupported()
    bits = 8 if instruction.opcode.endswith("4") else 16
    left, right = builder.read(first, "i32"), builder.read(second, "i32")
    is_sum = builder.has("add")
    result = builder.read(third, "i32") if is_sum else "0"
    for index in range(32 // bits):
        a = _part(builder, left, index, bits, kinds[1].is_signed)
        b = _part(builder, right, index, bits, kinds[2].is_signed)
        distance = absolute(builder, "i32", builder.let(f"sub i32 {a}, {b}"))
        if is_sum:
            result = builder.let(f"add i32 {result}, {distance}")
        else:
            cut = builder.let(f"and i32 {distance}, {(1 << bits) - 1}")
            result = builder.let(f"or i32 {result}, {builder.let(f'shl i32 {cut}, {bits * index}')}")
    builder.write(destination, result, "i32")
