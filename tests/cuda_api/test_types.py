"""Our types against the vendor's: one small program, compiled once with each header, must print the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "cuda_api" / "include"
HEADERS = INCLUDE / "cuda_api"


def _enumerators() -> list[str]:
    names = re.findall(r"^ +(C[A-Z0-9]\w+) = ", (HEADERS / "enums.h").read_text(), re.MULTILINE)
    names += re.findall(r"^ +(CU_\w+) = ", (HEADERS / "device_attributes.h").read_text(), re.MULTILINE)
    names += re.findall(r"^ +X\((\w+),", (HEADERS / "results.h").read_text(), re.MULTILINE)
    return names


def _constants() -> list[str]:
    return re.findall(r"^#define (CU_\w+)", (HEADERS / "types.h").read_text(), re.MULTILINE)


def _types() -> list[str]:
    texts = "".join((HEADERS / name).read_text() for name in ("types.h", "enums.h", "device_attributes.h"))
    named = re.findall(r"^} (C\w+);", texts, re.MULTILINE)
    return [*named, *re.findall(r"^typedef [\w ]+[ *](CU\w+);", texts, re.MULTILINE), "CUresult"]


def _members_of(body: str, indent: str) -> Iterator[str]:
    inner_struct = re.compile(rf"^{indent}(?:struct|union) {{\n(.*?)^{indent}}} (\w+);", re.MULTILINE | re.DOTALL)
    for inner, name in inner_struct.findall(body):
        yield from (f"{name}.{member}" for member in _members_of(inner, indent + "    "))
    yield from re.findall(r"(\w+)(?:\[[^\]]+\])?;", inner_struct.sub(r"    inner \2;", body))


def _members() -> list[tuple[str, str]]:
    """(type, member) of every struct and union; members of unnamed inner structs by their path."""
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / "types.h").read_text(), flags=re.DOTALL)
    structs = re.findall(r"^typedef (?:struct|union) \w+ {\n(.*?)^} (\w+);", text, re.MULTILINE | re.DOTALL)
    return [(name, member) for body, name in structs for member in _members_of(body, "    ")]


def _program() -> str:
    lines = ["#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    lines += [f'    printf("{name} %lld\\n", (long long)(size_t){name});' for name in [*_enumerators(), *_constants()]]
    lines += [f'    printf("{name} %zu\\n", sizeof({name}));' for name in _types()]
    lines += [
        f'    printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));'
        for name, member in _members()
    ]
    return "\n".join([*lines, "    return 0;", "}", ""])


def _output(folder: Path, header: str, include: Path) -> list[str]:
    source = folder / "print.c"
    source.write_text(f'#include "{header}"\n{_program()}')
    subprocess.run(["cc", "-std=c11", f"-I{include}", "-o", folder / "print", source], check=True)
    return subprocess.run([folder / "print"], check=True, capture_output=True, text=True).stdout.splitlines()


def test_values_sizes_and_offsets_are_the_vendors(tmp_path: Path, cuda_include: Path) -> None:
    assert len(_enumerators()) > 500
    assert ("CUlaunchAttributeValue", "clusterDim.y") in _members()
    assert ("CUDA_MEMCPY3D", "Depth") in _members()
    assert ("CUmemcpy3DOperand", "op.array.offset") in _members()
    assert _output(tmp_path, "cuda_api/types.h", INCLUDE) == _output(tmp_path, "cuda.h", cuda_include)


@pytest.mark.parametrize("name", ["CUresult", "CUdevice_attribute", "CUfunction_attribute", "CUlimit", "CUjit_option"])
def test_no_enumerator_is_missing(name: str, cuda_include: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", (cuda_include / "cuda.h").read_text(), flags=re.DOTALL)
    body = re.search(rf"typedef enum \w+\s*{{([^}}]*)}} {name};", text)
    assert body is not None
    assert set(re.findall(r"^\s*(CU\w+)", body[1], re.MULTILINE)) <= set(_enumerators())


def test_the_header_stands_alone_and_is_strict_c11() -> None:
    command = [
        "cc",
        "-std=c11",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        f"-I{INCLUDE}",
        "-x",
        "c",
        "-",
    ]
    subprocess.run(command, input='#include "cuda_api/types.h"\n', text=True, check=True)
