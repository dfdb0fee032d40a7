"""
Textures and surfaces: tex, tld4, txq; suld, sust, sured, suq. By handle alone: the object is a 64-bit value.

The driver's runtime reads texels and finds the places of surfaces (softgpu/driver/runtime/texture.c, surface.c); what is done here is to bring
operands into its fixed order. Numbers are those of kernel_abi.h. Forms that CUDA C++ has no function for are refused: samplers apart from
textures, multisampled textures, depth comparisons, formatted surface access (.p).
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Bracket, Instruction, Name, Operand, Pair, Vector
from softgpu.compiler.base.scalars import TYPES
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_CUBE, _LAYERED, _WHOLE, _LEVEL, _GRADIENT, _GATHER, _CHANNEL_SHIFT = 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 8
_CLAMP, _ZERO = 1 << 10, 1 << 11
_GEOMETRIES = {
    "1d": 1,
    "2d": 2,
    "3d": 3,
    "a1d": 1 | _LAYERED,
    "a2d": 2 | _LAYERED,
    "cube": 3 | _CUBE,
    "acube": 3 | _CUBE | _LAYERED,
}
_MODES = {"base": 0, "level": _LEVEL, "grad": _GRADIENT}
_BOUNDS = {"trap": 0, "clamp": _CLAMP, "zero": _ZERO}
_COORDINATES_AT, _LEVEL_AT, _GRADIENT_AT, _OFFSETS_AT = 1, 4, (5, 8), 11
_NR_OPERANDS = 14
_SURFACE_QUERY = 1 << 8
_QUERIES = {
    name: number
    for number, name in enumerate(
        (
            "width",
            "height",
            "depth",
            "channel_data_type",
            "channel_order",
            "normalized_coords",
            "array_size",
            "num_mipmap_levels",
            "num_samples",
        )
    )
}
_CACHE_WORDS = ("ca", "cg", "cs", "cv", "wb", "wt")
_REDUCTIONS = {"add": "add", "and": "and", "or": "or", "min": "min", "max": "max"}


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _object_and_coordinates(builder: Builder, operand: Operand) -> tuple[str, tuple[Operand, ...]]:
    """[object, {x, y}]"""
    if not isinstance(operand, Bracket) or len(operand.elements) != 2:
        raise builder.unsupported("only a texture that carries its sampler is read")
    handle, coordinates = operand.elements
    if not isinstance(handle, Name) or not builder.frame.is_register(handle.text):
        raise builder.unsupported("only texture and surface objects are known, no references")
    return builder.read(handle, "i64"), _elements(coordinates)


def _form(builder: Builder, instruction: Instruction, allowed: tuple[str, ...]) -> int:
    """The geometry. Refuses words that nothing is known of."""
    for word in instruction.modifiers:
        if word not in _GEOMETRIES and word not in TYPES and word not in allowed:
            raise builder.unsupported()
    found = [_GEOMETRIES[word] for word in instruction.modifiers if word in _GEOMETRIES]
    if len(found) != 1:
        raise builder.unsupported()
    return found[0]


class _Operands:
    """The runtime's array of operands while it is filled; what is not stored stays zero."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.place = builder.allocate(f"[{_NR_OPERANDS} x i32]", 16)
        builder.emit(f"store [{_NR_OPERANDS} x i32] zeroinitializer, ptr {self.place}")

    def store(self, index: int, operand: Operand) -> None:
        slot = self._builder.let(f"getelementptr i32, ptr {self.place}, i64 {index}")
        self._builder.emit(f"store i32 {self._builder.read(operand, 'i32')}, ptr {slot}")

    def store_vector(self, index: int, operands: tuple[Operand, ...], count: int) -> None:
        if len(operands) < count:
            raise self._builder.invalid(f"expected {count} elements")
        for at, operand in enumerate(operands[:count]):
            self.store(index + at, operand)

    def store_coordinates(self, form: int, operands: tuple[Operand, ...]) -> None:
        if form & _LAYERED:
            self.store(0, operands[0])
            operands = operands[1:]
        self.store_vector(_COORDINATES_AT, operands, form & 3)


