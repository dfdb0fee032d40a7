"""atom and red: every operation on every type, in every space, with every ordering and scope, against a model in Python."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.softgpu.compiler_harness import HEADER, LoadedModule, compiled_quickly

SPACES = ("", ".global", ".shared", ".shared::cta")
ORDERS = (
    "",
    ".cta",
    ".sys",
    ".relaxed.cta",
    ".relaxed.gpu",
    ".acquire.gpu",
    ".release.sys",
    ".acq_rel.cta",
    ".acq_rel.gpu",
    ".acq_rel.sys",
)
Values = tuple[int, int, int]
"""What memory holds, and one or two operands, as bits."""


def _wrapped(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value %= 1 << bits
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def _integer(operation: str, kind: str) -> Callable[[int, int, int], int]:
    return {
        "add": lambda a, b, _: a + b,
        "and": lambda a, b, _: a & b,
        "or": lambda a, b, _: a | b,
        "xor": lambda a, b, _: a ^ b,
        "exch": lambda _, b, __: b,
        "cas": lambda a, b, c: c if a == b else a,
        "min": lambda a, b, _: min(_wrapped(a, kind), _wrapped(b, kind)),
        "max": lambda a, b, _: max(_wrapped(a, kind), _wrapped(b, kind)),
        "inc": lambda a, b, _: 0 if a >= b else a + 1,
        "dec": lambda a, b, _: b if a == 0 or a > b else a - 1,
    }[operation]


def _bits(number: float, kind: str) -> int:
    if kind.startswith("bf16"):
        return int.from_bytes(struct.pack("<f", number)[2:], "little")
    form = {"f16": "<e", "f32": "<f", "f64": "<d"}[kind.removesuffix("x2")]
    return int.from_bytes(struct.pack(form, number), "little")


def _integer_cases() -> list[tuple[str, str, Values]]:
    cases = []
    for operation, kinds in (
        ("and", ("b32", "b64")),
        ("or", ("b32", "b64")),
        ("xor", ("b32", "b64")),
        ("exch", ("b32", "b64")),
        ("cas", ("b16", "b32", "b64")),
        ("add", ("u32", "s32", "u64")),
        ("inc", ("u32",)),
        ("dec", ("u32",)),
        ("min", ("u32", "s32", "u64", "s64")),
        ("max", ("u32", "s32", "u64", "s64")),
    ):
        for kind in kinds:
            top = (1 << int(kind[1:])) - 1
            pairs = ((5, 3), (3, 5), (top, 1), (1, top), (0, 9), (top - 6, top - 7), (top >> 1, (top >> 1) + 1))
            for memory, operand in pairs:
                cases.append((operation, kind, (memory, operand, 0x7A5C & top)))
            if operation == "cas":
                cases.append((operation, kind, (top - 4, top - 4, 0x1234 & top)))
    return cases


def _expected(operation: str, kind: str, values: Values) -> int:
    return _integer(operation, kind)(*values) % (1 << int(kind[1:]))


FLOATS = (
    ("f32", "add.f32"),
    ("f64", "add.f64"),
    ("f16", "add.noftz.f16"),
    ("bf16", "add.noftz.bf16"),
    ("f16x2", "add.noftz.f16x2"),
    ("bf16x2", "add.noftz.bf16x2"),
)


def _register(kind: str) -> tuple[str, int]:
    bits = 32 if kind.endswith("x2") else int(kind.removeprefix("b").lstrip("usbf"))
    return f"b{bits}", bits


def _kernel(name: str, spelling: str, kind: str, space: str, order: str) -> str:
    """
    k(cells): 8 bytes each of memory, operand, second operand, what atom gave, memory after it, memory after red.

    The atomic works on a copy in the space that is asked for; red starts from the memory's first value.
    """
    register, bits = _register(kind)
    operands = "%a, %b" if spelling.startswith("cas") else "%a"
    where = "[%s]" if "shared" in space else "[%g]"
    move = ".shared" if "shared" in space else ".global"
    red = "" if spelling.startswith(("cas", "exch")) else f"red{order}{space}.{spelling} {where}, {operands};"
    red_order = order.replace("acquire", "relaxed").replace("acq_rel", "release")
    return f"""
