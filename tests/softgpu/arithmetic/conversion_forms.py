"""The catalogue's conversions: every pair of types, rounding and saturation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.softgpu.arithmetic.forms import Form, form

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
MODES = ("rn", "rz", "rm", "rp")
WHOLE = ("rni", "rzi", "rmi", "rpi")
FLOATS = ("f16", "f32", "f64")


def between_integers() -> Iterator[Form]:
    for target, source in product(INTEGERS, repeat=2):
        yield form(f"cvt.{target}.{source}", target, source)
        if not _holds(target, source):
            yield form(f"cvt.sat.{target}.{source}", target, source)


def _holds(target: str, source: str) -> bool:
    """Whether every number of the source is one of the target; .sat is refused there."""
    spare_bits = int(target[1:]) - int(source[1:])
    return target == source or (source[0] == "u" and spare_bits > 0) or (target[0] == source[0] and spare_bits > 0)


def to_integers() -> Iterator[Form]:
    """Out of range, they saturate."""
    for mode, target, source in product(WHOLE, INTEGERS, FLOATS):
        yield form(f"cvt.{mode}.{target}.{source}", target, f"{source}:whole")
    for target in INTEGERS:
        yield form(f"cvt.rzi.ftz.{target}.f32", target, "f32:whole")
        yield form(f"cvt.rzi.sat.{target}.f32", target, "f32:whole")
        yield form(f"cvt.rni.sat.{target}.f64", target, "f64:whole")
        yield form(f"cvt.rpi.ftz.{target}.f32", target, "f32:whole")
    for target in INTEGERS[2:]:
        yield form(f"cvt.rzi.{target}.bf16", target, "bf16:whole", target=90)


def from_integers() -> Iterator[Form]:
    for target, source in product(("f32", "f64"), INTEGERS):
        for mode in MODES:
            yield form(f"cvt.{mode}.{target}.{source}", target, source)
        yield form(f"cvt.rn.sat.{target}.{source}", target, source)
    for source in INTEGERS:
        for mode in MODES:
            yield form(f"cvt.{mode}.f16.{source}", "f16", source)
    for source in INTEGERS[2:]:
        yield form(f"cvt.rn.bf16.{source}", "bf16", source, target=90)
        yield form(f"cvt.rz.bf16.{source}", "bf16", source, target=90)


def between_floats() -> Iterator[Form]:
    for kind, mode in product(FLOATS, WHOLE):
        yield form(f"cvt.{mode}.{kind}.{kind}", kind, f"{kind}:whole")
    for mode in WHOLE:
        yield form(f"cvt.{mode}.ftz.f32.f32", "f32", "f32:whole")
        yield form(f"cvt.{mode}.sat.f32.f32", "f32", "f32:whole")
    for kind in FLOATS:
        yield form(f"cvt.sat.{kind}.{kind}", kind, kind)
    yield form("cvt.ftz.f32.f32", "f32", "f32")
    yield form("cvt.ftz.sat.f32.f32", "f32", "f32")
    yield from _widening()
    yield from _narrowing()
    yield from _brain()
    yield from _pairs()


def _widening() -> Iterator[Form]:
    for target, source in (("f32", "f16"), ("f64", "f16"), ("f64", "f32")):
        for limit in ("", ".sat"):
            yield form(f"cvt{limit}.{target}.{source}", target, source)
    yield form("cvt.ftz.f32.f16", "f32", "f16")
    yield form("cvt.ftz.f64.f32", "f64", "f32")


def _narrowing() -> Iterator[Form]:
    for mode in MODES:
        for limit in ("", ".sat"):
            yield form(f"cvt.{mode}{limit}.f32.f64", "f32", "f64")
            yield form(f"cvt.{mode}{limit}.f16.f32", "f16", "f32")
            yield form(f"cvt.{mode}{limit}.f16.f64", "f16", "f64")
        yield form(f"cvt.{mode}.ftz.f32.f64", "f32", "f64")
        yield form(f"cvt.{mode}.ftz.f16.f32", "f16", "f32")
    for mode in ("rn", "rz"):
        yield form(f"cvt.{mode}.relu.f16.f32", "f16", "f32", target=80)
    yield form("cvt.rna.tf32.f32", "b32", "f32", target=80)
    for mode in ("rn", "rz"):
        yield form(f"cvt.{mode}.tf32.f32", "b32", "f32", target=90)


def _brain() -> Iterator[Form]:
    for mode, limit in product(("rn", "rz"), ("", ".relu")):
        yield form(f"cvt.{mode}{limit}.bf16.f32", "bf16", "f32", target=80, nan="exact")
    yield form("cvt.f32.bf16", "f32", "bf16", target=80)
    yield form("cvt.f64.bf16", "f64", "bf16", target=90)
    for source in ("f64", "f16"):
        for mode in MODES:
            yield form(f"cvt.{mode}.bf16.{source}", "bf16", source, target=90)
    yield form("cvt.rn.f16.bf16", "f16", "bf16", target=90)


def _pairs() -> Iterator[Form]:
    for kind, mode, limit in product(("f16x2", "bf16x2"), ("rn", "rz"), ("", ".relu")):
        nan = "exact" if kind == "bf16x2" else ""
        yield form(f"cvt.{mode}{limit}.{kind}.f32", kind, "f32 f32", target=80, nan=nan)
