"""Sections and symbols of machine code, held against what another reader of ELF files finds."""

import io
import subprocess
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from benchmarks.nvcc import find_nvcc
from cuda_api.cubin import CubinError, Section, are_apart, bytes_of, name_at, sections, symbols

SOURCE = "__device__ int v[9]; __constant__ int c[3]; __global__ void k(int *o) { *o = v[*o] + c[1]; }"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "k.cu").write_text(SOURCE)
    subprocess.run([str(find_nvcc().path), "-cubin", "-arch=sm_90", "-o", "k.cubin", "k.cu"], check=True, cwd=folder)
    return (folder / "k.cubin").read_bytes()


def theirs(content: bytes, name: str) -> Any:
    """The section of this name, as pyelftools reads it."""
    return ELFFile(io.BytesIO(content)).get_section_by_name(name)


def named(content: bytes, name: bytes) -> Section:
    return next(section for section in sections(content) if name_at(content, section.name_at) == name)


def test_sections_and_symbols_are_those_of_the_file(content: bytes) -> None:
    table = sections(content)
    assert [(name_at(content, s.name_at).decode(), s.offset, s.nr_bytes, s.info) for s in table] == [
        (s.name, s["sh_offset"], s["sh_size"], s["sh_info"]) for s in ELFFile(io.BytesIO(content)).iter_sections()
    ]
    found = list(symbols(content, table))
    others = theirs(content, ".symtab").iter_symbols()
    assert [(s.value, s.nr_bytes) for s in found] == [(s["st_value"], s["st_size"]) for s in others]
    kinds = {name_at(content, s.name_at): (s.kind, table[s.section], s.nr_bytes) for s in found}
    assert kinds[b"v"] == (1, named(content, b".nv.global"), 36)
    assert kinds[b"c"] == (1, named(content, b".nv.constant3"), 12)
    assert kinds[b"_Z1kPi"][0] == 2


def test_bytes_of_a_section(content: bytes) -> None:
    code = named(content, b".text._Z1kPi")
    assert bytes_of(content, code) == theirs(content, ".text._Z1kPi").data()
    with pytest.raises(CubinError):
        bytes_of(content, named(content, b".nv.global"))  # of which the file has none
    with pytest.raises(CubinError):
        bytes_of(content[: code.offset + 8], code)


def test_sections_of_a_compiler_are_apart(content: bytes) -> None:
    table = [section for section in sections(content) if section.kind != 8]
    assert are_apart(content, table)
    assert not are_apart(content, table * 100)


def test_a_file_cut_short_has_no_table(content: bytes) -> None:
    for nr_bytes in (0, 3, 4, 63, 64, len(content) // 2):
        with pytest.raises(CubinError):
            list(symbols(content[:nr_bytes], sections(content[:nr_bytes])))


def test_names_that_have_no_end_come_cut() -> None:
    assert name_at(b"abc\0def", 0) == b"abc"
    assert name_at(b"abc\0def", 4) == b"def"
    assert name_at(b"abcdef", 1, 3) == b"bcd"
    assert name_at(b"abc", 1 << 70) == b""
