"""
Floating-point instructions against exact rational arithmetic, every rounding mode, subnormals, zeros and NaNs included; approximations against
the error bounds of the PTX manual.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from tests.softgpu.compiler_harness import Case, ElementWise, Reference, Shape, bits_of, case
from tests.softgpu.reference_numbers import FORMATS, FlushingFormat, Format

Row = tuple[int, ...]
MODES = ("rn", "rz", "rm", "rp")
NAN = -1
"""A reference's answer for any NaN; None means that the row is not judged."""


def _is_zero(form: Format, bits: int) -> bool:
    return bits & ~form.sign == 0


def _sum(form: Format, mode: str, terms: list[tuple[Fraction, bool]]) -> int:
    """Rounded sum of finite terms, each with its sign: an exact zero is negative if all terms are, or rounding down unless none is."""
    total = sum((term for term, _ in terms), Fraction(0))
    negative = [sign for _, sign in terms]
    zero = all(negative) or (mode == "rm" and any(negative))
    if mode == "rm" and any(term for term, _ in terms):
        zero = True
    return form.rounded(total, mode, zero_is_negative=zero)


def _finite(form: Format, *values: int) -> bool:
    return all(form.is_finite(value) for value in values)


def _special(form: Format, values: tuple[int, ...], operation: Callable[..., float]) -> int:
    """Rows with infinities and NaNs: what double arithmetic says, which is exact for them."""
    numbers = [_number(form, value) for value in values]
    try:
        result = operation(*numbers)
    except (ZeroDivisionError, ValueError, OverflowError):
        result = math.nan
    if math.isnan(result):
        return NAN
    if math.isinf(result):
        return form.infinity | (form.sign if result < 0 else 0)
    return form.rounded(Fraction(result), "rn", zero_is_negative=math.copysign(1, result) < 0)


def _number(form: Format, bits: int) -> float:
    sign = -1.0 if bits & form.sign else 1.0
    if form.is_nan(bits):
        return math.nan
    if not form.is_finite(bits):
        return sign * math.inf
    number = form.value(bits)
    return math.copysign(min(abs(float(number)), 1e308), sign) if number else math.copysign(0.0, sign)


def _sign(form: Format, bits: int) -> bool:
    return bool(bits & form.sign)


def _add(form: Format, mode: str) -> Reference:
    def reference(a: int, b: int) -> int:
        if not _finite(form, a, b):
            return _special(form, (a, b), lambda x, y: x + y)
        return _sum(form, mode, [(form.value(v), _sign(form, v)) for v in (a, b)])

    return reference


def _sub(form: Format, mode: str) -> Reference:
    add = _add(form, mode)
    return lambda a, b: add(a, b ^ form.sign)


def _mul(form: Format, mode: str) -> Reference:
    def reference(a: int, b: int) -> int:
        if not _finite(form, a, b):
            return _special(form, (a, b), lambda x, y: x * y)
        negative = _sign(form, a) != _sign(form, b)
        return form.rounded(form.value(a) * form.value(b), mode, zero_is_negative=negative)

    return reference


def _fma(form: Format, mode: str) -> Reference:
    def reference(a: int, b: int, c: int) -> int:
        if not _finite(form, a, b, c):
            if _finite(form, a, b):
                return NAN if form.is_nan(c) else c
            return _special(form, (a, b, c), lambda x, y, z: x * y + z)
        negative = _sign(form, a) != _sign(form, b)
        product = form.value(a) * form.value(b)
        return _sum(form, mode, [(product, negative), (form.value(c), _sign(form, c))])

    return reference


def _div(form: Format, mode: str) -> Reference:
    def reference(a: int, b: int) -> int:
        negative = _sign(form, a) != _sign(form, b)
        if not _finite(form, a, b):
            return _special(form, (a, b), lambda x, y: x / y if y else x * math.copysign(math.inf, y))
        if _is_zero(form, b):
            return NAN if _is_zero(form, a) else form.infinity | (form.sign if negative else 0)
        return form.rounded(form.value(a) / form.value(b), mode, zero_is_negative=negative)

    return reference


