"""
Where variables live: the image of globals and constants, and the offsets in shared memory.

Constants come first, so that one pair of bounds answers isspacep.const. Shared variables of the module and of device functions have one place
for all kernels, before the kernel's own; the launch's dynamic bytes follow the static ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator

from cuda_api.ptx.syntax import Float, Initialiser, Integer, Name, Offset, Variable
from cuda_api.record import field, mutable_record, record, replace
from softgpu.compiler.base.errors import InvalidPtxError, TooLargeError
from softgpu.compiler.base.scalars import TYPES

DYNAMIC_SHARED_ALIGNMENT_BYTES = 16
FUNCTION_TOKEN_STEP = 16
"""A function's address is (index + 1) times this: a number that is no address, so that a wild call is found out."""


RESERVED_SHARED = Variable("shared", "b8", "%reserved_smem", alignment=128, dimensions=(1024,))
"""What the system keeps for itself in a block's shared memory: cooperative groups have their barriers there from sm_80 on."""


_MOST_BYTES = 1 << 44
"""Of a variable, and of all: as much as the largest device has (start.c). An array's bounds multiply to any number."""
_SINGLE_LIMIT = 2.0**128 - 2.0**103
"""From here on a number rounds to infinity."""
_WHOLE_ADDRESS = (1 << 64) - 1
"""The mask that leaves all of an address."""


def single_of_double(bits: int) -> bytes:
    """An f32 of the bits of an f64, rounded to nearest."""
    [value] = struct.unpack("<d", struct.pack("<Q", bits))
    return struct.pack("<f", math.copysign(math.inf, value) if abs(value) >= _SINGLE_LIMIT else value)


def align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def element_bytes(variable: Variable) -> int:
    declared = TYPES.get(variable.type)
    if declared is None:
        raise InvalidPtxError(f"line {variable.line}: type '.{variable.type}' of '{variable.name}' is not supported")
    return declared.size_bytes * variable.vector


def size_bytes(variable: Variable) -> int:
    size = element_bytes(variable)
    for count in variable.dimensions:
        size *= count
    if size > _MOST_BYTES:
        raise TooLargeError(f"line {variable.line}: '{variable.name}' is larger than any device's memory")
    return size


def alignment_bytes(variable: Variable) -> int:
    return variable.alignment or min(element_bytes(variable), 16)


@record
class Placed:
    """A variable with an offset in its memory."""

    name: str
    space: str
    offset_bytes: int
    size_bytes: int
    is_managed: bool = False


@mutable_record
class Stack:
    """Places variables one after another."""

    end_bytes: int = 0
    places: dict[str, Placed] = field(default_factory=dict)

    def place(self, variable: Variable, size: int | None = None) -> Placed:
        offset = align(self.end_bytes, alignment_bytes(variable))
        whole = size_bytes(variable) if size is None else size
        placed = Placed(variable.name, variable.space, offset, whole, ".managed" in variable.attributes)
        self.end_bytes = offset + placed.size_bytes
        if self.end_bytes > _MOST_BYTES:
            raise TooLargeError(
                f"line {variable.line}: variables up to '{variable.name}' are larger than any device's memory"
            )
        self.places[variable.name] = placed
        return placed


@mutable_record
class GlobalImage:
    """
    `image` begins as the variables do, and ends with the last initial value: what has none takes no room. `relocations` are (at, target) pairs
    of offsets.
    """

    places: dict[str, Placed]
    constants_bytes: int
    end_bytes: int
    image: bytearray
    relocations: list[tuple[int, int]]


def place_globals(variables: Iterable[Variable], functions: dict[str, int]) -> GlobalImage:
    """Lays out .const and .global variables and their initial values. `functions` maps a function to its token."""
    stack = Stack()
    chosen: dict[str, Variable] = {}
    for variable in variables:
        known = chosen.get(variable.name)
        if known is None or known.linkage == "extern":
            chosen[variable.name] = variable
    for variable in chosen.values():
        if variable.linkage == "extern":
            raise InvalidPtxError(f"line {variable.line}: external variable '{variable.name}' is defined nowhere")
    for variable in chosen.values():
        if variable.space == "const":
            stack.place(variable, _full_size(variable))
    constants = stack.end_bytes = align(stack.end_bytes, 256)
    for variable in sorted(chosen.values(), key=lambda variable: variable.initialiser is None):
        if variable.space == "global":
            stack.place(variable, _full_size(variable))
    image = GlobalImage(stack.places, constants, align(stack.end_bytes, 16), bytearray(), [])
    for variable in chosen.values():
        if variable.initialiser is not None:
            _Initialiser(image, variable, functions).write()
    return image


