"""Several PTX modules linked to one: who means whom, what is missing or there twice, and the set of images that the compiler is given."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from cuda_api.image_set import ALIGNMENT_BYTES, split
from cuda_api.ptx import format_module, parse
from cuda_api.ptx.syntax import Module
from softgpu.compiler.base.errors import DuplicateSymbolError, UndefinedSymbolError, UnsupportedCallError
from softgpu.compiler.command import linked_module, modules_of
from softgpu.compiler.link import link
from tests.softgpu.compiler_harness import CAPABILITY, HEADER, LoadedModule, compiled

KERNEL = """
.visible .entry k(.param .u64 k_out) {{
  .reg .b64 %x; .reg .b32 %r; .reg .b32 %s;
  ld.param.u64 %x, [k_out]; mov.b32 %r, 5;
  {body}
  st.global.u32 [%x], %r; ret;
}}"""
CALL = "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r; call (b), {name}, (a); ld.param.b32 %r, [b]; }}"
FUNCTION = """
{linkage} .func (.param .b32 {name}_r) {name}(.param .b32 {name}_a) {{
  .reg .b32 %r; .reg .b32 %s;
  ld.param.b32 %r, [{name}_a];
  {body}
  st.param.b32 [{name}_r], %r; ret;
}}"""
DECLARATION = ".extern .func (.param .b32 r) {name}(.param .b32 a);\n"


def _set(*texts: str) -> bytes:
    data = b""
    for text in texts:
        data += bytes(-len(data) % ALIGNMENT_BYTES) + (HEADER + text).encode() + b"\0"
    return data


def _link(*texts: str, is_complete: bool = True) -> Module:
    return linked_module(modules_of(_set(*texts), CAPABILITY), is_complete=is_complete)


def _linked(tmp_path: Path, *texts: str) -> LoadedModule:
    """By way of the linked module's text, as cuLinkComplete gives it."""
    text = format_module(_link(*texts))
    return compiled(text, tmp_path, f"module{len(list(tmp_path.iterdir()))}")


def _result(module: LoadedModule, name: str = "k") -> int:
    out = ctypes.c_uint32()
    module.run(name, struct.pack("<Q", ctypes.addressof(out)))
    return out.value


def test_functions_and_variables_of_another_module(tmp_path: Path) -> None:
    body = CALL.format(name="f") + "ld.global.u32 %s, [g]; add.u32 %r, %r, %s;"
    user = DECLARATION.format(name="f") + ".extern .global .u32 g;" + KERNEL.format(body=body)
    maker = ".visible .global .u32 g = 100;" + FUNCTION.format(
        linkage=".visible", name="f", body="mul.lo.u32 %r, %r, 3;"
    )
    assert _result(_linked(tmp_path, user, maker)) == 115
    assert _result(_linked(tmp_path, maker, user)) == 115


def test_names_that_each_module_keeps_to_itself(tmp_path: Path) -> None:
    """A variable, a function, and a pointer to each in an initialiser; locals of the same name stay what they are."""
    own = ".global .u32 g = {value}; .global .u64 p = generic(g);" + FUNCTION.format(
        linkage="", name="own", body="ld.global.u32 %s, [g]; add.u32 %r, %r, %s;"
    )
    through = "{ .reg .b64 %y; ld.global.u64 %y, [p]; ld.u32 %s, [%y]; add.u32 %r, %r, %s; }"
    shadow = "{ .reg .b32 g; mov.b32 g, 1000; add.u32 %r, %r, g; }"
    user = own.replace("{value}", "10") + DECLARATION.format(name="f")
    user += KERNEL.format(body=CALL.format(name="own") + CALL.format(name="f") + through + shadow)
    maker = own.replace("{value}", "200") + FUNCTION.format(linkage=".visible", name="f", body=CALL.format(name="own"))
    assert _result(_linked(tmp_path, user, maker)) == 5 + 10 + 200 + 10 + 1000


