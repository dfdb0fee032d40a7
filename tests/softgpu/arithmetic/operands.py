"""
Operands of the recorded instructions: edge values and random ones, the same everywhere and for ever.

Nothing but operand kinds and a seed goes in, and SplitMix64 in 64-bit integers makes the bits, so that no release of numpy or of Python
changes them. Instructions with the same kinds of operands share their tuples; a checksum beside the kept answers says whether both sides still
mean the same.

A kind is a PTX type, or a type and what its values are for: `u32:shift` holds shift amounts and `f32:angle` arguments of sin.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]

SEED = 0x46616972475631
NR_TUPLES = 1024
_GOLDEN = 0x9E3779B97F4A7C15
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_SHAPES = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}
"""Total bits and bits of the mantissa."""


class Generator:
    """SplitMix64. Every call continues the sequence."""

    def __init__(self, name: str, seed: int = SEED) -> None:
        self._state = (seed ^ (zlib.crc32(name.encode()) * _GOLDEN)) % (1 << 64)

    def words(self, count: int) -> Bits:
        """`count` random 64-bit numbers."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        values = steps + np.uint64(self._state)
        self._state = (self._state + count * _GOLDEN) % (1 << 64)
        for shift, factor in _MIXERS:
            values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
        return values ^ (values >> np.uint64(31))

    def below(self, bound: int, count: int) -> Bits:
        """`count` numbers in [0, bound), for bounds far below 2^64."""
        return self.words(count) % np.uint64(bound)

    def picked(self, values: Iterable[int], count: int) -> Bits:
        """`count` of the values."""
        table = np.array(list(values), dtype=np.uint64)
        return np.asarray(table[self.below(len(table), count)])


def base_type(kind: str) -> str:
    """The PTX type of a kind."""
    return kind.partition(":")[0]


def bits_of(kind: str) -> int:
    """The width in memory of a kind's values; a predicate is a 32-bit 0 or 1."""
    name = base_type(kind)
    if name == "pred" or name.endswith("x2"):
        return 32
    return int(name.lstrip("bfsu"))


def _masked(values: Bits, bits: int) -> Bits:
    return values & np.uint64((1 << bits) - 1)


