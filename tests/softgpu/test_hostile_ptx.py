"""PTX that was written to hurt whoever reads it: an error of the text, in little time and memory, whatever it is."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_api.ptx import PtxSyntaxError, format_module, parse
from softgpu.compiler.base.errors import CompileError
from softgpu.compiler.command import llvm_text
from tests.softgpu.driver_harness import ROOT

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
MANY = 20_000
BODY = HEAD + ".visible .entry k()\n{{\n.reg .b32 %r<3>;\n{}\nret;\n}}\n"

SYNTAX = {
    "blocks": BODY.format("{" * MANY + "}" * MANY),
    "parentheses": BODY.format("mov.b32 %r1, " + "(" * MANY + "1" + ")" * MANY + ";"),
    "signs": BODY.format("mov.b32 %r1, " + "- " * MANY + "1;"),
    "conditions": HEAD + ".global .b32 g = " + "1 ? " * MANY + "1" + ": 1" * MANY + ";",
    "vectors": BODY.format("mov.b32 " + "{" * MANY + "%r1" + "}" * MANY + ", 1;"),
    "addresses": BODY.format("ld.b32 %r1, " + "[1, " * MANY + "%r1" + "]" * MANY + ";"),
    "arguments": BODY.format("call f, " + "(" * MANY + "%r1" + ")" * MANY + ";"),
    "initialisers": HEAD + ".global .b32 g[2] = " + "{" * MANY + "1" + "}" * MANY + ";",
    "digits": HEAD + ".global .b32 g = " + "9" * 5000 + ";",
    "digits of an offset": BODY.format("ld.b32 %r1, [%r2+" + "9" * 5000 + "];"),
    "digits of a register": BODY.format(".reg .b32 %q<" + "9" * 5000 + ">;"),
    "octal": HEAD + ".global .b32 g = 0" + "7" * 5000 + ";",
    "a product": HEAD + ".global .b64 g = " + "*".join(["0xffffffffffffffff"] * MANY) + ";",
    "less than nothing": HEAD + ".global .b32 g[0-5];",
    "a comment without an end": HEAD + "/*" * 200_000,
    "not ASCII": HEAD + ".global .b32 \u0663 = \u0664;",
    "version": ".version " + "9" * 5000 + ".0\n.target sm_80\n",
}
COMPILED = {
    "a target that is no number": HEAD.replace("sm_80", "sm_eighty"),
    "digits of a target": HEAD.replace("sm_80", "sm_" + "8" * 5000),
    "a large array": HEAD + ".global .b8 x[" + "][".join(["4294967296"] * 9) + "];",
    "large arrays": HEAD + "".join(f".global .b8 x{i}[8796093022208];\n" for i in range(9)),
}
FITS = {
    "a double as a float": HEAD + ".global .f32 x = 1e300;",
    "an offset beyond": HEAD + ".global .b8 y[4]; .global .b64 x = y-100;",
    "a mask of nothing": HEAD + ".func f() { ret; } .global .b8 x = 0(f);",
    "large, and zeros": HEAD + ".global .b8 x[4294967296]; .global .b32 y = 7;",
}


@pytest.mark.parametrize("name", SYNTAX)
def test_a_syntax_error(name: str) -> None:
    with pytest.raises(PtxSyntaxError):
        parse(SYNTAX[name])


@pytest.mark.parametrize("name", COMPILED)
def test_an_error_of_the_compiler(name: str) -> None:
    with pytest.raises(CompileError):
        llvm_text(COMPILED[name])


@pytest.mark.parametrize("name", FITS)
def test_what_compiles(name: str) -> None:
    assert len(llvm_text(FITS[name])) < 100_000


@pytest.mark.parametrize("name", ["blocks", "digits", "a large array"])
def test_the_compiler_says_what_is_wrong(name: str, tmp_path: Path) -> None:
    """In the words from which the driver takes its error: a traceback would have none."""
    (tmp_path / "image").write_text({**SYNTAX, **COMPILED}[name])
    command = [sys.executable, "-m", "softgpu.compiler", "--capability", "80", "--output", str(tmp_path / "out.so")]
    done = subprocess.run(
        [*command, "--image", str(tmp_path / "image")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("softgpu: CUDA_ERROR_")


WORDS = [
    *"{}()[]<>,;:@!|+-*/%&^~=?",
    "<<",
    ".global",
    ".reg",
    ".param",
    ".func",
    ".entry",
    ".b32",
    ".f64",
    ".v4",
    "x",
    "%r<9>",
    "0x7fffffffffffffff",
]
WORDS += [
    "ld.b32",
    "mov",
    "call",
    "generic",
    ".align",
    "1e999",
    "0d7ff0000000000001",
    ".callprototype",
    "_",
    "$l",
    ".attribute",
    ".ptr",
    '"a"',
    "9" * 4400,
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.booleans())
def test_any_words(words: list[str], is_body: bool) -> None:
    text = " ".join(words)
    try:
        module = parse(BODY.format(text) if is_body else HEAD + text)
    except PtxSyntaxError:
        return
    assert parse(format_module(module)) == module
