"""The PTX parser: what each construct becomes, that text made from a tree parses to the same tree, and what errors say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nvcc import find_nvcc
from cuda_api.ptx import PtxSyntaxError, format_module, parse
from cuda_api.ptx.syntax import (
    Address,
    Alias,
    Arguments,
    Block,
    Bracket,
    Float,
    Function,
    Guard,
    Instruction,
    Integer,
    Label,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Pragma,
    Prototype,
    Targets,
    Tuning,
    Variable,
    Vector,
)

HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"


def body_of(text: str) -> Block:
    module = parse(HEAD + ".visible .entry k() {\n" + text + "\n}\n")
    assert parse(format_module(module)) == module
    (function,) = module.functions
    assert function.body is not None
    return function.body


def operands_of(text: str) -> tuple[Operand, ...]:
    (statement,) = body_of(text).statements
    assert isinstance(statement, Instruction)
    return statement.operands


def item_of(text: str) -> Function | Variable | Alias | Pragma:
    module = parse(HEAD + text)
    assert parse(format_module(module)) == module
    (item,) = module.items
    return item


def test_header() -> None:
    module = parse(".version 7.8 // comment\n.target sm_80a, texmode_independent /* more\n */ .address_size 64")
    assert module == Module((7, 8), ("sm_80a", "texmode_independent"), 64, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ret;", Instruction("ret", (), ())),
        ("@!%p1 bra L;", Instruction("bra", (), (Name("L"),), Guard("%p1", is_negated=True))),
        ("mov.u32 %r1, %tid.x;", Instruction("mov", ("u32",), (Name("%r1"), Name("%tid", "x")))),
        ("ld.global.L2::128B.v2.f32 {%f1, _}, [%rd1+-8];", Instruction("ld", ("global", "L2::128B", "v2", "f32"), (Vector((Name("%f1"), Name("_"))), Address(Name("%rd1"), -8)))),  # noqa: E501
        ("@p setp.lt.and.s32 a|b, x, -5, !q;", Instruction("setp", ("lt", "and", "s32"), (Pair(Name("a"), Name("b")), Name("x"), Integer(-5), Not(Name("q"))), Guard("p"))),  # noqa: E501
    ],
)  # fmt: skip
def test_instruction(text: str, expected: Instruction) -> None:
    assert body_of(text).statements == (expected,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x1F", Integer(31)),
        ("017", Integer(15)),
        ("0b101", Integer(5)),
        ("42U", Integer(42)),
        ("-0x80000000", Integer(-(1 << 31))),
        ("(3 + 4) * 2 - 10 / 3", Integer(11)),
        ("-7 / 2", Integer(-3)),
        ("1 << 4 | 3", Integer(19)),
        ("5 > 4 ? 7 : 8", Integer(7)),
        ("~0", Integer(-1)),
        ("!3", Integer(0)),
        ("(1 << 4)", Integer(16)),
        ("((1 << 4)) | 3", Integer(19)),
        ("(.u64)-1", Integer((1 << 64) - 1)),
        ("0f3F800000", Float(0x3F800000, 32)),
        ("0d3FF0000000000000", Float(0x3FF0000000000000, 64)),
        ("-0f3F800000", Float(0xBF800000, 32)),
        ("1.5", Float(0x3FF8000000000000, 64)),
        ("1e3", Float(0x408F400000000000, 64)),
        ("symbol+8", Offset(Name("symbol"), 8)),
        ("$str", Name("$str")),
        ("[symbol]", Address(Name("symbol"))),
        ("[16]", Address(Integer(16))),
        ("[%rd1+4*3]", Address(Name("%rd1"), 12)),
        ("[symbol-(2+2)*2+-1]", Address(Name("symbol"), -9)),
        ("[tex, {%f1, %f2}]", Bracket((Name("tex"), Vector((Name("%f1"), Name("%f2")))))),
    ],
)
def test_operand(text: str, expected: Operand) -> None:
    assert operands_of(f"op {text};") == (expected,)


def test_scopes_and_calls() -> None:
    block = body_of(
        """{ .reg .b32 temp; .param .align 8 .b8 param0[16];
        st.param.b64 [param0+8], %rd1;
        proto : .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;
        call (retval0), %rd2, (param0), proto; }"""
    )
    (inner,) = block.statements
    assert isinstance(inner, Block)
    assert inner.statements == (
        Variable("reg", "b32", "temp"),
        Variable("param", "b8", "param0", alignment=8, dimensions=(16,)),
        Instruction("st", ("param", "b64"), (Address(Name("param0"), 8), Name("%rd1"))),
        Prototype("proto", (Variable("param", "b32", "_"),), (Variable("param", "b64", "_"),), ("noreturn",)),
        Instruction(
            "call", (), (Arguments((Name("retval0"),)), Name("%rd2"), Arguments((Name("param0"),)), Name("proto"))
        ),
    )


def test_statements() -> None:
    block = body_of('.reg .f32 %f<3>, x; .pragma "nounroll"; L: T: .branchtargets L, M; .loc 1 2 3\nbrx.idx %r, T;')
    assert block.statements == (
        Variable("reg", "f32", "%f", range_count=3),
        Variable("reg", "f32", "x"),
        Pragma(("nounroll",)),
        Label("L"),
        Targets("T", "branchtargets", ("L", "M")),
        Instruction("brx", ("idx",), (Name("%r"), Name("T"))),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".extern .shared .align 16 .b8 dyn[];", Variable("shared", "b8", "dyn", 1, 16, (0,), linkage="extern")),
        (".global .v4 .f32 v;", Variable("global", "f32", "v", 4)),
        (".const .u32 c[2][2] = {{1, 2}, {3}};", Variable("const", "u32", "c", dimensions=(2, 2), initialiser=((Integer(1), Integer(2)), (Integer(3),)))),  # noqa: E501
        (".global .u64 p[2] = {generic(t)+8, f};", Variable("global", "u64", "p", dimensions=(2,), initialiser=(Offset(Name("t"), 8, is_generic=True), Name("f")))),  # noqa: E501
        (".global .u8 m = 0xFF00(generic(t)+4);", Variable("global", "u8", "m", initialiser=Offset(Name("t"), 4, is_generic=True, mask=0xFF00))),  # noqa: E501
        (".visible .global .attribute(.managed) .f64 d = 0d3FF0000000000000;", Variable("global", "f64", "d", initialiser=Float(0x3FF0000000000000, 64), linkage="visible", attributes=(".attribute", "(", ".managed", ")"))),  # noqa: E501
        (".alias a, b;", Alias("a", "b")),
    ],
)  # fmt: skip
def test_module_item(text: str, expected: object) -> None:
    assert item_of(text) == expected


def test_function_heads() -> None:
    kernel = item_of(
        ".weak .entry k(.param .u64 .ptr .global .align 4 p, .param .align 8 .b8 s[24]) .maxntid 256, 1, 1 .minnctapersm 2 { ret; }"
    )
    assert isinstance(kernel, Function)
    assert kernel.is_entry and kernel.linkage == "weak"
    assert kernel.tuning == (Tuning("maxntid", (256, 1, 1)), Tuning("minnctapersm", (2,)))
    assert kernel.parameters[0].attributes == (".ptr", ".global", ".align", "4")
    declaration = item_of(".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b) ;")
    assert isinstance(declaration, Function)
    assert declaration.body is None and len(declaration.parameters) == 2 and len(declaration.returns) == 1
    assert item_of(".func f .noreturn { trap; }") == Function(
        False, "f", (), (), tuning=(Tuning("noreturn"),), body=Block((Instruction("trap", (), ()),))
    )


def test_debug_information_is_dropped() -> None:
    text = (
        HEAD
        + '.file 1 "a.cu"\n.func f { .loc 1 2 3, function_name $L, inlined_at 1 2 3\n ret; }\n.section .debug_abbrev { .b8 1 \n.b8 2 }\n'
    )
    assert parse(text.replace("sm_75", "sm_75, debug")) == parse(HEAD + ".func f { ret; }")


@pytest.mark.parametrize(
    ("text", "line", "token"),
    [
        ("", 1, "end of text"),
        (HEAD + "\n.func f {\n  add.s32 %r1, %r2\n}", 7, "}"),
        (HEAD + ".entry k( .param .u64 ) { }", 4, ")"),
        (HEAD + ".global .u32 x[3;", 4, ";"),
        (HEAD + ".func f { ld.u32 %r1, [%r2+]; }", 4, "]"),
        (HEAD + "`", 4, "`"),
        (HEAD + ".func f {", 4, "end of text"),
        (HEAD + ".global .u32 x = 1 / 0;", 4, ";"),
    ],
)
def test_error_names_line_and_token(text: str, line: int, token: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.token) == (line, token)
    assert f"line {line}" in str(caught.value)


@given(st.text(alphabet='.:;,(){}[]<>@!|+-*/ \n\tabfx%_$0123"', max_size=80))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        module = parse(HEAD + text)
    except PtxSyntaxError:
        return
    assert parse(format_module(module)) == module


_NAMES = st.sampled_from(["%r1", "%rd22", "symbol", "$L__BB0_1", "_"]).map(Name)
_SIMPLE: st.SearchStrategy[Operand] = st.one_of(
    _NAMES,
    st.integers(-(1 << 63), (1 << 64) - 1).map(Integer),
    st.integers(0, (1 << 32) - 1).map(lambda bits: Float(bits, 32)),
    st.integers(0, (1 << 64) - 1).map(lambda bits: Float(bits, 64)),
    st.builds(Address, _NAMES, st.integers(-4096, 4096)),
    st.builds(Not, _NAMES),
)
_OPERANDS = st.one_of(
    _SIMPLE,
    st.lists(_SIMPLE, min_size=1, max_size=4).map(lambda items: Vector(tuple(items))),
    st.builds(Pair, _NAMES, _NAMES),
)
_INSTRUCTIONS = st.builds(
    Instruction,
    st.sampled_from(["add", "ld", "setp", "call"]),
    st.lists(st.sampled_from(["u32", "global", "L1::no_allocate", "v4"]), max_size=3).map(tuple),
    st.lists(_OPERANDS, max_size=4).map(tuple),
    st.none() | st.builds(Guard, st.just("%p1"), st.booleans()),
)


@given(st.lists(_INSTRUCTIONS, max_size=8))
def test_formatted_tree_parses_to_itself(instructions: list[Instruction]) -> None:
    module = Module((8, 3), ("sm_90",), 64, (Function(True, "k", (), (), body=Block(tuple(instructions))),))
    assert parse(format_module(module)) == module


PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.cu"))
HEADERS = Path(__file__).parents[2] / "frontend_guest" / "include"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_what_nvcc_emits_round_trips(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.ptx"
    capability = 80 if program.stem == "tensor_cores" else 75  # which its instructions need
    subprocess.run(
        [find_nvcc().path, "-ptx", "-lineinfo", f"-arch=compute_{capability}", "-I", HEADERS, "-o", output, program],
        check=True,
        capture_output=True,
    )
    module = parse(output.read_text())
    assert module.targets[0] == f"sm_{capability}"
    assert parse(format_module(module)) == module
    assert sum(function.is_entry for function in module.functions) == output.read_text().count(".entry")
