"""The catalogue's floating-point instructions: f32, f64, the 16-bit types and their pairs, comparisons, approximations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.softgpu.arithmetic.forms import Form, form

MODES = ("rn", "rz", "rm", "rp")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _dotted(*words: str) -> str:
    return "".join(f".{word}" for word in words if word)


def single() -> Iterator[Form]:
    """f32: all rounding modes, with and without .ftz and .sat."""
    for mode, ftz, sat in product(("", *MODES), ("", "ftz"), ("", "sat")):
        words = _dotted(mode, ftz, sat, "f32")
        for opcode in ("add", "sub", "mul"):
            yield form(f"{opcode}{words}", "f32", "f32 f32")
        if mode:
            yield form(f"fma{words}", "f32", "f32 f32 f32")
    for mode, ftz in product(MODES, ("", "ftz")):
        words = _dotted(mode, ftz, "f32")
        yield form(f"mad{words}", "f32", "f32 f32 f32")
        yield form(f"div{words}", "f32", "f32 f32")
        yield form(f"rcp{words}", "f32", "f32")
        yield form(f"sqrt{words}", "f32", "f32")
    for opcode, ftz in product(("min", "max"), ("", "ftz")):
        yield form(f"{opcode}{_dotted(ftz, 'f32')}", "f32", "f32 f32", nan="exact")
        yield form(f"{opcode}{_dotted(ftz, 'NaN', 'f32')}", "f32", "f32 f32", target=80, nan="exact")
    for opcode, ftz in product(("abs", "neg"), ("", "ftz")):
        yield form(f"{opcode}{_dotted(ftz, 'f32')}", "f32", "f32")
    yield form("copysign.f32", "f32", "f32 f32")
    yield from _classes("f32")


def double() -> Iterator[Form]:
    """f64: all rounding modes."""
    for mode in ("", *MODES):
        words = _dotted(mode, "f64")
        for opcode in ("add", "sub", "mul"):
            yield form(f"{opcode}{words}", "f64", "f64 f64")
        if mode:
            yield form(f"fma{words}", "f64", "f64 f64 f64")
            yield form(f"mad{words}", "f64", "f64 f64 f64")
            yield form(f"div{words}", "f64", "f64 f64")
            yield form(f"rcp{words}", "f64", "f64")
            yield form(f"sqrt{words}", "f64", "f64")
    for opcode in ("min", "max"):
        yield form(f"{opcode}.f64", "f64", "f64 f64")
    for opcode in ("abs", "neg"):
        yield form(f"{opcode}.f64", "f64", "f64")
    yield form("copysign.f64", "f64", "f64 f64")
    yield from _classes("f64")


def _classes(kind: str) -> Iterator[Form]:
    for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        yield form(f"testp.{name}.{kind}", "pred", kind)


def half() -> Iterator[Form]:
    """f16 and f16x2."""
    for kind in ("f16", "f16x2"):
        for mode, ftz, sat in product(("", "rn"), ("", "ftz"), ("", "sat")):
            words = _dotted(mode, ftz, sat, kind)
            for opcode in ("add", "sub", "mul"):
                yield form(f"{opcode}{words}", kind, f"{kind} {kind}")
        for ftz, limit in product(("", "ftz"), ("", "sat", "relu")):
            target = 80 if limit == "relu" else 70
            yield form(f"fma{_dotted('rn', ftz, limit, kind)}", kind, f"{kind} {kind} {kind}", target=target)
        for opcode, ftz, nan in product(("min", "max"), ("", "ftz"), ("", "NaN")):
            yield form(f"{opcode}{_dotted(ftz, nan, kind)}", kind, f"{kind} {kind}", target=80, nan="exact")
        for opcode, ftz in product(("abs", "neg"), ("", "ftz")):
            yield form(f"{opcode}{_dotted(ftz, kind)}", kind, kind)


def brain() -> Iterator[Form]:
    """bf16 and bf16x2."""
    for kind in ("bf16", "bf16x2"):
        for mode, opcode in product(("", "rn"), ("add", "sub", "mul")):
            yield form(f"{opcode}{_dotted(mode, kind)}", kind, f"{kind} {kind}", target=90)
        for limit in ("", "relu"):
            yield form(f"fma{_dotted('rn', limit, kind)}", kind, f"{kind} {kind} {kind}", target=80)
        for opcode, nan in product(("min", "max"), ("", "NaN")):
            yield form(f"{opcode}{_dotted(nan, kind)}", kind, f"{kind} {kind}", target=80, nan="exact")
        for opcode in ("abs", "neg"):
            yield form(f"{opcode}.{kind}", kind, kind, target=80)


def comparisons() -> Iterator[Form]:
    """setp and set of floats."""
    for kind, ftz in (("f32", ""), ("f32", "ftz"), ("f64", ""), ("f16", ""), ("f16", "ftz"), ("bf16", "")):
        target = 90 if kind == "bf16" else 70
        words = _dotted(ftz, kind)
        for operation in COMPARISONS:
            yield form(f"setp.{operation}{words}", "pred", f"{kind} {kind}", target=target)
        for boolean in ("and", "or", "xor"):
            is_narrow = kind in ("f16", "bf16")
            results, destination = ("pred", "%d") if is_narrow else ("pred pred", "%d0|%d1")
            text = f"setp.ltu.{boolean}{words} {destination}, %a, %b,"
            yield form(f"{text} %c;", results, f"{kind} {kind} pred", target=target)
            yield form(f"{text} !%c;", results, f"{kind} {kind} pred", target=target)
            if not is_narrow:
                text = f"set.ge.{boolean}{_dotted(ftz, 'u32', kind)} %d, %a, %b, %c;"
                yield form(text, "u32", f"{kind} {kind} pred")
        for result in _set_results(kind):
            yield form(f"set.le{_dotted(ftz, result, kind)}", result, f"{kind} {kind}", target=target)
    yield from _pair_comparisons()


def _set_results(kind: str) -> tuple[str, ...]:
    if kind in ("f16", "bf16"):
        return (kind, "u16", "s16", "u32", "s32")
    return ("u32", "s32", "f32")


def _pair_comparisons() -> Iterator[Form]:
    for kind, ftz in (("f16x2", ""), ("f16x2", "ftz"), ("bf16x2", "")):
        target = 90 if kind == "bf16x2" else 70
        for operation in COMPARISONS:
            text = f"setp.{operation}{_dotted(ftz, kind)} %d0|%d1, %a, %b;"
            yield form(text, "pred pred", f"{kind} {kind}", target=target)
        text = f"setp.lt.and{_dotted(ftz, kind)} %d0|%d1, %a, %b, %c;"
        yield form(text, "pred pred", f"{kind} {kind} pred", target=target)
        for operation in ("eq", "ltu"):
            yield form(f"set.{operation}{_dotted(ftz, kind, kind)}", kind, f"{kind} {kind}", target=target)


def approximations() -> Iterator[Form]:
    """What the manual gives an error bound for; `bounds` has them."""
    for ftz in ("", "ftz"):
        words = _dotted("approx", ftz, "f32")
        yield form(f"div{words}", "f32", "f32 f32")
        yield form(f"div{_dotted('full', ftz, 'f32')}", "f32", "f32 f32")
        for opcode in ("rcp", "sqrt", "rsqrt", "lg2"):
            yield form(f"{opcode}{words}", "f32", "f32")
        yield form(f"ex2{words}", "f32", "f32:exponent")
        for opcode in ("sin", "cos"):
            yield form(f"{opcode}{words}", "f32", "f32:angle")
    yield form("tanh.approx.f32", "f32", "f32", target=80)
    yield form("rcp.approx.ftz.f64", "f64", "f64")
    yield form("rsqrt.approx.ftz.f64", "f64", "f64")
    yield form("rsqrt.approx.f64", "f64", "f64")
    for kind in ("f16", "f16x2"):
        yield form(f"ex2.approx.{kind}", kind, kind, target=80)
        yield form(f"tanh.approx.{kind}", kind, kind, target=80)
    for kind in ("bf16", "bf16x2"):
        yield form(f"ex2.approx.ftz.{kind}", kind, kind, target=90)
        yield form(f"tanh.approx.{kind}", kind, kind, target=90)