.visible .entry {name}(.param .u64 {name}_cells) {{
  .reg .b64 %x, %s, %g; .reg .{register} %a, %b, %m, %old, %new; .shared .align 8 .b8 {name}_cell[8];
  .global .align 8 .b8 {name}_global[8];
  ld.param.u64 %x, [{name}_cells]; mov.u64 %s, {name}_cell; mov.u64 %g, {name}_global;
  ld.global.b{bits} %m, [%x]; ld.global.b{bits} %a, [%x+8]; ld.global.b{bits} %b, [%x+16];
  st{move}.b{bits} {where}, %m; atom{order}{space}.{spelling} %old, {where}, {operands};
  ld{move}.b{bits} %new, {where}; st.global.b{bits} [%x+24], %old; st.global.b{bits} [%x+32], %new;
  st{move}.b{bits} {where}, %m; {red.replace(order, red_order) if order else red}
  ld{move}.b{bits} %new, {where}; st.global.b{bits} [%x+40], %new; ret;
}}"""


def _run(module: LoadedModule, name: str, values: Values) -> list[int]:
    cells = (ctypes.c_uint64 * 6)(*values)
    module.run(name, ctypes.addressof(cells).to_bytes(8, "little"))
    return list(cells[3:])


@pytest.mark.parametrize("space", SPACES)
def test_integers(space: str, tmp_path: Path) -> None:
    cases = _integer_cases()
    names: dict[tuple[str, str], str] = {}
    text = HEADER
    for (operation, kind), order in zip(
        dict.fromkeys((operation, kind) for operation, kind, _ in cases), itertools.cycle(ORDERS), strict=False
    ):
        names[operation, kind] = f"k{len(names)}"
        text += _kernel(names[operation, kind], f"{operation}.{kind}", kind, space, order)
    module = compiled_quickly(text, tmp_path / "atomics.so")
    for operation, kind, values in cases:
        wanted = _expected(operation, kind, values)
        has_red = operation not in ("cas", "exch")
        got = _run(module, names[operation, kind], values)
        assert got == [values[0], wanted, wanted if has_red else values[0]], (operation, kind, values)


@pytest.mark.parametrize("space", SPACES)
def test_floats(space: str, tmp_path: Path) -> None:
    text = HEADER
    for index, (kind, spelling) in enumerate(FLOATS):
        text += _kernel(f"k{index}", spelling, kind, space, ORDERS[3 * index % len(ORDERS)])
    module = compiled_quickly(text, tmp_path / "atomics.so")
    for index, (kind, _) in enumerate(FLOATS):
        for a, b in ((1.5, 2.25), (-3.0, 3.0), (0.0, -0.5), (float("inf"), 1.0)):
            memory, operand, wanted = _bits(a, kind), _bits(b, kind), _bits(a + b, kind)
            if kind.endswith("x2"):
                memory, operand, wanted = memory | operand << 16, operand | memory << 16, wanted | wanted << 16
            assert _run(module, f"k{index}", (memory, operand, 0)) == [memory, wanted, wanted], (kind, a, b)


SUBNORMAL, LEAST_NORMAL = 2, 0x00800001


@pytest.mark.parametrize(
    ("space", "is_flushed"), [(".global", True), ("", True), (".shared", False), ("generic shared", False)]
)
def test_sums_of_subnormal_numbers(space: str, is_flushed: bool, tmp_path: Path) -> None:
    """As the manual says of f32: zeros in global memory, numbers in shared memory; by a generic address it depends on where that leads."""
    text = _kernel("k", "add.f32", "f32", space.replace("generic ", "."), "")
    if space == "generic shared":
        text = text.replace("atom.shared", "cvta.shared.u64 %g, %s; atom").replace(
            "atom.add.f32 %old, [%s]", "atom.add.f32 %old, [%g]"
        )
        text = text.replace("red.shared.add.f32 [%s]", "red.add.f32 [%g]")
    module = compiled_quickly(HEADER + text, tmp_path / "atomics.so")
    total = LEAST_NORMAL if is_flushed else LEAST_NORMAL + SUBNORMAL
    assert _run(module, "k", (SUBNORMAL, LEAST_NORMAL, 0)) == [SUBNORMAL, total, total]


@pytest.mark.parametrize("order", ORDERS)
def test_every_ordering_and_scope(order: str, tmp_path: Path) -> None:
    text = HEADER
    for index, space in enumerate(SPACES):
        text += _kernel(f"k{index}", "add.u32", "u32", space, order)
        text += _kernel(f"c{index}", "cas.b64", "b64", space, order)
    module = compiled_quickly(text, tmp_path / "atomics.so")
    for index in range(len(SPACES)):
        assert _run(module, f"k{index}", (40, 2, 0)) == [40, 42, 42]
        assert _run(module, f"c{index}", (40, 40, 7)) == [40, 7, 40]


VECTOR = """
.visible .entry k(.param .u64 cells) {{
  .reg .b64 %x; .reg .{register} %o<8>, %two;
  ld.param.u64 %x, [cells]; mov.b{bits} %two, {two};
  atom{space}.{spelling} {{{old}}}, [%x], {{{values}}};
  red.relaxed.gpu{space}.{spelling} [%x], {{{values}}};
  {stores}
  ret;
}}"""


@pytest.mark.parametrize("space", ["", ".global"])
@pytest.mark.parametrize(
    ("spelling", "kind", "nr"),
    [
        ("add.v2.f32", "f32", 2),
        ("add.v4.f32", "f32", 4),
        ("add.noftz.v2.f16x2", "f16x2", 2),
        ("max.noftz.v4.bf16", "bf16", 4),
        ("add.noftz.v8.f16", "f16", 8),
        ("min.noftz.v4.bf16x2", "bf16x2", 4),
    ],
)
def test_vectors_element_by_element(spelling: str, kind: str, nr: int, space: str, tmp_path: Path) -> None:
    """The operand is 2 in each element; memory holds 1, -3, 1, ... and then what atom gave."""
    register, bits = _register(kind)
    size_bytes = bits // 8
    operations: dict[str, Callable[[float], float]] = {
        "add": lambda a: a + 2.0,
        "max": lambda a: max(a, 2.0),
        "min": lambda a: min(a, 2.0),
    }
    operation = operations[spelling[:3]]
    both = 0x10001 if kind.endswith("x2") else 1
    numbers = [1.0 if index % 2 == 0 else -3.0 for index in range(nr)]
    stores = " ".join(f"st.global.b{bits} [%x+{size_bytes * (nr + i)}], %o{i};" for i in range(nr))
    text = VECTOR.format(
        register=register,
        bits=bits,
        two=_bits(2.0, kind) * both,
        space=space,
        spelling=spelling,
        old=", ".join(f"%o{index}" for index in range(nr)),
        values=", ".join(["%two"] * nr),
        stores=stores,
    )
    module = compiled_quickly(HEADER + text, tmp_path / "vectors.so")
    cells = (ctypes.c_uint8 * (2 * nr * size_bytes))(
        *b"".join((_bits(number, kind) * both).to_bytes(size_bytes, "little") for number in numbers)
    )
    module.run("k", ctypes.addressof(cells).to_bytes(8, "little"))
    found = [int.from_bytes(bytes(cells[i : i + size_bytes]), "little") for i in range(0, len(cells), size_bytes)]
    assert found[:nr] == [_bits(operation(operation(number)), kind) * both for number in numbers]
    assert found[nr:] == [_bits(number, kind) * both for number in numbers]
