"""The catalogue's atomics: their arithmetic, on a cell that one thread owns, in global and in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.softgpu.arithmetic.forms import Form, form

_OPERATIONS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "add.noftz": ("f16", "f16x2", "bf16", "bf16x2"),
}
_SPACES = (("global", "%cell"), ("shared", "%shared"))


def atomics() -> Iterator[Form]:
    """%d0 is what atom returns, %d1 what it leaves in the cell."""
    for operation, kinds in _OPERATIONS.items():
        for kind, (space, cell) in product(kinds, _SPACES):
            bits = 32 if kind.endswith("x2") else int(kind.lstrip("bfsu"))
            target = 90 if kind.startswith("bf") else 70
            atom = f"atom.{space}.{operation}.{kind} %d0, [{cell}], %b;"
            text = f"st.{space}.b{bits} [{cell}], %a; {atom} ld.{space}.b{bits} %d1, [{cell}];"
            yield form(text, f"{kind} {kind}", f"{kind} {kind}", target=target)
    for bits, (space, cell) in product((16, 32, 64), _SPACES):
        atom = f"atom.{space}.cas.b{bits} %d0, [{cell}], %b, %c;"
        text = f"st.{space}.b{bits} [{cell}], %a; {atom} ld.{space}.b{bits} %d1, [{cell}];"
        yield form(text, f"b{bits} b{bits}", f"b{bits} b{bits} b{bits}")