def _integer_edges(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    small = [0, 1, 2, 3, 7, 10, bits - 1, bits]
    edges = [*small, top - 2, top - 1, top, top + 1, (1 << bits) - 1, (1 << bits) - 2, (1 << bits) - 7]
    return [*edges, int("55" * 8, 16) % (1 << bits), 1 << (bits // 2), (1 << (bits // 2)) - 1, top >> 1]


def _random_integers(generator: Generator, bits: int, count: int) -> Bits:
    """Of every magnitude, half of them negative."""
    values = generator.words(count) >> (generator.below(bits, count) + np.uint64(64 - bits))
    negated = np.uint64(0) - values
    return _masked(np.where(generator.below(2, count) == 0, values, negated), bits)


def _float_edges(name: str) -> list[int]:
    bits, mantissa = _SHAPES[name]
    sign, hidden = 1 << (bits - 1), 1 << mantissa
    bias = (1 << (bits - mantissa - 2)) - 1
    infinity, one = (2 * bias + 1) << mantissa, bias << mantissa
    positive = [
        0,
        1,
        2,
        hidden // 2,
        hidden - 1,
        hidden,
        hidden + 1,
        one - 1,
        one,
        one + 1,
        one + hidden // 2,
        one + hidden,
    ]
    positive += [one - hidden, one + (mantissa << mantissa), infinity - hidden, infinity - 1, infinity]
    positive += [infinity + 1, infinity + hidden // 2, infinity + hidden // 2 + 5, infinity + hidden - 1]
    return positive + [value | sign for value in positive]


def _random_floats(generator: Generator, name: str, count: int) -> Bits:
    """A third of all bit patterns, a third near 1 in magnitude, where sums cancel, a third of few mantissa bits, where ties are."""
    bits, mantissa = _SHAPES[name]
    bias = (1 << (bits - mantissa - 2)) - 1
    anything = _masked(generator.words(count), bits)
    reach = min(mantissa + 2, bias - 1)
    exponent = generator.below(2 * reach, count) + np.uint64(bias - reach)
    near = (anything & np.uint64((1 << (bits - 1)) | ((1 << mantissa) - 1))) | (exponent << np.uint64(mantissa))
    few = near & (np.uint64((1 << bits) - 1) << generator.below(mantissa, count))
    choice = generator.below(3, count)
    return np.where(choice == 0, anything, np.where(choice == 1, near, few))


def _float_bits(name: str, number: float) -> int:
    if name == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", number))[0])
    single = int(struct.unpack("<I", struct.pack("<f", number))[0])
    if name == "f16":
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    return single >> 16 if name == "bf16" else single


_LIMITS = (8, 15, 16, 31, 32, 63, 64)


def _whole_edges(name: str) -> list[int]:
    """Numbers about the limits of the integer types, and halves."""
    numbers = [0.25, 0.5, 0.75, 1.5, 2.5, 3.5, 126.5, 127.5, 128.5, 254.5, 255.5, 256.5, 1000.5]
    numbers += [2.0**power + step for power in _LIMITS for step in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    if name == "f16":
        numbers = [number for number in numbers if number < 65504]
    return [_float_bits(name, sign * number) for number in numbers for sign in (1, -1)] + _float_edges(name)


def _whole_floats(generator: Generator, name: str, count: int) -> Bits:
    """Magnitudes from 2^-3 to beyond 2^64, or to the type's end."""
    bits, mantissa = _SHAPES[name]
    bias = (1 << (bits - mantissa - 2)) - 1
    exponent = generator.below(min(70, bias + 3), count) + np.uint64(bias - 3)
    values = generator.words(count) & np.uint64((1 << (bits - 1)) | ((1 << mantissa) - 1))
    return np.asarray(values | (exponent << np.uint64(mantissa)))


_SHIFTS = (0, 1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 256, 257, 1 << 31, (1 << 32) - 1)


def _halves(edges: list[int]) -> list[int]:
    """Pairs of edges, each with its successor and with itself."""
    following = edges[1:] + edges[:1]
    return [low | high << 16 for low, high in zip(edges, following, strict=True)] + [edge * 0x10001 for edge in edges]


def _edges(kind: str) -> list[int]:
    name, _, use = kind.partition(":")
    special: dict[str, Callable[[], list[int]]] = {
        "shift": lambda: list(_SHIFTS),
        "byte": lambda: list(range(0, 256, 17)),
        "lane": lambda: [0, 1, 15, 16, 30, 31],
        "offset": lambda: [0, 1, 2, 3, 31, 32, 33, *((1 << 32) - value for value in (1, 2, 3, 31, 32, 33))],
        "whole": lambda: _whole_edges(name),
    }
    if use in special:
        return special[use]()
    if name == "pred":
        return [0, 1]
    if name.endswith("x2"):
        return _halves(_float_edges(name.removesuffix("x2")))
    return _float_edges(name) if name in _SHAPES else _integer_edges(bits_of(name))


def _random(generator: Generator, kind: str, count: int) -> Bits:
    name, _, use = kind.partition(":")
    if use == "shift":
        return generator.below(80, count)
    if use == "byte":
        return generator.below(256, count)
    if use == "lane":
        return generator.below(32, count)
    if use == "offset":
        return _masked(generator.below(17, count) - np.uint64(8), 32)
    if use == "angle":
        return _angles(generator, name, count)
    if use == "exponent":
        return _near(generator, name, count, 3, 8)
    if use == "whole":
        return _whole_floats(generator, name, count)
    if name == "pred":
        return generator.below(2, count)
    if name.endswith("x2"):
        half = name.removesuffix("x2")
        low, high = _random_floats(generator, half, count), _random_floats(generator, half, count)
        return np.asarray(low | high << np.uint64(16))
    if name in _SHAPES:
        return _random_floats(generator, name, count)
    return _random_integers(generator, bits_of(name), count)


def _near(generator: Generator, name: str, count: int, below: int, above: int) -> Bits:
    """Magnitudes from 2^-below to 2^above."""
    bits, mantissa = _SHAPES[name]
    bias = (1 << (bits - mantissa - 2)) - 1
    exponent = generator.below(below + above, count) + np.uint64(bias - below)
    values = generator.words(count) & np.uint64((1 << (bits - 1)) | ((1 << mantissa) - 1))
    return np.asarray(values | (exponent << np.uint64(mantissa)))


def _angles(generator: Generator, name: str, count: int) -> Bits:
    return _near(generator, name, count, 12, 3)


def tuples(kinds: tuple[str, ...], count: int = NR_TUPLES) -> list[Bits]:
    """A column of bits for each kind. The first half crosses edges, then edges meet random values, the rest is random."""
    generator = Generator(" ".join(kinds))
    columns = []
    for index, kind in enumerate(kinds):
        edges = _edges(kind)
        if len(kinds) == 1:
            edge_part = np.array(edges[: count // 2], dtype=np.uint64)
            columns.append(np.concatenate([edge_part, _random(generator, kind, count - len(edge_part))]))
            continue
        half, quarter = count // 2, count // 4
        mixed = generator.picked(edges, quarter)
        meets_random = np.arange(quarter) % len(kinds) != index
        mixed = np.where(meets_random, _random(generator, kind, quarter), mixed)
        columns.append(
            np.concatenate([generator.picked(edges, half), mixed, _random(generator, kind, count - half - quarter)])
        )
    return columns


def checksum(columns: list[Bits]) -> int:
    """Of all columns, whatever the byte order of the machine."""
    total = 0
    for column in columns:
        total = zlib.crc32(column.astype("<u8").tobytes(), total)
    return total