def _reciprocal(form: Format, mode: str) -> Reference:
    divide = _div(form, mode)
    return lambda a: divide(form.bias << (form.precision - 1), a)


def _sqrt(form: Format, mode: str) -> Reference:
    def reference(a: int) -> int:
        if form.is_nan(a) or (_sign(form, a) and not _is_zero(form, a)):
            return NAN
        if not form.is_finite(a) or _is_zero(form, a):
            return a
        number = form.value(a)
        shift = 400
        scaled = number.numerator * (1 << 2 * shift) * number.denominator
        root = math.isqrt(scaled)
        sticky = Fraction(0) if root * root == scaled else Fraction(1, 2)
        return form.rounded((root + sticky) / ((1 << shift) * number.denominator), mode)

    return reference


def _extreme(form: Format, is_min: bool, is_nan_first: bool) -> Reference:
    def key(bits: int) -> int:
        return -(bits & ~form.sign) - 1 if _sign(form, bits) else bits

    def reference(a: int, b: int) -> int:
        if form.is_nan(a) or form.is_nan(b):
            if is_nan_first or (form.is_nan(a) and form.is_nan(b)):
                return NAN
            return b if form.is_nan(a) else a
        return (min if is_min else max)(a, b, key=key)

    return reference


def _flush(form: Format, bits: int) -> int:
    return bits & form.sign if bits & ~form.sign < 1 << (form.precision - 1) else bits


def _with_flush(form: Format, operation: Callable[[Format, str], Reference]) -> Reference:
    """An operation to nearest, of operands and with a result that are never subnormal."""
    reference = operation(FlushingFormat(form.bits, form.precision), "rn")

    def flushed(*values: int) -> int | None:
        return reference(*(_flush(form, value) for value in values))

    return flushed


def _with_saturation(form: Format, reference: Reference) -> Reference:
    one = form.bias << (form.precision - 1)

    def saturated(*values: int) -> int | None:
        result = reference(*values)
        if result is None:
            return None
        if result == NAN or _sign(form, result):
            return 0
        return min(result, one)

    return saturated


def _arithmetic() -> Iterator[Case]:
    for kind in ("f32", "f64"):
        form = FORMATS[kind]
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        for mode in MODES:
            yield case(f"add.{mode}.{kind}", kind, two, _add(form, mode))
            yield case(f"sub.{mode}.{kind}", kind, two, _sub(form, mode))
            yield case(f"mul.{mode}.{kind}", kind, two, _mul(form, mode))
            yield case(f"fma.{mode}.{kind}", kind, three, _fma(form, mode))
            yield case(f"div.{mode}.{kind}", kind, two, _div(form, mode))
            yield case(f"sqrt.{mode}.{kind}", kind, kind, _sqrt(form, mode))
            yield case(f"rcp.{mode}.{kind}", kind, kind, _reciprocal(form, mode))
        yield case(f"add.{kind}", kind, two, _add(form, "rn"))
        yield case(f"neg.{kind}", kind, kind, lambda a, f=form: NAN if f.is_nan(a) else a ^ f.sign)
        yield case(f"abs.{kind}", kind, kind, lambda a, f=form: NAN if f.is_nan(a) else a & ~f.sign)
        yield case(f"copysign.{kind}", kind, two, lambda a, b, f=form: NAN if f.is_nan(b) else b & ~f.sign | a & f.sign)
        yield from _comparisons(kind, form)
    f32 = FORMATS["f32"]
    for text, operation in (("add", _add), ("mul", _mul), ("sub", _sub)):
        yield case(f"{text}.ftz.f32", "f32", "f32 f32", _with_flush(f32, operation))
        yield case(f"{text}.sat.f32", "f32", "f32 f32", _with_saturation(f32, operation(f32, "rn")))
    yield case("fma.rn.ftz.f32", "f32", "f32 f32 f32", _with_flush(f32, _fma))
    f16 = FORMATS["f16"]
    yield case("mul.ftz.f16", "f16", "f16 f16", _with_flush(f16, _mul))
    yield case("fma.rn.ftz.f16", "f16", "f16 f16 f16", _with_flush(f16, _fma))
    for kind in ("f32", "f64", "f16", "bf16"):
        form, two = FORMATS[kind], f"{kind} {kind}"
        for name in ("min", "max"):
            yield case(f"{name}.{kind}", kind, two, _extreme(form, name == "min", False))
            if kind != "f64":
                yield case(f"{name}.NaN.{kind}", kind, two, _extreme(form, name == "min", True))
    for kind in ("f16", "bf16"):
        form = FORMATS[kind]
        yield case(f"fma.rn.{kind}", kind, f"{kind} {kind} {kind}", _fma(form, "rn"))
        yield case(f"add.rn.{kind}", kind, f"{kind} {kind}", _add(form, "rn"))
        yield case(f"mul.rn.{kind}", kind, f"{kind} {kind}", _mul(form, "rn"))


