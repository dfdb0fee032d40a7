"""Integer, logic and bit instructions against Python's integers: corner cases, random ones, and hypothesis on the shifts and fields."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.softgpu.compiler_harness import Case, ElementWise, bits_of, case
from tests.softgpu.integer_cases import check, clamp, clamp_to, rows, signed


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1


def _remainder(a: int, b: int) -> int:
    return a - _quotient(a, b) * b if b else -1


def _cases_of_type(kind: str) -> list[Case]:
    bits, two = bits_of(kind), f"{kind} {kind}"
    wide = f"{kind[0]}{2 * bits}"
    cases = [
        case(f"add.{kind}", kind, two, lambda a, b: a + b),
        case(f"sub.{kind}", kind, two, lambda a, b: a - b),
        case(f"mul.lo.{kind}", kind, two, lambda a, b: a * b),
        case(f"mul.hi.{kind}", kind, two, lambda a, b: a * b >> bits),
        case(f"mad.lo.{kind}", kind, f"{two} {kind}", lambda a, b, c: a * b + c),
        case(f"mad.hi.{kind}", kind, f"{two} {kind}", lambda a, b, c: (a * b >> bits) + c),
        case(f"div.{kind}", kind, two, _quotient),
        case(f"rem.{kind}", kind, two, _remainder),
        case(f"min.{kind}", kind, two, min),
        case(f"max.{kind}", kind, two, max),
        case(f"sad.{kind}", kind, f"{two} {kind}", lambda a, b, c: abs(a - b) + c),
        case(f"shr.{kind}", kind, f"{kind} u32", lambda a, n: a >> min(n, 70)),
        case(f"selp.{kind}", kind, f"{two} pred", lambda a, b, p: a if p else b),
        case(f"slct.{kind}.s32", kind, f"{two} s32", lambda a, b, c: a if c >= 0 else b),
    ]
    if bits < 64:
        cases.append(case(f"mul.wide.{kind}", wide, two, lambda a, b: a * b))
        cases.append(case(f"mad.wide.{kind}", wide, f"{two} {wide}", lambda a, b, c: a * b + c))
    if kind[0] == "s":
        cases.append(case(f"abs.{kind}", kind, kind, abs))
        cases.append(case(f"neg.{kind}", kind, kind, lambda a: -a))
    relations: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
    }
    cases += [case(f"setp.{name}.{kind}", "pred", two, test) for name, test in relations.items()]
    cases.append(case(f"set.lt.u32.{kind}", "u32", two, lambda a, b: -(a < b)))
    return cases


def _cases_of_bits(bits: int) -> list[Case]:
    kind = f"b{bits}"
    two = f"u{bits} u{bits}"
    return [
        case(f"and.{kind}", kind, two, lambda a, b: a & b),
        case(f"or.{kind}", kind, two, lambda a, b: a | b),
        case(f"xor.{kind}", kind, two, lambda a, b: a ^ b),
        case(f"not.{kind}", kind, f"u{bits}", lambda a: ~a),
        case(f"cnot.{kind}", kind, f"u{bits}", lambda a: int(a == 0)),
        case(f"shl.{kind}", kind, f"u{bits} u32", lambda a, n: a << min(n, 70)),
    ]


def _counted(amount: int, bits: int) -> int:
    """What an H200 makes of a position or length: the manual's byte for 32-bit fields, all of it for 64-bit ones."""
    return amount & 255 if bits == 32 else amount


def _field(a: int, position: int, length: int, bits: int, is_signed: bool) -> int:
    position, length = _counted(position, bits), _counted(length, bits)
    sign = 0
    if is_signed and length:
        sign = a >> min(position + length - 1, bits - 1) & 1
    result = 0
    for i in range(bits):
        bit = a >> (position + i) & 1 if i < length and position + i < bits else sign
        result |= bit << i
    return result


def _inserted(source: int, base: int, position: int, length: int, bits: int) -> int:
    position, length = _counted(position, bits), _counted(length, bits)
    for i in range(min(length, bits)):
        if position + i < bits:
            base = base & ~(1 << (position + i)) | (source >> i & 1) << (position + i)
    return base


