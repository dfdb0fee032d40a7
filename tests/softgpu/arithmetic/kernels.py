"""
Forms to PTX: a kernel reads a tuple of operands in each thread, applies several forms to it and writes what they give.

Operands and results lie in columns of their natural width, so that softgpu runs such a kernel as vectors, as it does real programs. Forms that
share a kernel have the same kinds of operands; which ones share makes no difference to their answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.softgpu.arithmetic.forms import OPERAND_NAMES, Form, register_type
from tests.softgpu.arithmetic.operands import base_type, bits_of

BLOCK = 64
FORMS_IN_A_KERNEL = 8
COLUMN_BYTES_PER_TUPLE = 8
_REGISTERS = "  .reg .b64 %i<6>; .reg .b64 %out, %cell, %shared; .reg .b32 %t<4>, %flag;"


@dataclass(frozen=True, slots=True)
class Kernel:
    """Forms with the same kinds of operands."""

    name: str
    forms: tuple[Form, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return self.forms[0].sources

    @property
    def nr_columns(self) -> int:
        """Of the output: one for each result of each form, and one of cells for atomics."""
        return sum(len(form.results) for form in self.forms) + 1


def kernels_of(forms: Sequence[Form]) -> list[Kernel]:
    """Forms grouped by their operands, at most FORMS_IN_A_KERNEL in one."""
    groups: dict[tuple[str, ...], list[Form]] = {}
    for form in forms:
        groups.setdefault(form.sources, []).append(form)
    kernels: list[Kernel] = []
    for group in groups.values():
        for start in range(0, len(group), FORMS_IN_A_KERNEL):
            members = tuple(group[start : start + FORMS_IN_A_KERNEL])
            kernels.append(Kernel(f"kernel{len(kernels)}", members))
    return kernels


def _width(kind: str) -> str:
    return f"b{bits_of(kind)}"


def _load(letter: str, kind: str, column: int, nr_tuples: int) -> list[str]:
    offset = column * nr_tuples * COLUMN_BYTES_PER_TUPLE
    address = f"  mad.lo.s64 %i3, %i0, {bits_of(kind) // 8}, %i1;"
    if kind == "pred":
        return [address, f"  ld.global.u32 %flag, [%i3+{offset}]; setp.ne.u32 %{letter}, %flag, 0;"]
    return [address, f"  ld.global.{_moved(kind)} %{letter}, [%i3+{offset}];"]


def _moved(kind: str) -> str:
    """How a kind is loaded: narrow signed numbers extend into their register."""
    name = base_type(kind)
    return name if name in ("s8", "f32", "f64") else "u8" if name == "u8" else _width(kind)


def _store(register: str, kind: str, column: int, nr_tuples: int) -> list[str]:
    size = stored_bits(kind) // 8
    lines = [
        f"    mad.lo.s64 %out, %i0, {size}, %i2; add.s64 %out, %out, {column * nr_tuples * COLUMN_BYTES_PER_TUPLE};"
    ]
    if kind == "pred":
        return [*lines, f"    selp.u32 %flag, 1, 0, {register}; st.global.b32 [%out], %flag;"]
    return [*lines, f"    st.global.b{stored_bits(kind)} [%out], {register};"]


def stored_bits(kind: str) -> int:
    """The width of a result in the output; that of its register, so that extensions are seen."""
    return 32 if kind == "pred" or bits_of(kind) == 8 else bits_of(kind)


def _result_register(kind: str) -> str:
    return "b32" if bits_of(kind) == 8 else register_type(kind)


def _body(form: Form, column: int, nr_tuples: int) -> list[str]:
    lines = ["  {"]
    lines += [f"    .reg .{_result_register(kind)} %d{index};" for index, kind in enumerate(form.results)]
    text = form.text.replace("%d,", "%d0,").rstrip("; ")
    lines.append(f"    {text};")
    for index, kind in enumerate(form.results):
        lines += _store(f"%d{index}", kind, column + index, nr_tuples)
    return [*lines, "  }"]


def _cells(kernel: Kernel, nr_tuples: int) -> list[str]:
    """Each thread's own cell in global memory, behind the results, and in shared memory."""
    offset = (kernel.nr_columns - 1) * nr_tuples * COLUMN_BYTES_PER_TUPLE
    return [
        f"  mad.lo.s64 %cell, %i0, 8, %i2; add.s64 %cell, %cell, {offset};",
        f"  .shared .align 8 .b8 cells[{8 * BLOCK}];",
        "  mov.u64 %i4, cells; cvt.u64.u32 %shared, %t2; mad.lo.s64 %shared, %shared, 8, %i4;",
    ]


def _kernel_text(kernel: Kernel, nr_tuples: int) -> str:
    lines = [f".visible .entry {kernel.name}(.param .u64 operands, .param .u64 results) {{", _REGISTERS]
    names = list(zip(OPERAND_NAMES, kernel.sources, strict=False))
    lines += [f"  .reg .{register_type(kind)} %{letter};" for letter, kind in names]
    lines.append("  ld.param.u64 %i1, [operands]; ld.param.u64 %i2, [results];")
    lines.append("  mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x;")
    lines.append("  mad.lo.u32 %t3, %t0, %t1, %t2; cvt.u64.u32 %i0, %t3;")
    for column, (letter, kind) in enumerate(names):
        lines += _load(letter, kind, column, nr_tuples)
    if any(form.uses_cell for form in kernel.forms):
        lines += _cells(kernel, nr_tuples)
    column = 0
    for form in kernel.forms:
        lines += _body(form, column, nr_tuples)
        column += len(form.results)
    return "\n".join([*lines, "  ret;", "}", ""])


def module_text(kernels: Sequence[Kernel], capability: int, nr_tuples: int) -> str:
    """
    A module of all kernels for a device of that capability.

    Its target is the least that the forms need, but never beyond the device: softgpu has some forms of newer GPUs than the one it is like.
    """
    target = max(form.target for kernel in kernels for form in kernel.forms)
    header = f".version 8.0\n.target sm_{min(target, capability)}\n.address_size 64\n"
    return header + "".join(_kernel_text(kernel, nr_tuples) for kernel in kernels)
