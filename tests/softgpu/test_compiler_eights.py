"""cvt of floats of 8 bits: every one of them, and what lies between two of them, against exact arithmetic."""

from __future__ import annotations

import itertools
import math
import struct

import pytest

from softgpu.compiler.base.errors import UnsupportedInstruction
from softgpu.compiler.command import llvm_text
from tests.softgpu.compiler_harness import HEADER, ElementWise, Shape

FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}
"""Bits of the fraction, and the exponent's bias."""
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
NAN = 0x7F


def _value(kind: str, bits: int) -> float:
    fraction_bits, bias = FORMATS[kind]
    exponent, fraction = (bits & 0x7F) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    if kind == "e4m3" and bits & 0x7F == NAN:
        return math.nan
    if kind == "e5m2" and exponent == 31:
        return math.nan if fraction else math.copysign(math.inf, -1 if bits & 0x80 else 1)
    fraction += (exponent > 0) << fraction_bits
    return math.copysign(math.ldexp(fraction, max(exponent, 1) - bias - fraction_bits), -1 if bits & 0x80 else 1)


NUMBERS = {kind: [(_value(kind, bits), bits) for bits in range(0x80)] for kind in FORMATS}
FINITE = {kind: [each for each in numbers if math.isfinite(each[0])] for kind, numbers in NUMBERS.items()}


def _rounded(kind: str, number: float, *, relu: bool) -> int:
    """To the nearest one, of two that are as near to the even one, and to the largest from there on."""
    if math.isnan(number):
        return NAN
    if relu and math.copysign(1, number) < 0:
        return 0
    size = min(abs(number), LARGEST[kind])
    _, _, bits = min((abs(value - size), bits & 1, bits) for value, bits in FINITE[kind])
    return bits | (0x80 if math.copysign(1, number) < 0 else 0)


def _bits(form: str, number: float) -> int:
    return int.from_bytes(struct.pack(form, number), "little")


def _number(form: str, bits: int) -> float:
    size_bytes = struct.calcsize(form)
    value: float = struct.unpack(form, (bits % (1 << (8 * size_bytes))).to_bytes(size_bytes, "little"))[0]
    return value


def _samples(kind: str, form: str) -> list[int]:
    """Each number, the middle between it and the next, and what is next to both in the wider format; of both signs."""
    values = [value for value, _ in FINITE[kind]]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    beyond = [LARGEST[kind] * 1.03125, LARGEST[kind] * 1.1]
    places = [_bits(form, value) + step for value in (*values, *middles, *beyond) for step in (-1, 0, 1)]
    sign = 1 << (8 * struct.calcsize(form) - 1)
    special = [_bits(form, math.inf), _bits(form, math.nan), _bits(form, math.nan) + 1]
    return [place | flag for place in (*places, *special) if place >= 0 for flag in (0, sign)]


TO = [(kind, source, relu) for kind, source, relu in itertools.product(FORMATS, ("f32", "f16x2"), (False, True))]
FROM = list(itertools.product(FORMATS, (False, True)))


def _shape_to(kind: str, source: str, relu: bool) -> Shape:
    limit = ".relu" if relu else ""
    operands, sources = ("%a, %b", ("f32", "f32")) if source == "f32" else ("%a", ("b32",))
    return Shape(f"cvt.rn.satfinite{limit}.{kind}x2.{source} %d, {operands}", "b16", sources)


def _shape_from(kind: str, relu: bool) -> Shape:
    return Shape(f"cvt.rn{'.relu' if relu else ''}.f16x2.{kind}x2 %d, %a", "b32", ("b16",))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> ElementWise:
    shapes = [_shape_to(*each) for each in TO] + [_shape_from(*each) for each in FROM]
    return ElementWise(shapes, tmp_path_factory.mktemp("eights"))


@pytest.mark.parametrize(("kind", "source", "relu"), TO)
def test_to_eight_bits(machine: ElementWise, kind: str, source: str, relu: bool) -> None:
    form = "<f" if source == "f32" else "<e"
    samples = _samples(kind, form)
    pairs = list(zip(samples, [*samples[7:], *samples[:7]], strict=True))
    rows = pairs if source == "f32" else [(upper << 16 | lower,) for upper, lower in pairs]
    for (upper, lower), found in zip(pairs, machine.apply(_shape_to(kind, source, relu), rows), strict=True):
        expected = [_rounded(kind, _number(form, bits), relu=relu) for bits in (upper, lower)]
        assert found == expected[0] << 8 | expected[1], (hex(upper), hex(lower))


@pytest.mark.parametrize(("kind", "relu"), FROM)
def test_from_eight_bits(machine: ElementWise, kind: str, relu: bool) -> None:
    rows = [(upper << 8 | (upper * 37 + 11) % 256,) for upper in range(256)]
    for (pair,), found in zip(rows, machine.apply(_shape_from(kind, relu), rows), strict=True):
        for shift, wide in ((8, found >> 16), (0, found)):
            expected = _value(kind, pair >> shift & 0xFF)
            if relu and not math.isnan(expected):
                expected = expected if expected > 0 else 0.0
            number = _number("<e", wide)
            assert (number, math.copysign(1, number)) == (expected, math.copysign(1, expected)) or (
                math.isnan(number) and math.isnan(expected)
            ), hex(pair)


def test_other_pairs_are_refused_by_name() -> None:
    body = ".visible .entry k() {{ .reg .b16 %h; .reg .b32 %r; .reg .f32 %f; {0}; ret; }}"
    for instruction in (
        "cvt.rn.e4m3x2.f32 %h, %f, %f",
        "cvt.rn.satfinite.f16x2.e4m3x2 %r, %h",
        "cvt.rn.bf16x2.e5m2x2 %r, %h",
    ):
        with pytest.raises(UnsupportedInstruction, match=instruction.split()[0]):
            llvm_text(HEADER + body.format(instruction))
