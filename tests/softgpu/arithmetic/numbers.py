"""Bits of floating-point types as numbers, pairs as their halves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.softgpu.arithmetic.operands import Bits

Numbers = npt.NDArray[np.longdouble]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Format:
    """`mantissa` leaves the hidden bit out."""

    bits: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def infinity(self) -> int:
        """Its bits."""
        return (2 * self.bias + 1) << self.mantissa

    @property
    def least_normal(self) -> np.longdouble:
        return np.longdouble(2.0 ** (1 - self.bias))

    @property
    def least(self) -> np.longdouble:
        """The smallest subnormal number."""
        return np.longdouble(2.0 ** (1 - self.bias - self.mantissa))

    @property
    def greatest(self) -> np.longdouble:
        """The greatest finite number."""
        return np.longdouble(2.0**self.bias) * np.longdouble(2 - 2.0**-self.mantissa)


FORMATS = {"f16": Format(16, 10), "bf16": Format(16, 7), "f32": Format(32, 23), "f64": Format(64, 52)}


def elements(kind: str, bits: Bits) -> list[Bits]:
    """The halves of a pair, low one first; of anything else, itself."""
    if not kind.endswith("x2"):
        return [bits]
    return [bits & np.uint64(0xFFFF), bits >> np.uint64(16)]


def is_nan(kind: str, bits: Bits) -> Mask:
    """Of a scalar float."""
    shape = FORMATS[kind]
    return np.asarray(bits & np.uint64((1 << (shape.bits - 1)) - 1)) > np.uint64(shape.infinity)


def values(kind: str, bits: Bits, *, has_ftz: bool) -> Numbers:
    """Exact; with `has_ftz` subnormal numbers are zeros."""
    shape = FORMATS[kind]
    magnitude = bits & np.uint64((1 << (shape.bits - 1)) - 1)
    exponent = (magnitude >> np.uint64(shape.mantissa)).astype(np.int64)
    mantissa = (magnitude & np.uint64((1 << shape.mantissa) - 1)).astype(np.longdouble)
    hidden = np.where(exponent > 0, np.longdouble(2.0**shape.mantissa), np.longdouble(0))
    number = np.ldexp(mantissa + hidden, (np.maximum(exponent, 1) - shape.bias - shape.mantissa).astype(np.intc))
    if has_ftz:
        number = np.where(exponent > 0, number, np.longdouble(0))
    number = np.where(magnitude == np.uint64(shape.infinity), np.longdouble(np.inf), number)
    number = np.where(magnitude > np.uint64(shape.infinity), np.longdouble(np.nan), number)
    is_negative = bits >> np.uint64(shape.bits - 1) != 0
    return np.where(is_negative, -number, number)