def _full_size(variable: Variable) -> int:
    """An array with an open bound has as many elements as its initialiser."""
    if 0 in variable.dimensions and isinstance(variable.initialiser, tuple):
        known = 1
        for count in variable.dimensions[1:]:
            known *= count
        return element_bytes(variable) * max(known, 1) * len(variable.initialiser)
    return size_bytes(variable)


class _Initialiser:
    def __init__(self, image: GlobalImage, variable: Variable, functions: dict[str, int]) -> None:
        self._image = image
        self._variable = variable
        self._functions = functions
        self._element_bytes = TYPES[variable.type].size_bytes
        self._place = image.places[variable.name]

    def write(self) -> None:
        value = self._variable.initialiser
        if value is not None:
            self._value(value, self._place.offset_bytes, list(self._variable.dimensions))

    def _value(self, value: Initialiser, at: int, dimensions: list[int]) -> int:
        if isinstance(value, tuple):
            inner = dimensions[1:]
            stride = self._element_bytes
            for count in inner:
                stride *= count
            for item in self._joined(value):
                if isinstance(item, tuple) and inner:
                    self._value(item, at, inner)
                    at += stride
                else:
                    at = self._value(item, at, inner)
            return at
        data = self._bytes(value, at)
        end = self._place.offset_bytes + self._place.size_bytes
        if at + len(data) > end:
            raise InvalidPtxError(f"line {self._variable.line}: too many initial values for '{self._variable.name}'")
        image = self._image.image
        image.extend(bytes(max(0, at + len(data) - len(image))))
        image[at : at + len(data)] = data
        return at + len(data)

    def _joined(self, values: tuple[Initialiser, ...]) -> Iterator[Initialiser]:
        """The eight bytes of a variable's address become one value: nvcc writes pointers in packed structures byte by byte."""
        at = 0
        while at < len(values):
            value = values[at]
            if isinstance(value, Offset) and self._is_address(value, values[at : at + 8]):
                value = replace(value, mask=_WHOLE_ADDRESS)
                at += 7
            yield value
            at += 1

    def _is_address(self, first: Offset, values: tuple[Initialiser, ...]) -> bool:
        if self._element_bytes != 1 or first.symbol.text not in self._image.places:
            return False
        return values == tuple(replace(first, mask=0xFF << 8 * index) for index in range(8))

    def _bytes(self, value: Integer | Float | Name | Offset, at: int) -> bytes:
        size = self._element_bytes
        match value:
            case Integer(number):
                return (number % (1 << (8 * size))).to_bytes(size, "little")
            case Float(bits, width):
                if 8 * size == 32 and width == 64:
                    return single_of_double(bits)
                return bits.to_bytes(max(size, width // 8), "little")[:size]
            case Name(text):
                return self._address(text, 0, at, None)
            case Offset(symbol, offset, _, mask):
                return self._address(symbol.text, offset, at, mask)

    def _address(self, symbol: str, offset: int, at: int, mask: int | None) -> bytes:
        if symbol in self._functions:
            number = self._functions[symbol] + offset
        elif symbol in self._image.places and (mask == _WHOLE_ADDRESS or (mask is None and self._element_bytes == 8)):
            target = (self._image.places[symbol].offset_bytes + offset) % (1 << 64)
            self._image.relocations.append((at, target))
            return bytes(8)
        else:
            raise InvalidPtxError(f"line {self._variable.line}: '{symbol}' cannot initialise '{self._variable.name}'")
        if mask is not None:
            shift = max(0, (mask & -mask).bit_length() - 1)
            number = (number & mask) >> shift
        return (number % (1 << 8 * self._element_bytes)).to_bytes(self._element_bytes, "little")
