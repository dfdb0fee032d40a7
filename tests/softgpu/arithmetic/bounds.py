"""
How far from the exact value the PTX manual (9.7.3 to 9.7.5) lets each approximation be.

The exact value is computed in a wider type, which is exact enough beside bounds of at least one unit in the last place. Where the manual gives
no bound (sin of a large angle) an answer is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.softgpu.arithmetic.forms import Form
from tests.softgpu.arithmetic.numbers import FORMATS, elements, values
from tests.softgpu.arithmetic.operands import Bits, base_type

Numbers = npt.NDArray[np.longdouble]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bound:
    """The sum of what is given: an error relative to the exact value, an absolute one, units in the last place."""

    function: Callable[..., Numbers]
    relative: float = 0.0
    absolute: float = 0.0
    ulps: float = 0.0
    is_judged: Callable[..., Mask] = lambda *numbers: np.ones(numbers[0].shape, dtype=np.bool_)


def _quotient(a: Numbers, b: Numbers) -> Numbers:
    return a / b


def _approximate_quotient(a: Numbers, b: Numbers) -> Numbers:
    """div.approx multiplies with a reciprocal, and that of a divisor beyond 2^126 is 0."""
    return np.where(np.isinf(a) & (np.abs(b) > 2.0**126) & np.isfinite(b), np.nan, a / b)


def _reciprocal(a: Numbers) -> Numbers:
    return np.longdouble(1) / a


def _reciprocal_root(a: Numbers) -> Numbers:
    return np.longdouble(1) / np.sqrt(a)


def _is_moderate(_: Numbers, b: Numbers) -> Mask:
    return (np.abs(b) >= 2.0**-126) & (np.abs(b) <= 2.0**126)


def _is_one_turn(a: Numbers) -> Mask:
    return np.asarray(np.abs(a) <= 2 * np.pi)


_SINGLE: dict[str, tuple[Bound, ...]] = {
    "div.approx": (Bound(_approximate_quotient, ulps=2, is_judged=_is_moderate),),
    "div.full": (Bound(_quotient, ulps=2),),
    "rcp.approx": (Bound(_reciprocal, ulps=1),),
    "sqrt.approx": (Bound(np.sqrt, relative=2**-23),),
    "rsqrt.approx": (Bound(_reciprocal_root, relative=2**-22.9),),
    "sin.approx": (Bound(np.sin, absolute=2**-20.5, is_judged=_is_one_turn),),
    "cos.approx": (Bound(np.cos, absolute=2**-20.5, is_judged=_is_one_turn),),
    "lg2.approx": (
        Bound(np.log2, absolute=2**-22, is_judged=lambda a: (a > 0.5) & (a < 2)),
        Bound(np.log2, relative=2**-22, is_judged=lambda a: ~((a > 0.5) & (a < 2))),
    ),
    "ex2.approx": (Bound(np.exp2, relative=2**-22),),
    "tanh.approx": (Bound(np.tanh, relative=2**-11),),
}
_UPPER_WORD = np.uint64(0xFFFFFFFF00000000)
"""What counts of operand and result of .approx.ftz.f64; 20 of its bits are mantissa."""
_OTHERS: dict[str, tuple[Bound, ...]] = {
    "rcp.approx.ftz.f64": (Bound(_reciprocal, relative=2**-19),),
    "rsqrt.approx.ftz.f64": (Bound(_reciprocal_root, relative=2**-19),),
    "rsqrt.approx.f64": (Bound(_reciprocal_root, ulps=2),),
    "ex2.approx.f16": (Bound(np.exp2, relative=2**-9.9),),
    "ex2.approx.ftz.bf16": (Bound(np.exp2, relative=2**-7),),
    "tanh.approx.f16": (Bound(np.tanh, absolute=2**-10.987),),
    # The manual rounds such exponents to three places, and says 2^-8; an H200 needs 2^-7.9999.
    "tanh.approx.bf16": (Bound(np.tanh, absolute=2**-7.9995),),
}


def bounds_of(form: Form) -> tuple[Bound, ...]:
    """Empty for a form whose result is defined bit for bit."""
    opcode = form.opcode.removesuffix("x2")
    if opcode.endswith(".f32"):
        return _SINGLE.get(opcode.removesuffix(".f32").removesuffix(".ftz"), ())
    return _OTHERS.get(opcode, ())


def is_within(form: Form, columns: list[Bits], got: Bits) -> Mask:
    """For each tuple, whether an answer lies within the bound, or is not judged."""
    kind = base_type(form.results[0])
    results = elements(kind, got)
    verdict = np.ones(got.shape, dtype=np.bool_)
    for index, result in enumerate(results):
        parts = [
            elements(base_type(source), column)[index] for source, column in zip(form.sources, columns, strict=True)
        ]
        verdict &= _is_element_within(form, kind.removesuffix("x2"), parts, result)
    return verdict


def _is_element_within(form: Form, kind: str, parts: list[Bits], result: Bits) -> Mask:
    has_ftz = ".ftz." in form.opcode
    if form.opcode.endswith(".approx.ftz.f64"):
        parts = [part & _UPPER_WORD for part in parts]
    numbers = [values(kind, part, has_ftz=has_ftz) for part in parts]
    got = values(kind, result, has_ftz=False)
    within = np.zeros(result.shape, dtype=np.bool_)
    is_judged = np.zeros(result.shape, dtype=np.bool_)
    with np.errstate(all="ignore"):
        for bound in bounds_of(form):
            exact = bound.function(*numbers)
            here = bound.is_judged(*numbers) | ~np.isfinite(exact)
            is_judged |= here
            within |= here & _is_near(kind, bound, exact, got, has_ftz=has_ftz)
    return within | ~is_judged


def _is_near(kind: str, bound: Bound, exact: Numbers, got: Numbers, *, has_ftz: bool) -> Mask:
    shape = FORMATS[kind]
    exponent = np.floor(np.log2(np.abs(exact)))
    unit = np.where(np.isfinite(exponent), np.exp2(exponent - shape.mantissa), 0)
    error = bound.relative * np.abs(exact) + bound.absolute + bound.ulps * unit
    error = error + np.where(np.abs(exact) < shape.least_normal, shape.least, 0)
    flushed = has_ftz & (np.abs(exact) <= shape.least_normal + error) & (got == 0)
    overflown = np.isinf(got) & (np.abs(exact) + error >= shape.greatest) & (np.sign(got) == np.sign(exact))
    same = (np.isnan(exact) & np.isnan(got)) | (exact == got)
    return np.asarray(same | flushed | overflown | (np.isfinite(exact) & (np.abs(got - exact) <= error)))
