"""The catalogue's integer instructions: sums and carries, products, quotients, bits, comparisons, packed bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.softgpu.arithmetic.forms import Form, form

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
NARROW = ("u16", "s16", "u32", "s32")
BITS = ("b16", "b32", "b64")


def sums() -> Iterator[Form]:
    """add, sub, sad, min, max, abs, neg, saturation, and carries from one instruction to the next."""
    for kind in INTEGERS:
        for opcode in ("add", "sub", "min", "max"):
            yield form(f"{opcode}.{kind}", kind, f"{kind} {kind}")
        yield form(f"sad.{kind}", kind, f"{kind} {kind} {kind}")
        if kind[0] == "s":
            yield form(f"abs.{kind}", kind, kind)
            yield form(f"neg.{kind}", kind, kind)
    for opcode in ("add", "sub"):
        yield form(f"{opcode}.sat.s32", "s32", "s32 s32")
    for opcode in ("min", "max"):
        yield form(f"{opcode}.relu.s32", "s32", "s32 s32", target=90)
    yield from _carries()


def _carries() -> Iterator[Form]:
    for kind in ("u32", "s32", "u64", "s64"):
        for opcode in ("add", "sub"):
            chain = f"{opcode}.cc.{kind} %d0, %a, %b; {opcode}c.cc.{kind} %d1, %c, %e; {opcode}c.{kind} %d2, %f, 0;"
            yield form(chain, f"{kind} {kind} {kind}", " ".join([kind] * 5))
        for first, second in (("add", "sub"), ("sub", "add")):  # what the one leaves and the other takes
            yield form(
                f"{first}.cc.{kind} %d0, %a, %b; {second}c.{kind} %d1, %c, 0;",
                f"{kind} {kind}",
                f"{kind} {kind} {kind}",
            )
        for low, high in (("lo", "hi"), ("hi", "lo")):
            chain = f"mad.{low}.cc.{kind} %d0, %a, %b, %c; madc.{high}.cc.{kind} %d1, %a, %b, %e; "
            chain += f"madc.lo.{kind} %d2, %e, %f, 0;"
            yield form(chain, f"{kind} {kind} {kind}", " ".join([kind] * 5))


def products() -> Iterator[Form]:
    """mul, mad, mul24, mad24 and the dot products."""
    for kind in INTEGERS:
        for part in ("lo", "hi"):
            yield form(f"mul.{part}.{kind}", kind, f"{kind} {kind}")
            yield form(f"mad.{part}.{kind}", kind, f"{kind} {kind} {kind}")
    for kind in NARROW:
        wide = f"{kind[0]}{2 * int(kind[1:])}"
        yield form(f"mul.wide.{kind}", wide, f"{kind} {kind}")
        yield form(f"mad.wide.{kind}", wide, f"{kind} {kind} {wide}")
    yield form("mad.hi.sat.s32", "s32", "s32 s32 s32")
    for kind, part in product(("u32", "s32"), ("lo", "hi")):
        yield form(f"mul24.{part}.{kind}", kind, f"{kind} {kind}")
        yield form(f"mad24.{part}.{kind}", kind, f"{kind} {kind} {kind}")
    yield form("mad24.hi.sat.s32", "s32", "s32 s32 s32")
    for left, right in product(("u32", "s32"), repeat=2):
        total = "u32" if left == right == "u32" else "s32"
        yield form(f"dp4a.{left}.{right}", total, f"{left} {right} {total}")
        for part in ("lo", "hi"):
            yield form(f"dp2a.{part}.{left}.{right}", total, f"{left} {right} {total}")


def quotients() -> Iterator[Form]:
    """div and rem, by zero too: the manual leaves that open, programs see what the GPU does."""
    for kind in INTEGERS:
        for opcode in ("div", "rem"):
            yield form(f"{opcode}.{kind}", kind, f"{kind} {kind}")


def bits() -> Iterator[Form]:
    """Logic, shifts, bit fields, counts and permutations."""
    for kind in ("pred", *BITS):
        for opcode in ("and", "or", "xor"):
            yield form(f"{opcode}.{kind}", kind, f"{kind} {kind}")
        yield form(f"not.{kind}", kind, kind)
    for kind in BITS:
        yield form(f"cnot.{kind}", kind, kind)
        yield form(f"shl.{kind}", kind, f"{kind} u32:shift")
        yield form(f"shr.{kind}", kind, f"{kind} u32:shift")
    for kind in INTEGERS:
        yield form(f"shr.{kind}", kind, f"{kind} u32:shift")
    for amount in (0, 5, 31, 32, 40):
        yield form(f"shl.b32 %d, %a, {amount};", "b32", "b32")
        yield form(f"shr.s32 %d, %a, {amount};", "s32", "s32")
        yield form(f"shr.u32 %d, %a, {amount};", "u32", "u32")
    for side, mode in product("lr", ("clamp", "wrap")):
        yield form(f"shf.{side}.{mode}.b32", "b32", "b32 b32 u32:shift")
    yield from _fields()
    yield from _permutations()


def _fields() -> Iterator[Form]:
    for kind in ("u32", "s32", "u64", "s64"):
        yield form(f"bfe.{kind}", kind, f"{kind} u32:shift u32:shift")
        for opcode in ("bfind", "bfind.shiftamt"):
            yield form(f"{opcode}.{kind}", "u32", kind)
    for kind in ("b32", "b64"):
        yield form(f"bfi.{kind}", kind, f"{kind} {kind} u32:shift u32:shift")
        yield form(f"brev.{kind}", kind, kind)
        for opcode in ("popc", "clz"):
            yield form(f"{opcode}.{kind}", "u32", kind)
    for mode in ("clamp", "wrap"):
        yield form(f"bmsk.{mode}.b32", "b32", "u32:shift u32:shift")
        for kind in ("u32", "s32"):
            yield form(f"szext.{mode}.{kind}", kind, f"{kind} u32:shift")
    yield form("fns.b32", "b32", "b32 u32:lane s32:offset")


def _permutations() -> Iterator[Form]:
    for table in (0x00, 0x01, 0x1B, 0x3C, 0x78, 0x80, 0x96, 0xB8, 0xCA, 0xE8, 0xEA, 0xF0, 0xFE, 0xFF):
        yield form(f"lop3.b32 %d, %a, %b, %c, {table:#04x};", "b32", "b32 b32 b32")
    yield form("prmt.b32", "b32", "b32 b32 b32")
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield form(f"prmt.b32.{mode}", "b32", "b32 b32 b32")


def comparisons() -> Iterator[Form]:
    """setp and set with every comparison, and what selects by them."""
    for kind in (*INTEGERS, *BITS):
        for operation in _operations(kind):
            yield form(f"setp.{operation}.{kind}", "pred", f"{kind} {kind}")
        for target in ("u32", "s32", "f32"):
            operation = "ne" if kind[0] == "b" else "lt"
            yield form(f"set.{operation}.{target}.{kind}", target, f"{kind} {kind}")
        for boolean in ("and", "or", "xor"):
            text = f"setp.{'eq' if kind[0] == 'b' else 'le'}.{boolean}.{kind} %d0|%d1, %a, %b,"
            yield form(f"{text} %c;", "pred pred", f"{kind} {kind} pred")
            yield form(f"{text} !%c;", "pred pred", f"{kind} {kind} pred")
            yield form(f"set.ne.{boolean}.u32.{kind} %d, %a, %b, %c;", "u32", f"{kind} {kind} pred")
    for kind in (*BITS, *INTEGERS, "f32", "f64"):
        yield form(f"selp.{kind}", kind, f"{kind} {kind} pred", nan="exact")
        yield form(f"slct.{kind}.s32", kind, f"{kind} {kind} s32", nan="exact")
        yield form(f"slct.{kind}.f32", kind, f"{kind} {kind} f32", nan="exact")
        yield form(f"slct.ftz.{kind}.f32", kind, f"{kind} {kind} f32", nan="exact")


def _operations(kind: str) -> tuple[str, ...]:
    if kind[0] == "b":
        return ("eq", "ne")
    signed = ("eq", "ne", "lt", "le", "gt", "ge")
    return signed if kind[0] == "s" else (*signed, "lo", "ls", "hi", "hs")


def packed() -> Iterator[Form]:
    """The packed absolute differences."""
    for parts, left, right in product("24", ("u32", "s32"), ("u32", "s32")):
        for total in ("u32", "s32"):
            name = f"vabsdiff{parts}.{total}.{left}.{right}"
            yield form(name, total, f"{left} {right} {total}")
            yield form(f"{name}.add", total, f"{left} {right} {total}")