def _fetch(builder: Builder, handle: str, form: int, operands: _Operands, destination: Operand) -> None:
    """Calls the runtime and writes four channels; of a pair, the second says that all is resident, which it is."""
    channels = builder.allocate("[4 x i32]", 16)
    arguments = (f"i64 {handle}", f"i32 {form}", f"ptr {operands.place}", f"ptr {channels}")
    builder.runtime("texture_fetch", "void", "ptr %self", *arguments)
    if isinstance(destination, Pair):
        builder.write(destination.second, "true", "i1")
        destination = destination.first
    results = _elements(destination)
    if len(results) != 4:
        raise builder.unsupported("a texture gives four channels")
    for index, result in enumerate(results):
        slot = builder.let(f"getelementptr i32, ptr {channels}, i64 {index}")
        builder.write(result, builder.let(f"load i32, ptr {slot}"), "i32")


def _check_types(builder: Builder) -> str:
    """The type of the coordinates."""
    types = [kind.name for kind in builder.types()]
    if len(types) != 2 or types[0] not in ("f32", "s32", "u32") or types[1] not in ("f32", "s32"):
        raise builder.unsupported()
    return types[1]


@lowers("tex")
def lower_tex(builder: Builder, instruction: Instruction) -> None:
    form = _form(builder, instruction, (*_MODES, "v4"))
    modes = [word for word in instruction.modifiers if word in _MODES]
    form |= _MODES[modes[0]] if modes else 0
    if _check_types(builder) == "s32":
        form |= _WHOLE
    destination, source, *rest = builder.operands(2, 5)
    handle, coordinates = _object_and_coordinates(builder, source)
    operands = _Operands(builder)
    operands.store_coordinates(form, coordinates)
    if form & _LEVEL and rest:
        operands.store(_LEVEL_AT, rest.pop(0))
    if form & _GRADIENT:
        for at in _GRADIENT_AT:
            operands.store_vector(at, _elements(rest.pop(0)), form & 3)
    if rest:
        offsets = rest.pop(0)
        if rest or not isinstance(offsets, Vector) or form & _CUBE:
            raise builder.unsupported("no depth is compared")
        operands.store_vector(_OFFSETS_AT, offsets.elements, form & 3)
    _fetch(builder, handle, form, operands, destination)


@lowers("tld4")
def lower_tld4(builder: Builder, instruction: Instruction) -> None:
    channel, *_ = instruction.modifiers
    form = _form(builder, instruction, ("r", "g", "b", "a", "v4")) | _GATHER
    if channel not in "rgba" or form & 3 != 2 or _check_types(builder) != "f32":
        raise builder.unsupported()
    destination, source, *rest = builder.operands(2, 3)
    handle, coordinates = _object_and_coordinates(builder, source)
    operands = _Operands(builder)
    operands.store_coordinates(form, coordinates)
    if rest:
        if not isinstance(rest[0], Vector):
            raise builder.unsupported("no depth is compared")
        operands.store_vector(_OFFSETS_AT, rest[0].elements, 2)
    _fetch(builder, handle, form | "rgba".index(channel) << _CHANNEL_SHIFT, operands, destination)


@lowers("txq", "suq")
def lower_query(builder: Builder, instruction: Instruction) -> None:
    words = [word for word in instruction.modifiers if word not in ("level", "b32")]
    if len(words) != 1 or words[0] not in _QUERIES:
        raise builder.unsupported()
    destination, source, *level = builder.operands(2, 3)
    base = getattr(source, "base", None)
    if not isinstance(base, Name) or not builder.frame.is_register(base.text):
        raise builder.unsupported("only texture and surface objects are known, no references")
    query = _QUERIES[words[0]] | (_SURFACE_QUERY if instruction.opcode == "suq" else 0)
    of_level = builder.read(level[0], "i32") if level else "0"
    arguments = (f"i64 {builder.read(base, 'i64')}", f"i32 {query}", f"i32 {of_level}")
    builder.write(destination, builder.runtime("texture_query", "i32", "ptr %self", *arguments), "i32")


