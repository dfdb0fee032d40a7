"""Variables of a PTX text of which no kernel keeps an address, in whatever pieces the text comes."""

import pytest

from backend_host.worker.uses import Uses

HEAD = """
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.const .align 4 .b8 c[64];
.visible .const .align 4 .u32 n = 7;
.global .align 1 .b8 $str[4] = {37, 100, 10};
.global .align 1 .b8 other[4] = {37, 100, 10};
"""
CALL = """{
	.reg .b32 temp_param_reg;
	.param .b64 param0;
	st.param.b64 	[param0+0], %rd2;
	.param .b64 param1;
	st.param.b64 	[param1+0], 0;
	.param .b32 retval0;
	call.uni (retval0),
	vprintf,
	(
	param0,
	param1
	);
	ld.param.b32 	%r5, [retval0+0];
	}
"""
TAKE = "mov.u64 %rd1, $str; cvta.global.u64 %rd2, %rd1;"
PRINTS = TAKE + CALL
ALL = {"c", "n", "$str", "other"}


def free(text: str, step: int = 1 << 20) -> set[str]:
    uses = Uses()
    for begin in range(0, len(text), step):
        uses.take(text[begin : begin + step])
    uses.end()
    return uses.constants | uses.texts


def kernel(body: str) -> str:
    return f".visible .entry k()\n{{\n.reg .b64 %rd<9>;\n{body}\nret;\n}}\n"


@pytest.mark.parametrize("step", [1 << 20, 40, 1])
def test_what_is_used_as_compilers_do(step: int) -> None:
    body = "ld.const.f32 %f1, [c+12]; @%p1 ld.const.v4.f32 {%f1, %f2, %f3, %f4}, [c]; ld.const.u32 %r1, [n];" + PRINTS
    assert free(HEAD + kernel(body) * 2, step) == ALL


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("mov.u64 %rd3, c;", ""),
        ("mov.u64 %rd3, c; add.s64 %rd4, %rd3, %rd5; ld.const.f32 %f1, [%rd4+8]; ld.const.f32 %f1, [%rd3];", ""),
        ("mov.u64 %rd3, c; L: add.s64 %rd3, %rd3, 4; ld.const.v2.f32 {%f1, %f2}, [%rd3+-8]; bra L;", ""),
        ("mov.u64 %rd3, c; mov.u64 %rd4, %rd3; add.s64 %rd6, %rd5, %rd4; ld.const.f32 %f1, [%rd6];", ""),
        ("mov.u64 %rd3, c; mov.u64 %rd4, %rd3; add.s64 %rd6, %rd5, %rd4; st.global.u64 [%rd1], %rd6;", "c"),
        ("mov.u64 %rd3, c; st.global.u64 [%rd1], %rd3;", "c"),
        ("mov.u64 %rd3, c; ld.global.u64 %rd1, [%rd3];", "c"),
        ("mov.u64 %rd3, c; mov.u64 %rd4, n; sub.s64 %rd5, %rd4, %rd3;", "c n"),
        ("mov.u64 %rd3, c; mov.u64 %rd4, n; ld.const.u32 %r1, [%rd4]; st.param.b64 [param0], %rd3;", "c n"),
        ("mov.u64 %rd3, c; add.s64 %rd4, %rd3, %rd5; mov.u64 %rd4, 7; ld.const.f32 %f1, [%rd4];", "c"),
        ("mov.u64 %rd3, c; add.s64 %rd4, %rd3, %rd5; cvt.u32.u64 %r1, %rd4;", "c"),
        ("mov.b32 %r3, c;", "c"),
        ("cvta.const.u64 %rd3, c;", "c"),
        ("ld.const.f32 %f1, [c+%rd1];", "c"),
        ("ld.const.f32 %f1, [c-4];", "c"),
        ("ld.f32 %f1, [c];", "c"),
        ("cvta.const.u64 %rd3, c; st.global.u64 [%rd4], %rd3;", "c"),
        ("ld.const.f32 %f1, [n]; mov.u64 %rd3, n; st.local.u64 [%rd4], %rd3;", "n"),
        ("ld.global.u8 %r1, [$str];", "$str"),
        ("ld.const.u8 %r1, [$str];", "$str"),
        (PRINTS + "st.global.u64 [%rd4], %rd2;", "$str"),
        (PRINTS + "st.global.u64 [%rd4], %rd1;", "$str"),
        (PRINTS + "add.s64 %rd5, %rd2, 1;", "$str"),
        ("mov.u64 %rd1, other;" + PRINTS + "st.global.u64 [%rd4], %rd1;", "$str other"),
        (TAKE + "cvta.global.u64 %rd3, %rd2;" + CALL, "$str"),
        (TAKE + CALL.replace("vprintf", "mine"), "$str"),
        (TAKE + CALL.replace("ld.param.b32 \t%r5, [retval0+0];", "ld.param.b64 %rd6, [param0];"), "$str"),
        (TAKE + CALL.replace("}", "st.global.u64 [%rd4], %rd2; }"), "$str"),
        (PRINTS + "st.local.u64 [%rd4], %rd2;", ""),
        (PRINTS + "st.local.u64 [%rd4], %rd2; ld.local.u64 %rd5, [%rd4];", "$str"),
        (PRINTS + "st.local.u64 [%rd4], %rd2; ld.volatile.u64 %rd5, [%rd4];", "$str"),
        (PRINTS + "st.local.u64 [%rd4], %rd2; ld.volatile.global.u64 %rd5, [%rd4];", ""),
        (PRINTS + "st.local.u64 [%rd4], %rd2; call.uni mine, (param0);", "$str"),
        (PRINTS + ".global .u64 p = generic($str);", "$str"),
    ],
)
@pytest.mark.parametrize("step", [1 << 20, 7])
def test_other_uses(body: str, gone: str, step: int) -> None:
    assert free(HEAD + kernel(body), step) == ALL - set(gone.split())


