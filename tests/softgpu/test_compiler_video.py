"""Video instructions, of one part of a number and of all at once, by the manual's formulas."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable

import pytest

from softgpu.compiler.base.errors import InvalidPtxError
from softgpu.compiler.command import llvm_text
from tests.softgpu.compiler_harness import HEADER, Case, ElementWise, case
from tests.softgpu.integer_cases import check, clamp, clamp_to, rows, signed


def _part(value: int, selector: str, kind: str) -> int:
    """What of a 32-bit number a scalar video instruction takes."""
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    value = value >> bits * int(selector[1:] or 0) & (1 << bits) - 1
    return signed(value, bits) if kind[0] == "s" else value


_VIDEO: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: a + b + (a + b >= 0) >> 1,
}
_SECONDARY: dict[str, Callable[[int, int], int]] = {"add": lambda a, b: a + b, "min": min, "max": max}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _number(compare: Callable[[int, int], bool]) -> Callable[[int, int], int]:
    return lambda a, b: int(compare(a, b))


def _video() -> list[Case]:
    """Scalar ones: all types and parts are tried with some operation, and each operation with some types and parts."""
    cases = []
    kinds = list(itertools.product(("u32", "s32"), repeat=3))
    parts = ["", "h1", "b2", "h0", "b0", "b3"]
    operations = [name for name in _VIDEO if name != "vavrg"]
    for index, (operation, (result, left, right)) in enumerate(itertools.product(operations, kinds)):
        a, b = parts[index % 6], parts[index // 6 % 6]
        operands = f"%a{a and '.'}{a}, %b{b and '.'}{b}"

        def value(x: int, y: int, f: str = operation, k: str = left, m: str = right, a: str = a, b: str = b) -> int:
            return _VIDEO[f](_part(x, a, k), _part(y, b, m))

        name, sources = f"{operation}.{result}.{left}.{right}", "u32 u32"
        cases.append(case(f"{name} %d, {operands}", "u32", sources, value))
        cases.append(
            case(f"{name}.sat %d, {operands}", "u32", sources, lambda x, y, f=value, k=result: clamp(f(x, y), k))
        )
        second = list(_SECONDARY)[index % 3]
        cases.append(
            case(
                f"{name}.sat.{second} %d, {operands}, %c",
                "u32",
                f"u32 u32 {result}",
                lambda x, y, z, f=value, k=result, s=second: _SECONDARY[s](clamp(f(x, y), k), z),
            )
        )
        part = parts[1 + index % 5]
        cases.append(
            case(
                f"{name}.sat %d.{part}, {operands}, %c",
                "u32",
                "u32 u32 u32",
                lambda x, y, z, f=value, k=result, p=part: _put(
                    z, p, clamp_to(f"{k[0]}{8 if p[0] == 'b' else 16}", f(x, y))
                ),
            )
        )
    for kind, mode in itertools.product(("u32", "s32"), ("wrap", "clamp")):

        def amount(n: int, mode: str = mode) -> int:
            return n & 31 if mode == "wrap" else min(n, 32)

        shapes = (f"{kind} u32", f"{kind} u32 u32")
        cases += [
            case(f"vshl.u32.{kind}.u32.{mode}", "u32", shapes[0], lambda a, b, n=amount: a << n(b)),
            case(f"vshr.u32.{kind}.u32.{mode}", "u32", shapes[0], lambda a, b, n=amount: a >> n(b)),
            case(
                f"vshl.{kind}.{kind}.u32.sat.{mode}",
                kind,
                shapes[0],
                lambda a, b, n=amount, k=kind: clamp(a << n(b), k),
            ),
            case(f"vshl.u32.{kind}.u32.{mode}.add", "u32", shapes[1], lambda a, b, c, n=amount: (a << n(b)) + c),
            case(
                f"vshr.{kind}.{kind}.u32.{mode} %d, %a.h1, %b.b0",
                kind,
                "u32 u32",
                lambda a, b, n=amount, k=kind: _part(a, "h1", k) >> n(b & 255),
            ),
        ]
    for name, compare in _COMPARISONS.items():
        cases += [
            case(f"vset.s32.u32.{name}", "u32", "s32 u32", lambda a, b, f=compare: f(a, b)),
            case(f"vset.u32.s32.{name}.add", "u32", "u32 s32 u32", lambda a, b, c, f=compare: f(a, b) + c),
            case(
                f"vset.u32.u32.{name} %d.b1, %a, %b, %c",
                "u32",
                "u32 u32 u32",
                lambda a, b, c, f=compare: _put(c, "b1", f(a, b)),
            ),
        ]
    cases += [
        case("vmad.s32.u32.s32", "u32", "u32 s32 s32", lambda a, b, c: a * b + c),
        case("vmad.u32.u32.u32.shr7", "u32", "u32 u32 u32", lambda a, b, c: a * b + c >> 7),
        case("vmad.u32.u32.u32.sat", "u32", "u32 u32 u32", lambda a, b, c: clamp(a * b + c, "u32")),
        case("vmad.s32.s32.s32.sat.shr15", "u32", "s32 s32 s32", lambda a, b, c: clamp(a * b + c >> 15, "s32")),
        case(
            "vmad.u32.u32.u32.po.shr7 %d, %a.h0, %b.h1, %c",
            "u32",
            "u32 u32 u32",
            lambda a, b, c: (a & 65535) * (b >> 16) + c + 1 >> 7,
        ),
        case("vmad.u32.u32.u32.sat %d, -%a, %b, %c", "u32", "u32 u32 s32", lambda a, b, c: clamp(c - a * b, "s32")),
        case("vmad.u32.u32.u32.shr7 %d, %a, %b, -%c", "u32", "u32 u32 s32", lambda a, b, c: a * b - c >> 7),
    ]
    return cases


def _put(whole: int, selector: str, part: int) -> int:
    bits = 8 if selector[0] == "b" else 16
    mask = (1 << bits) - 1
    place = bits * int(selector[1])
    return whole & ~(mask << place) | (part & mask) << place


def _packed_video() -> list[Case]:
    """All parts of a number at once."""
    cases = []
    operations: list[tuple[str, str, Callable[[int, int], int]]] = [(name, "", f) for name, f in _VIDEO.items()]
    operations += [("vset", f".{name}", _number(f)) for name, f in _COMPARISONS.items()]
    for (name, comparison, f), count, left, right in itertools.product(operations, (2, 4), "us", "us"):
        result = "" if comparison else f".{left}32"
        shape = f"{name}{count}{result}.{left}32.{right}32{comparison}"

        def values(
            a: int, b: int, count: int = count, kinds: str = left + right, f: Callable[[int, int], int] = f
        ) -> list[int]:
            bits = 32 // count
            return [
                f(
                    *(
                        signed(v >> bits * i, bits) if k == "s" else v >> bits * i & (1 << bits) - 1
                        for v, k in zip((a, b), kinds, strict=True)
                    )
                )
                for i in range(count)
            ]

        def joined(parts: list[int], count: int = count) -> int:
            bits = 32 // count
            return sum((part & (1 << bits) - 1) << bits * i for i, part in enumerate(parts))

        three = "u32 u32 u32"
        cases.append(case(shape, "u32", three, lambda a, b, c, v=values, j=joined: j(v(a, b))))
        cases.append(case(f"{shape}.add", "u32", three, lambda a, b, c, v=values: c + sum(v(a, b))))
        if not comparison:
            kind = f"{left}{32 // count}"
            cases.append(
                case(
                    f"{shape}.sat",
                    "u32",
                    three,
                    lambda a, b, c, v=values, j=joined, k=kind: j([clamp_to(k, x) for x in v(a, b)]),
                )
            )
    cases += [
        case("vadd4.u32.u32.u32 %d.b20, %a.b3107, %b.b0000, %c", "u32", "u32 u32 u32", _masked_sum),
        case("vmin2.s32.s32.s32.add %d.h1, %a.h01, %b.h22, %c", "u32", "u32 u32 u32", _masked_least),
    ]
    return cases


def _masked_sum(a: int, b: int, c: int) -> int:
    """Bytes 0 and 2: the first is the second operand's byte 3 and the first one's byte 0, the other the first one's bytes 1 and 0."""
    low, high = (b >> 24) + (a & 255), (a >> 8 & 255) + (a & 255)
    return c & 0xFF00FF00 | low & 255 | (high & 255) << 16