def test_a_weak_definition_gives_way(tmp_path: Path) -> None:
    weak = FUNCTION.format(linkage=".weak", name="f", body="add.u32 %r, %r, 1;") + ".weak .global .u32 g = 7;"
    strong = FUNCTION.format(linkage=".visible", name="f", body="add.u32 %r, %r, 2;") + ".visible .global .u32 g = 20;"
    body = CALL.format(name="f") + "ld.global.u32 %s, [g]; add.u32 %r, %r, %s;"
    user = DECLARATION.format(name="f") + ".extern .global .u32 g;" + KERNEL.format(body=body)
    assert _result(_linked(tmp_path, weak, user, weak)) == 13
    assert _result(_linked(tmp_path, weak, strong, user)) == 27
    assert _result(_linked(tmp_path, strong, weak, user)) == 27


def test_the_largest_common_variable_stays() -> None:
    small, large = (parse(f"{HEADER}.common .global .b8 c[{size}];") for size in (4, 64))
    for modules in ((small, large), (large, small)):
        assert [variable.dimensions for variable in link(modules).variables] == [(64,)]


def test_dynamic_shared_memory_is_one() -> None:
    module = parse(HEADER + ".extern .shared .align 16 .b8 dynamic[];")
    assert [variable.name for variable in link((module, module)).variables] == ["dynamic"]


def test_what_is_defined_nowhere() -> None:
    user = DECLARATION.format(name="f") + KERNEL.format(body=CALL.format(name="f"))
    with pytest.raises(UndefinedSymbolError, match="'k' refers to 'f'"):
        _link(user, ".visible .global .u32 g;")
    _link(user, ".visible .global .u32 g;", is_complete=False)
    _link(DECLARATION.format(name="unused"), ".visible .global .u32 g;")


DEVICE_RUNTIME = (
    DECLARATION.format(name="cnpLaunch")
    + FUNCTION.format(linkage=".visible", name="cudaLaunch", body=CALL.format(name="cnpLaunch"))
    + ".entry copier() { ret; } .global .u64 kernels = copier;"
)
"""As libcudadevrt.a, which nvcc links to all programs of several files."""


def test_the_library_for_launches_from_kernels_is_left_out() -> None:
    module = _link(DEVICE_RUNTIME, KERNEL.format(body=""), ".visible .global .u32 g;")
    assert [function.name for function in module.functions] == ["k"]
    assert [variable.name for variable in module.variables] == ["g"]


def test_a_kernel_that_launches_kernels_is_named() -> None:
    user = DECLARATION.format(name="cudaLaunch") + KERNEL.format(body=CALL.format(name="cudaLaunch"))
    with pytest.raises(UnsupportedCallError, match="'k' calls 'cudaLaunch'"):
        _link(user, DEVICE_RUNTIME)


def test_what_the_device_offers_needs_no_definition() -> None:
    declaration = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
    _link(declaration, declaration)


@pytest.mark.parametrize(
    "text",
    [
        ".visible .global .u32 g;",
        FUNCTION.format(linkage=".visible", name="f", body=""),
        KERNEL.format(body=""),
    ],
)
def test_what_is_defined_twice(text: str) -> None:
    with pytest.raises(DuplicateSymbolError, match="more than once"):
        _link(text, text)


def test_a_function_and_a_variable_of_one_name() -> None:
    with pytest.raises(DuplicateSymbolError, match="'f'"):
        _link(".visible .global .u32 f;", FUNCTION.format(linkage=".visible", name="f", body=""))


CONTAINER = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 5) + b"\x01\0\x02\0\x03"


@pytest.mark.parametrize(
    ("data", "images"),
    [
        (b".version 8.0", (b".version 8.0",)),
        (b".version 8.0\0", (b".version 8.0\0",)),
        (b".version 8.0\0\0\0\0\0\0\0\0", (b".version 8.0\0",)),
        (b"12345\0..abc\0", (b"12345\0", b"abc\0")),
        (CONTAINER + b"...abc\0", (CONTAINER, b"abc\0")),
        (CONTAINER[:-1], (CONTAINER[:-1],)),
        (b"\x7fELF\0\0\0\0abc", (b"\x7fELF\0\0\0\0abc",)),
        (b"\0\0", (b"\0",)),
        (b"", ()),
    ],
)
def test_a_set_is_taken_apart(data: bytes, images: tuple[bytes, ...]) -> None:
    assert split(data) == images
