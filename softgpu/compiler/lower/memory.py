"""Moves, loads, stores, address conversion, fences."""

from __future__ import annotations

from cuda_api.ptx.syntax import Address, Instruction, Name, Operand, Vector
from softgpu.compiler.base.scalars import Type
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers
from softgpu.compiler.text.writer import INVARIANT, PARALLEL, SPACE_SCOPES

_SPACES = ("global", "shared", "local", "param", "const")
_STRONG = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "volatile": "monotonic",
    "mmio": "monotonic",
}
_LANES = {"v2": 2, "v4": 4, "v8": 8}
_STACK_MOST_BYTES = 256 << 10
_RED_ZONE_BYTES = 128
"""Leaf functions keep variables below the stack pointer (System V ABI)."""


def space_of(instruction: Instruction) -> str:
    """The state space an access names, without its ::suffix; '' is generic."""
    for word in instruction.modifiers:
        space = word.split("::")[0]
        if space in _SPACES:
            return space
    return ""


def _lanes(builder: Builder, operand: Operand) -> tuple[Operand, ...]:
    count = next((_LANES[word] for word in builder.instruction.modifiers if word in _LANES), 1)
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise builder.invalid(f"expected {count} elements")
    return elements


def _held_type(builder: Builder, kind: Type, operands: tuple[Operand, ...]) -> str:
    """The LLVM type to move: the register's own where it has the same width, which spares a conversion."""
    held = {builder.destination_llvm(operand) for operand in operands}
    if len(held) == 1:
        (only,) = held
        if only in ("float", "double", "ptr") and kind.bits == (32 if only == "float" else 64):
            return only
    return kind.llvm if kind.name in ("f32", "f64") else kind.integer


def _strength(instruction: Instruction) -> str:
    return next((_STRONG[word] for word in instruction.modifiers if word in _STRONG), "")


_ORDER_WORDS = ("weak", "relaxed", "acquire", "release", "volatile", "mmio", "cta", "cluster", "gpu", "sys")
_CACHE_WORDS = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")
_SPACE_WORDS = (*_SPACES, "shared::cta", "param::entry", "param::func")
_ACCESS_WORDS = frozenset((*_ORDER_WORDS, *_CACHE_WORDS, *_SPACE_WORDS, *_LANES))


def _check_words(builder: Builder) -> None:
    """Refuses what would make another instruction of a load or store. Hints to caches are taken and change nothing."""
    for word in builder.instruction.modifiers[:-1]:
        if word not in _ACCESS_WORDS and not word.startswith(("L1::", "L2::")):
            raise builder.unsupported()


@lowers("ld", "ldu")
def lower_ld(builder: Builder, instruction: Instruction) -> None:
    _check_words(builder)
    destination, address, *_ = builder.operands(2, 3)
    kind = builder.type()
    space = space_of(instruction)
    pointer = builder.address(address, space)
    lanes = _lanes(builder, destination)
    llvm = _held_type(builder, kind, lanes)
    alignment = _check_address(builder, address, pointer, kind, len(lanes))
    strength = _strength(instruction)
    if strength and kind.bits <= 64:
        for index, lane in enumerate(lanes):
            at = builder.let(f"getelementptr {llvm}, ptr {pointer}, i64 {index}") if index else pointer
            value = builder.let(f"load atomic volatile {llvm}, ptr {at} {strength}, align {kind.size_bytes}")
            builder.write(lane, value, llvm, signed=kind.is_signed)
        return
    own = _own_parameter(builder, space, address)
    if own is not None:
        for index, lane in enumerate(lanes):
            value = _parameter(builder, llvm, own + index * kind.size_bytes)
            builder.write(lane, value, llvm, signed=kind.is_signed)
        return
    # One by one: LLVM makes no vectors of loops that have some already.
    for index, lane in enumerate(lanes):
        at = builder.let(f"getelementptr {llvm}, ptr {pointer}, i64 {index}") if index else pointer
        value = builder.let(f"load {llvm}, ptr {at}, align {alignment}{_suffix(space)}")
        builder.write(lane, value, llvm, signed=kind.is_signed)