def _masked_least(a: int, b: int, c: int) -> int:
    return c + min(signed(a, 16), signed(b, 16))


MALFORMED = """
vadd.u32.u32.u32 %d, %a, %b, %c
vadd.u32.u32.u32.add %d, %a, %b
vadd.u32.u32.u32 %d.b1, %a, %b
vadd.u32.u32.u32 %d, %a.b4, %b
vadd4.u32.u32.u32 %d, %a.b321, %b, %c
vadd4.u32.u32.u32 %d, %a.h3210, %b, %c
vadd4.u32.u32.u32 %d, %a.b, %b, %c
vadd2.u32.u32.u32 %d.h2, %a, %b, %c
vadd2.u32.u32.u32 %d, %a, %b
""".strip().splitlines()

CASES = [*_video(), *_packed_video()]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> ElementWise:
    return ElementWise([item.shape for item in CASES], tmp_path_factory.mktemp("video"))


@pytest.mark.parametrize("item", CASES, ids=str)
def test_instruction(machine: ElementWise, item: Case) -> None:
    check(machine, item, rows(item))


@pytest.mark.parametrize("instruction", MALFORMED)
def test_malformed(instruction: str) -> None:
    text = f".visible .entry k() {{ .reg .b32 %a, %b, %c, %d; {instruction}; ret; }}"
    with pytest.raises(InvalidPtxError, match=re.escape(instruction.split(maxsplit=1)[0])):
        llvm_text(HEADER + text)