def _comparisons(kind: str, form: Format) -> Iterator[Case]:
    tests: dict[str, Callable[[float, float], bool]] = {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "num": lambda a, b: True,
    }
    for name, test in tests.items():
        for unordered in (False, True):
            full = "nan" if name == "num" and unordered else name + ("u" if unordered else "")

            def reference(
                a: int, b: int, t: Callable[[float, float], bool] = test, u: bool = unordered, n: str = name
            ) -> int:
                if form.is_nan(a) or form.is_nan(b):
                    return int(u)
                return int(t(_number(form, a), _number(form, b)) and not (u and n == "num"))

            yield case(f"setp.{full}.{kind}", "pred", f"{kind} {kind}", reference)


def _float_conversions() -> Iterator[Case]:
    for target, source in itertools.permutations(FORMATS, 2):
        if {target, source} == {"f16", "bf16"} or {target, source} == {"bf16", "f64"}:
            continue
        narrow = FORMATS[target].bits < FORMATS[source].bits
        for mode in MODES if narrow else ("",):
            if target in ("f16", "bf16") and mode in ("rm", "rp"):
                continue
            yield case(
                f"cvt{'.' if mode else ''}{mode}.{target}.{source}", target, source, _narrowing(target, source, mode)
            )
    for kind in ("f32", "f64"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield case(f"cvt.{mode}.{kind}.{kind}", kind, kind, _to_whole_float(kind, mode))
    f32 = FORMATS["f32"]
    yield case("cvt.sat.f32.f32", "f32", "f32", _with_saturation(f32, lambda a: NAN if f32.is_nan(a) else a))
    yield case("cvt.ftz.f32.f32", "f32", "f32", lambda a: NAN if f32.is_nan(a) else _flush(f32, a))


def _narrowing(target: str, source: str, mode: str) -> Reference:
    to, start = FORMATS[target], FORMATS[source]

    def reference(a: int) -> int:
        if start.is_nan(a):
            return NAN
        sign = to.sign if _sign(start, a) else 0
        if not start.is_finite(a):
            return to.infinity | sign
        return to.rounded(start.value(a), mode or "rn", zero_is_negative=bool(sign))

    return reference


_WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def _to_whole_float(kind: str, mode: str) -> Reference:
    form = FORMATS[kind]

    def reference(a: int) -> int:
        if not form.is_finite(a):
            return NAN if form.is_nan(a) else a
        whole = Fraction(_WHOLE[mode](form.value(a)))
        return form.rounded(whole, "rn", zero_is_negative=_sign(form, a))

    return reference


def _integer_conversions() -> Iterator[Case]:
    integers = [f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)]
    for integer in integers:
        for kind in FORMATS:
            if kind == "bf16":
                continue
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield case(f"cvt.{mode}.{integer}.{kind}", integer, kind, _to_integer(integer, kind, mode))
            for mode in MODES if kind in ("f32", "f64") else ("rn",):
                yield case(f"cvt.{mode}.{kind}.{integer}", kind, integer, _from_integer(integer, kind, mode))


