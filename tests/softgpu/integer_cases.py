"""Instructions on integers, each with what Python's integers say: how a case is written, tried and checked."""

from __future__ import annotations

import itertools
import random

from tests.softgpu.compiler_harness import Case, ElementWise, bits_of


def signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def clamp(value: int, kind: str) -> int:
    bits = bits_of(kind)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def clamp_to(kind: str, value: int) -> int:
    half = 1 << int(kind[1:]) - 1
    return max(-half, min(value, half - 1)) if kind[0] == "s" else max(0, min(value, 2 * half - 1))


def samples(kind: str, source: random.Random) -> list[int]:
    bits = bits_of(kind)
    if kind == "pred":
        return [0, 1]
    corners = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    return [value % (1 << bits) for value in corners] + [source.getrandbits(bits) for _ in range(6)]


def rows(item: Case) -> list[tuple[int, ...]]:
    source = random.Random(item.shape.text)
    columns = [samples(kind, source) for kind in item.shape.sources]
    rows = list(itertools.product(*columns))
    return rows if len(rows) <= 600 else source.sample(rows, 600)


def check(machine: ElementWise, item: Case, rows: list[tuple[int, ...]]) -> None:
    """All rows in one block, as vectors, and some in blocks of one thread."""
    kinds = item.shape.sources
    bits = bits_of(item.shape.destination)
    alone = rows[:24]
    results = machine.apply(item.shape, rows) + [machine.apply(item.shape, [row])[0] for row in alone]
    for row, got in zip([*rows, *alone], results, strict=True):
        numbers = [signed(v, bits_of(k)) if k[0] == "s" else v for v, k in zip(row, kinds, strict=True)]
        wanted = item.reference(*numbers)
        assert wanted is not None
        expected = wanted % (1 << bits)
        assert got == expected, f"{item.shape.text} of {numbers}: {got:#x}, expected {expected:#x}"