@pytest.mark.parametrize(
    ("declaration", "gone"),
    [
        (".global .align 8 .u64 p[2] = {generic(c), 0};", "c"),
        (".const .align 8 .u64 p = n;", "n"),
        (".global .align 8 .u64 p = other+1;", "other"),
        (".func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b) { ret; }", "$str other"),
        (".section .debug_info { .b64 c }", "c"),
    ],
)
def test_declarations_that_keep_an_address(declaration: str, gone: str) -> None:
    assert free(HEAD + kernel(PRINTS) + declaration) - {"p"} == ALL - set(gone.split())


@pytest.mark.parametrize(
    "declaration",
    [
        ".visible .global .align 1 .b8 x[4] = {1, 2};",
        ".extern .global .align 1 .b8 x[4];",
        ".global .align 1 .b8 x[4];",
        ".global .align 4 .b32 x[4] = {1, 2};",
        ".global .align 8 .u64 x[1] = {f};",
        ".const[2] .align 4 .b8 x[4];",
        ".const .texref x;",
    ],
)
def test_what_is_neither_a_text_nor_a_constant(declaration: str) -> None:
    assert free(declaration + kernel("")) == set()


def test_registers_are_those_of_one_function() -> None:
    assert free(HEAD + kernel(PRINTS) + kernel("st.global.u64 [%rd1], %rd2;")) == ALL


def test_hostile_texts_take_no_time_that_grows_with_their_square() -> None:
    """Each of these takes a fraction of a second; the test would not end otherwise."""
    for text in (
        "{" * 200000,
        "mov.u64 %r, c; " * 50000,
        TAKE * 20000,
        "mov.u64 %r, c; mov.u64 %s, %r; add.s64 %r, %s, %s;" * 20000,
        "{ call " * 50000,
        ".const .align " * 50000,
        "ld.const.f32 {" * 50000,
    ):
        free(HEAD + kernel(text), 1 << 16)