def _to_integer(integer: str, kind: str, mode: str) -> Reference:
    form, bits = FORMATS[kind], bits_of(integer)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if integer[0] == "s" else (0, (1 << bits) - 1)

    def reference(a: int) -> int:
        if form.is_nan(a):
            return 1 << (bits - 1) if bits == 64 or kind == "f64" else 0
        if not form.is_finite(a):
            return (least if _sign(form, a) else most) % (1 << bits)
        return max(least, min(most, _WHOLE[mode](form.value(a)))) % (1 << bits)

    return reference


def _from_integer(integer: str, kind: str, mode: str) -> Reference:
    form, bits = FORMATS[kind], bits_of(integer)

    def reference(a: int) -> int:
        number = a - (1 << bits) if integer[0] == "s" and a >> (bits - 1) else a
        return form.rounded(Fraction(number), mode)

    return reference


CASES = [*_arithmetic(), *_float_conversions(), *_integer_conversions()]
APPROXIMATIONS: dict[str, tuple[Callable[[float], float], float, float, float, float]] = {
    # name: function, least and greatest argument, absolute and relative error allowed
    "ex2.approx.f32": (lambda x: 2.0**x, -120, 120, 0, 2**-22),
    "ex2.approx.ftz.f32": (lambda x: 2.0**x, -120, 120, 0, 2**-22),
    "lg2.approx.f32": (math.log2, 1e-30, 1e30, 2**-22, 2**-22),
    "sin.approx.f32": (math.sin, -6.28, 6.28, 2**-20.5, 0),
    "cos.approx.f32": (math.cos, -6.28, 6.28, 2**-20.5, 0),
    "rsqrt.approx.f32": (lambda x: 1 / math.sqrt(x), 1e-30, 1e30, 0, 2**-22.9),
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 1e-30, 1e30, 0, 2**-23),
    "sqrt.approx.f32": (math.sqrt, 1e-30, 1e30, 0, 2**-23),
    "tanh.approx.f32": (math.tanh, -20, 20, 0, 2**-11),
}


def _approximation_shape(name: str) -> Shape:
    return Shape(f"{name} %d, %a", "f32", ("f32",))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> ElementWise:
    shapes = [item.shape for item in CASES] + [_approximation_shape(name) for name in APPROXIMATIONS]
    return ElementWise(shapes, tmp_path_factory.mktemp("floats"))


def _float_samples(form: Format, source: random.Random, count: int) -> list[int]:
    one = form.bias << (form.precision - 1)
    last = 1 << (form.precision - 1)
    positive = [
        0,
        1,
        2,
        last - 1,
        last,
        last + 1,
        one - 2,
        one - 1,
        one,
        one + 1,
        one + last // 2,
        form.infinity - 1,
        form.infinity,
    ]
    corners = [value | sign for value in positive for sign in (0, form.sign)] + [form.infinity + 1 + (last >> 1)]
    near = [
        (one + source.randrange(-12 * last, 12 * last)) % form.sign | source.choice((0, form.sign))
        for _ in range(count)
    ]
    return corners + near + [source.getrandbits(form.bits) for _ in range(count)]


