"""
IEEE numbers by exact rational arithmetic: the reference that compiled arithmetic is compared with.

Deliberately slow and plain: a number is a Fraction, and rounding is a search for the two neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Format:
    """`precision` counts the hidden bit."""

    bits: int
    precision: int

    @property
    def exponent_bits(self) -> int:
        return self.bits - self.precision

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << (self.precision - 1)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_finite(self, bits: int) -> bool:
        return bits & ~self.sign < self.infinity

    def value(self, bits: int) -> Fraction:
        """Of a finite number."""
        magnitude = bits & ~self.sign
        exponent, mantissa = magnitude >> (self.precision - 1), magnitude & ((1 << (self.precision - 1)) - 1)
        if exponent:
            mantissa |= 1 << (self.precision - 1)
        number = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - self.bias - self.precision + 1)
        return -number if bits & self.sign else number

    def rounded(self, number: Fraction, mode: str, *, zero_is_negative: bool = False) -> int:
        """The bits of `number`: rn (to even), rz, rm or rp."""
        if number == 0:
            return self.sign if zero_is_negative else 0
        is_negative = number < 0
        below = self._below(abs(number))
        upwards = {"rz": False, "rm": is_negative, "rp": not is_negative}.get(mode)
        exact = below < self.infinity and self.value(below) == abs(number)
        if not exact:
            if upwards is None:
                upwards = self._is_nearer_above(below, abs(number))
            below += upwards
        return below | (self.sign if is_negative else 0)

    def _below(self, number: Fraction) -> int:
        """The greatest finite number that is not above."""
        low, high = 0, self.infinity - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.value(middle) <= number:
                low = middle
            else:
                high = middle - 1
        return low

    def _is_nearer_above(self, below: int, number: Fraction) -> bool:
        lower = self.value(below)
        step = (
            self.value(below) - self.value(below - 1) if below + 1 == self.infinity else self.value(below + 1) - lower
        )
        middle = lower + step / 2
        return number > middle or (number == middle and below & 1 == 1)


@dataclass(frozen=True, slots=True)
class FlushingFormat(Format):
    """Numbers that would be subnormal, rounded as if there were no least exponent, are zeros: .ftz on an H200."""

    def rounded(self, number: Fraction, mode: str, *, zero_is_negative: bool = False) -> int:
        twice = Format.rounded(self, 2 * number, mode)
        if number == 0 or abs(self.value(twice)) >= 2 * self.value(1 << (self.precision - 1)):
            return Format.rounded(self, number, mode, zero_is_negative=zero_is_negative)
        return self.sign if number < 0 else 0


F16 = Format(16, 11)
BF16 = Format(16, 8)
F32 = Format(32, 24)
F64 = Format(64, 53)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
