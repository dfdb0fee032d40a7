"""
atom and red.

Global and generic memory is shared with other blocks, which other CPU threads run: real atomic operations. Shared memory belongs to one block,
all of whose threads run on one CPU thread and are switched only where they wait: plain load, operation, store. Wrong if a block's
threads were ever spread over CPU threads.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction, Operand, Vector
from softgpu.compiler.base.scalars import Type
from softgpu.compiler.lower.floating import intrinsic
from softgpu.compiler.lower.memory import is_in, space_of
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.helpers import atomic_helper
from softgpu.compiler.text.registry import lowers

_ORDERINGS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_OPERATIONS = ("add", "sub", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec")
_PLAIN = {"add": "add", "and": "and", "or": "or", "xor": "xor"}


def _ordering(builder: Builder) -> str:
    return next((_ORDERINGS[word] for word in builder.instruction.modifiers if word in _ORDERINGS), "monotonic")


def _operation(builder: Builder) -> str:
    words = [word for word in builder.instruction.modifiers if word in _OPERATIONS]
    if len(words) != 1 or builder.has("async"):
        raise builder.unsupported()
    return words[0]


def _nr_elements(builder: Builder, kind: Type, operation: str) -> int:
    """Of a vector: of floats of 32 bits or less, in global memory, each of which is updated by itself; 1 without."""
    words = [word for word in builder.instruction.modifiers if word in ("v2", "v4", "v8")]
    nr = int(words[0][1:]) if words else 1
    is_known = kind.is_float and kind.bits <= 32 and operation in ("add", "min", "max") and nr * kind.bits <= 128
    if words and (not is_known or space_of(builder.instruction) == "shared"):
        raise builder.unsupported()
    return nr


def _elements(builder: Builder, operand: Operand, nr: int) -> tuple[Operand, ...]:
    if nr == 1:
        return (operand,)
    if not isinstance(operand, Vector) or len(operand.elements) != nr:
        raise builder.unsupported("expected a vector")
    return operand.elements


@lowers("atom", "red")
def lower_atom(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    operation = _operation(builder)
    operands = instruction.operands if instruction.opcode == "atom" else (None, *instruction.operands)
    if len(operands) < 3 + (operation == "cas") or kind.bits > 64:
        raise builder.unsupported() if kind.bits > 64 else builder.invalid("too few operands")
    destination, address, *sources = operands
    if address is None:
        raise builder.invalid("expected an address")
    nr = _nr_elements(builder, kind, operation)
    is_shared = space_of(instruction) == "shared"
    pointer = builder.address(address, space_of(instruction))
    builder.check_address(pointer, nr * kind.size_bytes, is_atomic=not is_shared)
    llvm = kind.llvm if kind.is_float else kind.integer
    values = [
        [builder.read(element, llvm) for element in _elements(builder, source, nr)]
        for source in sources[: 1 + (operation == "cas")]
        if source is not None
    ]
    old = []
    for index in range(nr):
        place = builder.let(f"getelementptr {llvm}, ptr {pointer}, i64 {index}") if index else pointer
        update = _plain if is_shared else _atomic
        old.append(update(builder, kind, llvm, operation, place, [each[index] for each in values]))
    if destination is not None:
        for element, value in zip(_elements(builder, destination, nr), old, strict=True):
            builder.write(element, value, llvm, signed=kind.is_signed)


def _rmw_name(kind: Type, operation: str) -> str:
    if operation in ("inc", "dec"):
        return f"u{operation}_wrap"
    if operation == "exch":
        return "xchg"
    if kind.is_float:
        return {"add": "fadd", "min": "fmin", "max": "fmax"}[operation]
    if operation in ("min", "max"):
        return operation if kind.is_signed else f"u{operation}"
    return operation


def _atomic(builder: Builder, kind: Type, llvm: str, operation: str, pointer: str, values: list[str]) -> str:
    ordering = _ordering(builder)
    alignment = f"align {kind.size_bytes}"
    if operation == "cas":
        failure = {"release": "monotonic", "acq_rel": "acquire"}.get(ordering, ordering)
        both = builder.let(
            f"cmpxchg ptr {pointer}, {llvm} {values[0]}, {llvm} {values[1]} {ordering} {failure}, {alignment}"
        )
        return builder.let(f"extractvalue {{ {llvm}, i1 }} {both}, 0")
    name = _rmw_name(kind, operation)
    if name == "fadd" and (kind.bits == 16 or kind.kind == "x"):
        helper = builder.helper(atomic_helper(name, llvm))
        old = builder.let(f"call {kind.integer} @{helper}(ptr {pointer}, {llvm} {values[0]})")
        return builder.convert_bits(old, kind.integer, llvm)
    if name == "fadd" and llvm == "float":
        return _flushing_sum(builder, pointer, values[0])
    return builder.let(f"atomicrmw {name} ptr {pointer}, {llvm} {values[0]} {ordering}, {alignment}")


def _flushing_sum(builder: Builder, pointer: str, value: str) -> str:
    """f32 sums know no subnormal numbers in global memory, but do in shared memory, by a generic address, too."""
    keeps = "false"
    if not space_of(builder.instruction):
        keeps = is_in(builder, builder.let(f"ptrtoint ptr {pointer} to i64"), "shared")
    helper = builder.helper("sgp.atomic.fadd.float")
    old = builder.let(f"call i32 @{helper}(ptr {pointer}, float {value}, i1 {keeps})")
    return builder.convert_bits(old, "i32", "float")


def _plain(builder: Builder, kind: Type, llvm: str, operation: str, pointer: str, values: list[str]) -> str:
    old = builder.let(f"load {llvm}, ptr {pointer}, align 1")
    new = _updated(builder, kind, llvm, operation, old, values)
    builder.emit(f"store {llvm} {new}, ptr {pointer}, align 1")
    return old


def _updated(builder: Builder, kind: Type, llvm: str, operation: str, old: str, values: list[str]) -> str:
    value = values[0]
    if operation == "exch":
        return value
    if operation == "cas":
        return builder.select(builder.let(f"icmp eq {llvm} {old}, {value}"), llvm, values[1], old)
    if operation == "inc":
        wraps = builder.let(f"icmp uge {llvm} {old}, {value}")
        return builder.select(wraps, llvm, "0", builder.let(f"add {llvm} {old}, 1"))
    if operation == "dec":
        is_zero = builder.let(f"icmp eq {llvm} {old}, 0")
        is_above = builder.let(f"icmp ugt {llvm} {old}, {value}")
        wraps = builder.let(f"or i1 {is_zero}, {is_above}")
        return builder.select(wraps, llvm, value, builder.let(f"sub {llvm} {old}, 1"))
    if kind.is_float:
        if operation == "add":
            return builder.let(f"fadd {llvm} {old}, {value}")
        return builder.call(intrinsic(f"{operation}imumnum", kind), llvm, old, value)
    if operation in ("min", "max"):
        return builder.call(f"llvm.{'s' if kind.is_signed else 'u'}{operation}.{llvm}", llvm, old, value)
    return builder.let(f"{_PLAIN[operation]} {llvm} {old}, {value}")