def _check_address(builder: Builder, address: Operand, pointer: str, kind: Type, nr_elements: int) -> int:
    """
    Checks an address that may be anything, and gives the alignment in bytes that the access may claim.

    Where a variable lies is known. Of the function's own local memory the offset is looked at: a look at its address would keep it in memory.
    """
    frame, space = builder.frame, space_of(builder.instruction)
    is_strong = bool(_strength(builder.instruction))
    if not (isinstance(address, Address) and isinstance(address.base, Name) and frame.is_register(address.base.text)):
        return kind.size_bytes
    size_bytes = kind.size_bytes * nr_elements
    of_base = not is_strong and address.offset % size_bytes == 0  # it tells, of this access and of its neighbours
    if of_base and not builder.is_new_address(address.base.text, size_bytes):
        return 1
    if space == "local" and frame.are_locals_offsets:
        builder.check_offset(builder.let(f"add i64 {builder.read_wide(address.base)}, {address.offset}"), size_bytes)
        return 1
    if of_base:
        pointer = builder.address(Address(address.base), space)
    builder.check_address(pointer, size_bytes, is_atomic=is_strong)
    return 1


def _own_parameter(builder: Builder, space: str, address: Operand) -> int | None:
    """The offset in the kernel's parameter buffer that [parameter+offset] names."""
    if space in ("param", "") and isinstance(address, Address) and isinstance(address.base, Name):
        place = builder.frame.parameters.places.get(address.base.text)
        if place is not None:
            return place.offset_bytes + address.offset
    return None


def _parameter(builder: Builder, llvm: str, offset: int) -> str:
    """Parameters are read in the function's entry, guarded or not, so that no loop over threads has to read them again."""
    address = f"getelementptr i8, ptr %params, i64 {offset}"
    return builder.once(f"parameter {llvm} {offset}", address, f"load {llvm}, ptr {{}}, align 1{INVARIANT}")


def _suffix(space: str) -> str:
    if space == "const":
        return INVARIANT
    return "" if space in ("local", "param") else PARALLEL + SPACE_SCOPES.get(space, "")


@lowers("st")
def lower_st(builder: Builder, instruction: Instruction) -> None:
    _check_words(builder)
    address, source, *_ = builder.operands(2, 3)
    kind = builder.type()
    space = space_of(instruction)
    pointer = builder.address(address, space)
    lanes = _lanes(builder, source)
    llvm = _held_type(builder, kind, lanes)
    values = [builder.read(lane, llvm) for lane in lanes]
    alignment = _check_address(builder, address, pointer, kind, len(lanes))
    strength = _strength(instruction)
    if strength and kind.bits <= 64:
        for index, value in enumerate(values):
            at = builder.let(f"getelementptr {llvm}, ptr {pointer}, i64 {index}") if index else pointer
            builder.emit(f"store atomic volatile {llvm} {value}, ptr {at} {strength}, align {kind.size_bytes}")
        return
    suffix = _suffix(space) if space != "const" else PARALLEL
    for index, value in enumerate(values):
        at = builder.let(f"getelementptr {llvm}, ptr {pointer}, i64 {index}") if index else pointer
        builder.emit(f"store {llvm} {value}, ptr {at}, align {alignment}{suffix}")


