"""Reads all members of a C struct at once, where cffi takes 0.1 us for each, and makes frozen data of them, whose own way takes as long.

Wrong when: a struct has other members than numbers without a sign, texts, and arrays and structs of such. There is a KeyError then.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from backend_host.worker._worker import ffi

T = TypeVar("T")
_CODES = {"uint32_t": "I", "uint64_t": "Q"}


class Unpacking:
    """Of structs of one type. Members of a struct in it are told like its own."""

    def __init__(self, kind: str) -> None:
        """`kind`: of C, as `struct fgw_vgpu_reading`."""
        whole = ffi.typeof(kind)
        members = list(_members(whole, 0))
        self._nr_bytes = ffi.sizeof(whole)
        self._ones = struct.Struct(_format([(at, code) for _, at, nr, code in members if not nr], self._nr_bytes))
        self._many = struct.Struct(_format([(at, f"{nr}{code}") for _, at, nr, code in members if nr], self._nr_bytes))
        self._names = tuple(name for name, _, nr, _ in members if not nr)
        ends = list(itertools.accumulate(nr for _, _, nr, _ in members if nr))
        arrays = [name for name, _, nr, _ in members if nr]
        self._arrays = tuple(zip(arrays, map(slice, [0, *ends], ends), strict=False))

    def ones(self, data: ffi.CData) -> dict[str, Any]:
        """The members of a struct that are no arrays, by their names, of a pointer to it. Texts are bytes with what is behind their ends."""
        return dict(zip(self._names, self._ones.unpack_from(ffi.buffer(data)), strict=True))

    def each(self, data: ffi.CData, nr: int) -> Iterator[tuple[Any, ...]]:
        """The same of the first `nr` of an array of structs, in the order in which members stand there."""
        return self._ones.iter_unpack(ffi.buffer(data, nr * self._nr_bytes))

    def arrays(self, data: ffi.CData) -> dict[str, tuple[int, ...]]:
        """Those that are, but for those of zeros alone."""
        numbers = self._many.unpack_from(ffi.buffer(data))
        if not any(numbers):
            return {}
        found = ((name, numbers[place]) for name, place in self._arrays)
        return {name: each for name, each in found if any(each)}


def made_of(kind: type[T], values: dict[str, Any]) -> T:
    """One of a frozen dataclass without checks of its own, by the values of all of its fields, which it takes over."""
    new = object.__new__(kind)
    object.__setattr__(new, "__dict__", values)
    return new


def _members(kind: ffi.CType, begin: int) -> Iterator[tuple[str, int, int, str]]:
    """Name, offset, length if it is an array, and what `struct` calls what is in it."""
    for name, field in kind.fields:
        at, inner = begin + field.offset, field.type
        if inner.kind == "struct":
            yield from _members(inner, at)
        elif inner.kind == "array" and inner.item.cname == "char":
            yield name, at, 0, f"{inner.length}s"
        elif inner.kind == "array":
            yield name, at, inner.length, _CODES[inner.item.cname]
        else:
            yield name, at, 0, _CODES[inner.cname]


def _format(members: Iterable[tuple[int, str]], nr_bytes: int) -> str:
    """For `struct`: these codes at these offsets, and so many bytes in all."""
    text = "="
    for at, code in members:
        text += f"{at - struct.calcsize(text)}x{code}"
    return f"{text}{nr_bytes - struct.calcsize(text)}x"
