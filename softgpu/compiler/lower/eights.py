"""
cvt between pairs of floats of 8 bits, which lie in 16, and pairs of wider ones.

e4m3 has no infinity and one NaN for each sign, e5m2 is f16 without its lower 8 bits. What is too large becomes the largest number, as
.satfinite says, which PTX always wants.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from cuda_api.record import record
from softgpu.compiler.base.scalars import TYPES
from softgpu.compiler.lower.floating import rectified
from softgpu.compiler.text.builder import Builder, float_constant

_F16X2 = TYPES["f16x2"]
_F32 = TYPES["f32"]
_NAN = 0x7F
_F16_NAN = 0x7FFF
_F32_FRACTION_BITS = 23
_F32_BIAS = 127


@record
class _Eight:
    """One of the formats."""

    fraction_bits: int
    bias: int
    largest: int
    """Its bits as an f32."""


_EIGHTS = {"e4m3x2": _Eight(3, 7, 0x43E00000), "e5m2x2": _Eight(2, 15, 0x47600000)}


def is_of_eights(instruction: Instruction) -> bool:
    """Whether a cvt has floats of 8 bits on either side."""
    return not _EIGHTS.keys().isdisjoint(instruction.modifiers)


def lower_eights(builder: Builder, instruction: Instruction) -> None:
    """To them from two f32, of which the first goes to the upper half, or from f16x2, and from them to f16x2."""
    *words, target, source = instruction.modifiers
    words = [word for word in words if word != "relu"]
    if target in _EIGHTS and source in ("f32", "f16x2") and words == ["rn", "satfinite"]:
        destination, *operands = builder.operands(3 if source == "f32" else 2)
        values = [builder.read(operand, "float") for operand in operands] if source == "f32" else _f16_pair(builder)
        upper, lower = (_narrowed(builder, _EIGHTS[target], value) for value in values)
        both = builder.let(f"or i32 {builder.let(f'shl i32 {upper}, 8')}, {lower}")
        builder.write(destination, builder.let(f"trunc i32 {both} to i16"), "i16")
    elif target == "f16x2" and source in _EIGHTS and words == ["rn"]:
        _widen(builder, source)
    else:
        raise builder.unsupported()


def _f16_pair(builder: Builder) -> list[str]:
    """Upper and lower half of the operand as f32, which is exact."""
    pair = builder.read(builder.instruction.operands[1], _F16X2.llvm)
    halves = [builder.let(f"extractelement {_F16X2.llvm} {pair}, i32 {index}") for index in (1, 0)]
    return [builder.let(f"fpext half {half} to float") for half in halves]


def _narrowed(builder: Builder, eight: _Eight, value: str) -> str:
    """An f32 rounded to nearest even: its 8 bits in an i32."""
    if builder.has("relu"):
        value = rectified(builder, _F32, value)
    bits = builder.let(f"bitcast float {value} to i32")
    sign = builder.let(f"and i32 {builder.let(f'lshr i32 {bits}, 24')}, 128")
    magnitude = builder.call("llvm.fabs.f32", "float", value)
    magnitude = builder.call("llvm.minnum.f32", "float", magnitude, float_constant(eight.largest, "float"))
    least_normal = float_constant((_F32_BIAS + 1 - eight.bias) << _F32_FRACTION_BITS, "float")
    is_subnormal = builder.let(f"fcmp olt float {magnitude}, {least_normal}")
    result = builder.select(
        is_subnormal, "i32", _subnormal(builder, eight, magnitude), _normal(builder, eight, magnitude)
    )
    is_nan = builder.let(f"fcmp uno float {value}, 0.0")
    return builder.select(is_nan, "i32", str(_NAN), builder.let(f"or i32 {result}, {sign}"))


def _normal(builder: Builder, eight: _Eight, magnitude: str) -> str:
    """The upper bits of the f32, rounded, with another bias."""
    cut = _F32_FRACTION_BITS - eight.fraction_bits
    bits = builder.let(f"bitcast float {magnitude} to i32")
    last = builder.let(f"and i32 {builder.let(f'lshr i32 {bits}, {cut}')}, 1")
    half = builder.let(f"add i32 {last}, {(1 << (cut - 1)) - 1}")
    kept = builder.let(f"lshr i32 {builder.let(f'add i32 {bits}, {half}')}, {cut}")
    return builder.let(f"sub i32 {kept}, {(_F32_BIAS - eight.bias) << eight.fraction_bits}")


def _subnormal(builder: Builder, eight: _Eight, magnitude: str) -> str:
    """How many of the least number: what is added to a number whose last bit is as large is rounded to that."""
    last = _F32_FRACTION_BITS - eight.fraction_bits + 1 - eight.bias
    bits = (_F32_BIAS + last) << _F32_FRACTION_BITS
    total = builder.let(f"fadd float {magnitude}, {float_constant(bits, 'float')}")
    return builder.let(f"sub i32 {builder.let(f'bitcast float {total} to i32')}, {bits}")


def _widen(builder: Builder, source: str) -> None:
    """Exact. An e4m3 is an f16 whose exponent is 8 too small."""
    destination, operand = builder.operands(2)
    pair = builder.read(operand, "i16")
    vector = "poison"
    for index in range(2):
        byte = builder.let(f"trunc i16 {builder.let(f'lshr i16 {pair}, {8 * index}')} to i8")
        bits = builder.let(f"shl i16 {builder.let(f'zext i8 {byte} to i16')}, 8")
        half = builder.let(f"bitcast i16 {bits} to half")
        if source == "e4m3x2":
            half = _of_e4m3(builder, bits)
        if builder.has("relu"):
            half = rectified(builder, TYPES["f16"], half)
        vector = builder.let(f"insertelement {_F16X2.llvm} {vector}, half {half}, i32 {index}")
    builder.write(destination, vector, _F16X2.llvm)


def _of_e4m3(builder: Builder, bits: str) -> str:
    """From its 8 bits, above 8 zeros."""
    magnitude = builder.let(f"and i16 {bits}, {_NAN << 8}")
    small = builder.let(f"bitcast i16 {builder.let(f'lshr i16 {magnitude}, 1')} to half")
    number = builder.let(f"fmul half {small}, {float_constant(0x5C00, 'half')}")
    sign = builder.let(f"and i16 {bits}, -32768")
    signed = builder.let(f"or i16 {builder.let(f'bitcast half {number} to i16')}, {sign}")
    is_nan = builder.let(f"icmp eq i16 {magnitude}, {_NAN << 8}")
    return builder.let(f"bitcast i16 {builder.select(is_nan, 'i16', str(_F16_NAN), signed)} to half")