@lowers("mov")
def lower_mov(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    destination, source = builder.operands(2)
    if isinstance(destination, Vector) and isinstance(source, Vector):
        bits = kind.bits if len(instruction.modifiers) > 1 else kind.bits // len(source.elements)
        values = [builder.read(element, f"i{bits}") for element in source.elements]
        for element, value in zip(destination.elements, values, strict=True):
            builder.write(element, value, f"i{bits}")
        return
    if isinstance(destination, Vector) or isinstance(source, Vector):
        builder.write(destination, builder.read(source, kind.integer), kind.integer)
        return
    held = builder.destination_llvm(destination)
    llvm = held if held == "ptr" and kind.bits == 64 else kind.llvm
    if isinstance(source, Name) and not builder.frame.is_register(source.text):
        value, found = builder.frame.read_symbol(builder, source)
        builder.write(destination, builder.convert_bits(value, found, llvm), llvm)
        return
    builder.write(destination, builder.read(source, llvm), llvm)


@lowers("cvta")
def lower_cvta(builder: Builder, instruction: Instruction) -> None:
    """Between an address in a space and the generic one; only shared and local addresses differ from theirs."""
    kind = builder.type()
    destination, source = builder.operands(2)
    frame = builder.frame
    space = space_of(instruction)
    offsets_from = "%shared" if space == "shared" else ""
    if space == "local" and frame.are_locals_offsets:
        offsets_from = frame.local_base(builder)
    if not offsets_from:
        builder.write(destination, builder.read(source, "ptr"), "ptr")
    elif builder.has("to"):
        generic = builder.read(source, "i64")
        base = builder.let(f"ptrtoint ptr {offsets_from} to i64")
        builder.write(destination, builder.let(f"sub i64 {generic}, {base}"), "i64")
    else:
        offset = builder.convert_bits(builder.read(source, kind.integer), kind.integer, "i64")
        builder.write(destination, builder.let(f"getelementptr i8, ptr {offsets_from}, i64 {offset}"), "ptr")


def _within(builder: Builder, address: str, start: str, size: str) -> str:
    distance = builder.let(f"sub i64 {address}, {start}")
    return builder.let(f"icmp ult i64 {distance}, {size}")


@lowers("isspacep")
def lower_isspacep(builder: Builder, instruction: Instruction) -> None:
    destination, source = builder.operands(2)
    address = builder.read(source, "i64")
    space = space_of(instruction)
    if space == "global":
        hits = [is_in(builder, address, other) for other in ("shared", "local", "const")]
        either = builder.let(f"or i1 {builder.let(f'or i1 {hits[0]}, {hits[1]}')}, {hits[2]}")
        result = builder.let(f"xor i1 {either}, true")
    else:
        result = is_in(builder, address, space)
    builder.write(destination, result, "i1")


def is_in(builder: Builder, address: str, space: str) -> str:
    """Whether a generic address, an i64, lies in a space other than global, as an i1."""
    frame = builder.frame
    if space == "shared":
        dynamic, _ = frame.read_symbol(builder, Name("%dynamic_smem_size"))
        total = builder.let(f"zext i32 {builder.let(f'add i32 {dynamic}, %dynamic')} to i64")
        return _within(builder, address, builder.let("ptrtoint ptr %shared to i64"), total)
    if space == "const":
        return _within(
            builder, address, builder.let("ptrtoint ptr %globals to i64"), str(frame.unit.globals.constants_bytes)
        )
    if space == "param":
        if not frame.is_entry:
            raise builder.unsupported("outside of a kernel")
        start = builder.let("ptrtoint ptr %params to i64")
        return _within(builder, address, start, str(frame.parameters.end_bytes))
    if space == "local":
        builder.frame.unit.declare("llvm.stacksave.p0", "ptr", ())
        top = builder.let(f"ptrtoint ptr {builder.let('call ptr @llvm.stacksave.p0()')} to i64")
        start = builder.let(f"sub i64 {top}, {_RED_ZONE_BYTES}")
        return _within(builder, address, start, str(_STACK_MOST_BYTES))
    raise builder.unsupported()


@lowers("alloca")
def lower_alloca(builder: Builder, instruction: Instruction) -> None:
    """Memory of the running function, gone when it returns. Its address is generic: the frame sees to that."""
    destination, size, *rest = builder.operands(2, 3)
    alignment = int(builder.read(rest[0], "i32")) if rest else 8
    size_bytes = builder.convert_bits(builder.read(size, builder.type().integer), builder.type().integer, "i64")
    builder.write(destination, builder.let(f"alloca i8, i64 {size_bytes}, align {alignment}"), "ptr")


@lowers("stacksave")
def lower_stacksave(builder: Builder, instruction: Instruction) -> None:
    (destination,) = builder.operands(1)
    builder.frame.unit.declare("llvm.stacksave.p0", "ptr", ())
    builder.write(destination, builder.let("call ptr @llvm.stacksave.p0()"), "ptr")


@lowers("stackrestore")
def lower_stackrestore(builder: Builder, instruction: Instruction) -> None:
    (saved,) = builder.operands(1)
    builder.frame.unit.declare("llvm.stackrestore.p0", "void", ("ptr",))
    builder.emit(f"call void @llvm.stackrestore.p0(ptr {builder.read(saved, 'ptr')})")


@lowers("mapa", "getctarank")
def lower_cluster_address(builder: Builder, instruction: Instruction) -> None:
    raise builder.unsupported("there are no clusters")


@lowers("membar", "fence")
def lower_fence(builder: Builder, instruction: Instruction) -> None:
    if any(word.startswith(("proxy", "mbarrier_init")) for word in instruction.modifiers):
        return
    is_weaker = instruction.opcode == "fence" and not builder.has("sc")
    builder.emit("fence acq_rel" if is_weaker else "fence seq_cst")


@lowers("createpolicy")
def lower_createpolicy(builder: Builder, instruction: Instruction) -> None:
    """A policy of a cache that there is not: any number does."""
    builder.write(instruction.operands[0], "0", "i64")
