"""Comparison and selection."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Operand, Pair
from softgpu.compiler.base.scalars import TYPES, Type
from softgpu.compiler.lower.floating import flushed
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno"}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}
_FLOAT = _ORDERED | _UNORDERED
_INTEGER = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_BOOLEAN = ("and", "or", "xor")


def compared(builder: Builder, kind: Type, first: Operand, second: Operand) -> str:
    """The comparison that the instruction's first modifier names, as an i1."""
    operation = builder.instruction.modifiers[0]
    left, right = builder.read(first, kind.llvm), builder.read(second, kind.llvm)
    if kind.is_float:
        if operation not in _FLOAT:
            raise builder.unsupported("no such comparison of this type")
        left, right = flushed(builder, kind, left), flushed(builder, kind, right)
        return builder.let(f"fcmp {_FLOAT[operation]} {kind.llvm} {left}, {right}")
    predicate = _INTEGER.get(operation)
    if predicate is None:
        if operation not in ("lt", "le", "gt", "ge"):
            raise builder.invalid(f"no comparison '{operation}' of integers")
        predicate = ("s" if kind.is_signed else "u") + operation
    return builder.let(f"icmp {predicate} {kind.llvm} {left}, {right}")


def _boolean(builder: Builder, value: str, operand: Operand) -> str:
    operation = next((word for word in _BOOLEAN if builder.has(word)), "")
    return builder.let(f"{operation} i1 {value}, {builder.read(operand, 'i1')}") if operation else value


@lowers("setp")
def lower_setp(builder: Builder, instruction: Instruction) -> None:
    destination, first, second, *third = builder.operands(3, 4)
    value = compared(builder, builder.type(), first, second)
    if builder.type().kind == "x":
        _write_pair(builder, destination, value, third)
        return
    destinations = (destination.first, destination.second) if isinstance(destination, Pair) else (destination,)
    results = [value]
    if len(destinations) == 2:
        results.append(builder.let(f"xor i1 {value}, true"))
    if third:
        results = [_boolean(builder, result, third[0]) for result in results]
    for register, result in zip(destinations, results, strict=True):
        builder.write(register, result, "i1")


def _write_pair(builder: Builder, destination: Operand, value: str, third: list[Operand]) -> None:
    """A packed comparison has one predicate for each half."""
    if not isinstance(destination, Pair):
        raise builder.invalid("a packed comparison has two destinations")
    for index, register in enumerate((destination.first, destination.second)):
        half = builder.let(f"extractelement <2 x i1> {value}, i32 {index}")
        builder.write(register, _boolean(builder, half, third[0]) if third else half, "i1")


@lowers("set")
def lower_set(builder: Builder, instruction: Instruction) -> None:
    destination, first, second, *third = builder.operands(3, 4)
    target, source = builder.types()
    value = compared(builder, source, first, second)
    if source.kind == "x":
        if third:
            raise builder.unsupported("a packed comparison with a third operand")
        llvm = target.llvm if target.kind == "x" else "<2 x i16>"
        result = builder.let(f"{'uitofp' if target.kind == 'x' else 'sext'} <2 x i1> {value} to {llvm}")
        builder.write(destination, builder.let(f"bitcast {llvm} {result} to i32"), "i32")
        return
    if third:
        value = _boolean(builder, value, third[0])
    result = (
        builder.let(f"uitofp i1 {value} to {target.llvm}")
        if target.is_float
        else builder.let(f"sext i1 {value} to {target.llvm}")
    )
    builder.write(destination, result, target.llvm)


@lowers("selp")
def lower_selp(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    destination, first, second, condition = builder.operands(4)
    held = builder.destination_llvm(destination)
    llvm = held if held and kind.bits == TYPES.get(kind.name, kind).bits and _same_width(held, kind) else kind.llvm
    value = builder.select(builder.read(condition, "i1"), llvm, builder.read(first, llvm), builder.read(second, llvm))
    builder.write(destination, value, llvm)


def _same_width(held: str, kind: Type) -> bool:
    return held in (
        kind.llvm,
        kind.integer,
        "float" if kind.bits == 32 else "",
        *(("double", "ptr") if kind.bits == 64 else ()),
    )


@lowers("slct")
def lower_slct(builder: Builder, instruction: Instruction) -> None:
    kind, control = builder.types()
    destination, first, second, third = builder.operands(4)
    choice = builder.read(third, control.llvm)
    if control.is_float:
        is_positive = builder.let(f"fcmp oge {control.llvm} {flushed(builder, control, choice)}, 0.0")
    else:
        is_positive = builder.let(f"icmp sge {control.llvm} {choice}, 0")
    left, right = builder.read(first, kind.llvm), builder.read(second, kind.llvm)
    builder.write(destination, builder.select(is_positive, kind.llvm, left, right), kind.llvm)


@lowers("testp")
def lower_testp(builder: Builder, instruction: Instruction) -> None:
    """By LLVM's classes. A zero counts as normal."""
    classes = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x003,
        "normal": 0x168,
        "subnormal": 0x090,
    }
    kind = builder.type()
    destination, operand = builder.operands(2)
    mask = classes.get(instruction.modifiers[0])
    if mask is None:
        raise builder.unsupported()
    suffix = "f32" if kind.bits == 32 else "f64"
    name = f"llvm.is.fpclass.{suffix}"
    builder.frame.unit.declare(name, "i1", (kind.llvm, "i32 immarg"))
    value = builder.let(f"call i1 @{name}({kind.llvm} {builder.read(operand, kind.llvm)}, i32 {mask})")
    builder.write(destination, value, "i1")