def _highest(a: int, bits: int, is_signed: bool, shift: bool) -> int:
    value = a % (1 << bits)
    if is_signed and a < 0:
        value = ~a
    if value == 0:
        return -1
    return bits - value.bit_length() if shift else value.bit_length() - 1


def _permuted(a: int, b: int, selector: int) -> int:
    joined = b << 32 | a
    result = 0
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = joined >> (8 * (nibble & 7)) & 255
        if nibble & 8:
            byte = 255 * (byte >> 7)
        result |= byte << (8 * i)
    return result


def _lookup(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))


def _bytes(value: int, is_signed: bool) -> list[int]:
    return [signed(value >> (8 * i), 8) if is_signed else value >> (8 * i) & 255 for i in range(4)]


def _misc() -> list[Case]:
    cases = []
    for bits in (32, 64):
        u = f"u{bits}"
        cases += [
            case(f"popc.b{bits}", "u32", u, lambda a: a.bit_count()),
            case(f"clz.b{bits}", "u32", u, lambda a, bits=bits: bits - a.bit_length()),
            case(f"brev.b{bits}", u, u, lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2)),
            case(f"bfi.b{bits}", u, f"{u} {u} u32 u32", lambda a, b, p, n, bits=bits: _inserted(a, b, p, n, bits)),
        ]
        for sign in "us":
            kind = f"{sign}{bits}"
            is_signed = sign == "s"
            cases += [
                case(
                    f"bfe.{kind}",
                    kind,
                    f"{kind} u32 u32",
                    lambda a, p, n, bits=bits, s=is_signed: _field(a, p, n, bits, s),
                ),
                case(f"bfind.{kind}", "u32", kind, lambda a, bits=bits, s=is_signed: _highest(a, bits, s, False)),
                case(
                    f"bfind.shiftamt.{kind}", "u32", kind, lambda a, bits=bits, s=is_signed: _highest(a, bits, s, True)
                ),
            ]
    three = "u32 u32 u32"
    cases += [
        case("prmt.b32", "u32", three, _permuted),
        case("prmt.b32.f4e", "u32", three, lambda a, b, c: (b << 32 | a) >> (8 * (c & 3))),
        case("shf.l.wrap.b32", "u32", three, lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
        case("shf.r.wrap.b32", "u32", three, lambda a, b, c: (b << 32 | a) >> (c & 31)),
        case("shf.l.clamp.b32", "u32", three, lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32),
        case("shf.r.clamp.b32", "u32", three, lambda a, b, c: (b << 32 | a) >> min(c, 32)),
        case("bmsk.clamp.b32", "u32", "u32 u32", lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32)),
        case("bmsk.wrap.b32", "u32", "u32 u32", lambda a, b: ((1 << (b & 31)) - 1) << (a & 31)),
        case("add.sat.s32", "s32", "s32 s32", lambda a, b: clamp(a + b, "s32")),
        case("sub.sat.s32", "s32", "s32 s32", lambda a, b: clamp(a - b, "s32")),
        case("mad.hi.sat.s32", "s32", "s32 s32 s32", lambda a, b, c: clamp((a * b >> 32) + c, "s32")),
        case("mul24.lo.u32", "u32", "u32 u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
        case("mul24.hi.s32", "s32", "s32 s32", lambda a, b: signed(a, 24) * signed(b, 24) >> 16),
    ]
    for table in (0x00, 0x96, 0xE8, 0xCA, 0x78, 0xFF, 0x1B):
        cases.append(
            case(f"lop3.b32 %d, %a, %b, %c, {table}", "u32", three, lambda a, b, c, t=table: _lookup(a, b, c, t))
        )
    reduced = "{{ .reg .pred %p, %q; .reg .b32 %u; setp.ne.u32 %q, %c, 0; lop3.{}.b32 {}|%p, %a, %b, 7, 0x80, {}%q; selp.u32 %d, {}, 99, %p; }}"
    cases += [
        case(reduced.format("or", "%u", "", "%u"), "u32", three, lambda a, b, c: a & b & 7 if a & b & 7 or c else 99),
        case(reduced.format("and", "_", "!", "1"), "u32", three, lambda a, b, c: 1 if a & b & 7 and not c else 99),
    ]
    for left, right in itertools.product("us", "us"):
        sources = f"{left}32 {right}32 s32"
        cases.append(
            case(
                f"dp4a.{left}32.{right}32",
                "s32",
                sources,
                lambda a, b, c, x=left, y=right: (
                    c + sum(p * q for p, q in zip(_bytes(a, x == "s"), _bytes(b, y == "s"), strict=True))
                ),
            )
        )
    cases.append(
        case(
            "vabsdiff4.u32.u32.u32.add",
            "u32",
            three,
            lambda a, b, c: c + sum(abs(p - q) for p, q in zip(_bytes(a, False), _bytes(b, False), strict=True)),
        )
    )
    carry = "{ .reg .b32 %u, %v; add.cc.u32 %u, %a, %b; addc.u32 %d, %c, 0; }"
    cases.append(case(carry, "u32", three, lambda a, b, c: c + (a + b >> 32)))
    borrow = "{ .reg .b32 %u, %v; sub.cc.u32 %u, %a, %b; subc.u32 %d, %c, 0; }"
    cases.append(case(borrow, "u32", three, lambda a, b, c: c - (a < b)))
    not_borrowed = "{ .reg .b32 %u, %v; sub.cc.u32 %u, %a, %b; addc.u32 %d, %c, 0; }"  # as nvcc divides 128 bits
    cases.append(case(not_borrowed, "u32", three, lambda a, b, c: c + (a >= b)))
    chain = "{ .reg .b32 %u, %v; mad.lo.cc.u32 %u, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0; }"
    cases.append(case(chain, "u32", three, lambda a, b, c: a * b + c >> 32))
    return cases


def _packings() -> list[Case]:
    """cvt.pack: two numbers saturated, and what there is room for of a third one above them."""
    cases = [
        case(f"cvt.pack.sat.{sign}16.s32", "u32", "s32 s32", lambda a, b, k=f"{sign}16": _packed(16, k, a, b, 0))
        for sign in "us"
    ]
    for kind in ("u8", "s8", "u4", "s4", "u2", "s2"):
        bits = int(kind[1:])
        cases.append(
            case(
                f"cvt.pack.sat.{kind}.s32.b32",
                "u32",
                "s32 s32 u32",
                lambda a, b, c, n=bits, k=kind: _packed(n, k, a, b, c),
            )
        )
    return cases


def _packed(bits: int, kind: str, upper: int, lower: int, rest: int) -> int:
    most = 1 << bits
    return rest << 2 * bits | clamp_to(kind, upper) % most << bits | clamp_to(kind, lower) % most


def _conversions() -> list[Case]:
    kinds = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    cases = []
    for target, source in itertools.product(kinds, kinds):
        cases.append(case(f"cvt.{target}.{source}", target, source, lambda a: a))
        if target != source:
            cases.append(case(f"cvt.sat.{target}.{source}", target, source, lambda a, t=target: clamp(a, t)))
    return cases


CASES = [
    *(item for kind in ("u16", "s16", "u32", "s32", "u64", "s64") for item in _cases_of_type(kind)),
    *(item for bits in (16, 32, 64) for item in _cases_of_bits(bits)),
    *_misc(),
    *_conversions(),
    *_packings(),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> ElementWise:
    return ElementWise([item.shape for item in CASES], tmp_path_factory.mktemp("integers"))


@pytest.mark.parametrize("item", CASES, ids=str)
def test_instruction(machine: ElementWise, item: Case) -> None:
    check(machine, item, rows(item))


_FUZZED = [
    item for item in CASES if item.shape.text.split(".")[0] in ("bfe", "bfi", "shl", "shr", "shf", "prmt", "cvt", "div")
]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_operands(machine: ElementWise, data: st.DataObject) -> None:
    item = data.draw(st.sampled_from(_FUZZED), label="instruction")
    row = tuple(data.draw(st.integers(0, (1 << bits_of(kind)) - 1), label=kind) for kind in item.shape.sources)
    check(machine, item, [row])