def _surface_pointer(builder: Builder, form: int, operand: Operand, nr_bytes: int) -> str:
    """Where the bytes are; zeros of our own, which nobody reads afterwards, where they are outside."""
    handle, coordinates = _object_and_coordinates(builder, operand)
    operands = _Operands(builder)
    operands.store_coordinates(form, coordinates)
    arguments = (f"i64 {handle}", f"i32 {form}", f"ptr {operands.place}", f"i32 {nr_bytes}")
    found = builder.runtime("surface_address", "ptr", "ptr %self", *arguments)
    outside = builder.allocate("[4 x i32]", 16)
    builder.emit(f"store [4 x i32] zeroinitializer, ptr {outside}")
    is_outside = builder.let(f"icmp eq ptr {found}, null")
    return builder.select(is_outside, "ptr", outside, found)


def _surface_form(builder: Builder, instruction: Instruction, allowed: tuple[str, ...]) -> int:
    if instruction.modifiers[0] != "b":
        raise builder.unsupported("only bytes are read and written, no samples")
    form = _form(builder, instruction, ("b", "v2", "v4", *_BOUNDS, *_CACHE_WORDS, *allowed))
    bounds = [_BOUNDS[word] for word in instruction.modifiers if word in _BOUNDS]
    if len(bounds) != 1 or form & _CUBE:
        raise builder.unsupported()
    return form | bounds[0]


def _surface_elements(builder: Builder, form: int, values: Operand, source: Operand) -> list[tuple[Operand, str, str]]:
    """(register, LLVM type, pointer) of each element."""
    kinds = builder.types()
    elements = _elements(values)
    if len(kinds) != 1 or kinds[0].bits * len(elements) > 128 or len(elements) not in (1, 2, 4):
        raise builder.unsupported()
    size = kinds[0].size_bytes
    pointer = _surface_pointer(builder, form, source, size * len(elements))
    return [
        (element, kinds[0].integer, builder.let(f"getelementptr i8, ptr {pointer}, i64 {index * size}"))
        for index, element in enumerate(elements)
    ]


@lowers("suld")
def lower_suld(builder: Builder, instruction: Instruction) -> None:
    form = _surface_form(builder, instruction, ())
    destination, source = builder.operands(2)
    for element, llvm, pointer in _surface_elements(builder, form, destination, source):
        builder.write(element, builder.let(f"load {llvm}, ptr {pointer}, align 1"), llvm)


@lowers("sust")
def lower_sust(builder: Builder, instruction: Instruction) -> None:
    form = _surface_form(builder, instruction, ())
    place, values = builder.operands(2)
    for element, llvm, pointer in _surface_elements(builder, form, values, place):
        builder.emit(f"store {llvm} {builder.read(element, llvm)}, ptr {pointer}, align 1")


@lowers("sured")
def lower_sured(builder: Builder, instruction: Instruction) -> None:
    form = _surface_form(builder, instruction, tuple(_REDUCTIONS))
    place, value = builder.operands(2)
    operation = next((_REDUCTIONS[word] for word in instruction.modifiers if word in _REDUCTIONS), "")
    kind = builder.type(-2)
    if not operation or kind.bits not in (32, 64):
        raise builder.unsupported()
    if operation in ("min", "max") and not kind.is_signed:
        operation = f"u{operation}"
    [(element, llvm, pointer)] = _surface_elements(builder, form, value, place)
    # The runtime traps where the place is no multiple of its size.
    builder.let(
        f"atomicrmw {operation} ptr {pointer}, {llvm} {builder.read(element, llvm)} monotonic, align {kind.size_bytes}"
    )