def _integer_samples(bits: int, source: random.Random) -> list[int]:
    samples = [0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    samples += [source.getrandbits(source.randint(1, bits)) for _ in range(120)]
    return samples + [((1 << source.randint(1, bits)) + source.randint(-2, 2)) % (1 << bits) for _ in range(60)]


def _rows(item: Case) -> list[Row]:
    source = random.Random(item.shape.text)
    columns = []
    for kind in item.shape.sources:
        if kind in FORMATS:
            columns.append(_float_samples(FORMATS[kind], source, 160 if len(item.shape.sources) == 1 else 20))
        else:
            columns.append(_integer_samples(bits_of(kind), source))
    product = list(itertools.product(*columns)) if len(columns) < 3 else []
    if len(columns) == 3:
        return [tuple(source.choice(column) for column in columns) for _ in range(500)]
    return product if len(product) <= 500 else source.sample(product, 500)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_instruction(machine: ElementWise, item: Case) -> None:
    rows = _rows(item)
    form = FORMATS.get(item.shape.destination)
    alone = rows[:24]
    results = machine.apply(item.shape, rows) + [machine.apply(item.shape, [row])[0] for row in alone]
    for row, got in zip([*rows, *alone], results, strict=True):
        expected = item.reference(*row)
        if expected is None:
            continue
        shown = f"{item.shape.text} of {[hex(value) for value in row]}: {got:#x}"
        if expected == NAN:
            assert form is not None and form.is_nan(got), f"{shown}, expected NaN"
        else:
            assert got == expected, f"{shown}, expected {expected:#x}"


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_approximation(machine: ElementWise, name: str) -> None:
    function, low, high, absolute, relative = APPROXIMATIONS[name]
    source = random.Random(name)
    if low > 0:
        numbers = [math.exp(source.uniform(math.log(low), math.log(high))) for _ in range(500)]
        numbers += [source.uniform(0.9, 1.1) for _ in range(100)]
    else:
        numbers = [source.uniform(low, high) for _ in range(500)] + [source.uniform(-0.1, 0.1) for _ in range(100)]
    bits = [struct.unpack("<I", struct.pack("<f", number))[0] for number in numbers]
    for value, got in zip(bits, machine.apply(_approximation_shape(name), [(b,) for b in bits]), strict=True):
        x = struct.unpack("<f", struct.pack("<I", value))[0]
        result = struct.unpack("<f", struct.pack("<I", got))[0]
        exact = function(x)
        assert abs(result - exact) <= max(absolute, relative * abs(exact)), (
            f"{name}({x!r}) = {result!r}, exactly {exact!r}"
        )


_INFINITY, _MINUS = 0x7F800000, 0x80000000


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("ex2.approx.f32", _INFINITY, _INFINITY),
        ("ex2.approx.f32", _INFINITY | _MINUS, 0),
        ("ex2.approx.f32", 0, 0x3F800000),
        ("ex2.approx.f32", 0xC3150000, 1),
        ("ex2.approx.f32", 0x43000000, _INFINITY),
        ("lg2.approx.f32", 0, _INFINITY | _MINUS),
        ("lg2.approx.f32", _MINUS, _INFINITY | _MINUS),
        ("lg2.approx.f32", _INFINITY, _INFINITY),
        ("lg2.approx.f32", 1, 0xC3150000),
        ("lg2.approx.f32", 0x3F800000, 0),
        ("rsqrt.approx.f32", 0, _INFINITY),
        ("rsqrt.approx.f32", _INFINITY, 0),
        ("rcp.approx.ftz.f32", _MINUS, _INFINITY | _MINUS),
        ("sin.approx.f32", _MINUS, _MINUS),
        ("cos.approx.f32", 0, 0x3F800000),
    ],
)
def test_approximation_at_the_edges(machine: ElementWise, name: str, argument: int, expected: int) -> None:
    assert machine.apply(_approximation_shape(name), [(argument,)]) == [expected]


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        # Below the least normal number by 2^-46, 2^-45 and 2^-20 of it: an H200 rounds first, and then sees nothing to flush.
        ("mul.ftz.f32", (0x00800001, 0x3F7FFFFE), 0x00800000),
        ("fma.rn.ftz.f32", (0x01000001, 0x3F7FFFFE, 0x80800000), 0x00800000),
        ("fma.rn.ftz.f16", (0x0401, 0x3BFE, 0x8000), 0x0400),
        # A unit in the last place below, which rounding to a subnormal number alone would bring up.
        ("mul.ftz.f32", (0x80800000, 0x3F7FFFFF), _MINUS),
        ("fma.rn.ftz.f16", (0x8400, 0x3BFF, 0x8001), 0x8000),
    ],
)
def test_flush_at_the_least_normal_number(
    machine: ElementWise, name: str, operands: tuple[int, ...], expected: int
) -> None:
    (shape,) = (item.shape for item in CASES if str(item) == name)
    assert machine.apply(shape, [operands]) == [expected]
