"""What the library asks of libc and what it offers: it must load wherever glibc is 2.28 or newer, and show CUDA's names and fairgv.h's only."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from cuda_api import refused, table

OLDEST_GLIBC = (2, 28)
TLS_MAX_BYTES = 512


@pytest.fixture
def elf(library: Path) -> Iterator[ELFFile]:
    with library.open("rb") as file:
        yield ELFFile(file)


def test_needs_no_newer_glibc(elf: ELFFile) -> None:
    section = elf.get_section_by_name(".gnu.version_r")
    assert isinstance(section, GNUVerNeedSection)
    names = [aux.name for _, versions in section.iter_versions() for aux in versions]
    assert names
    for name in names:
        version = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name)
        assert version is not None, name
        assert (int(version[1]), int(version[2])) <= OLDEST_GLIBC, name


def test_needs_libc_alone(elf: ELFFile) -> None:
    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    needed = [str(vars(tag)["needed"]) for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    assert set(needed) <= {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert [vars(tag)["soname"] for tag in section.iter_tags() if tag.entry.d_tag == "DT_SONAME"] == ["libcuda.so.1"]


def test_shows_the_calls_of_the_tables_alone(elf: ELFFile) -> None:
    section = elf.get_section_by_name(".dynsym")
    assert isinstance(section, SymbolTableSection)
    shown = {symbol.name for symbol in section.iter_symbols() if symbol.entry.st_shndx != "SHN_UNDEF"}
    prototypes = Path(__file__).parents[2] / "cuda_api" / "include" / "cuda_api" / "prototypes.h"
    wanted = set(re.findall(r"^FGV_EXPORT CUresult (\w+)\(", prototypes.read_text(), re.MULTILINE))
    assert len(wanted) > 200
    not_carried = {name for call in refused.read(table.read()).calls for name in call.symbols}
    header = Path(__file__).parents[2] / "frontend_guest" / "include" / "fairgv.h"
    own = set(re.findall(r"\bCUresult (fairgv_\w+)\(", header.read_text()))
    assert own
    assert shown == wanted | not_carried | own | {"cuGetProcAddress_v2_ptsz"}


def test_thread_local_storage_is_small(elf: ELFFile) -> None:
    (segment,) = [segment for segment in elf.iter_segments() if segment.header.p_type == "PT_TLS"]
    assert segment.header.p_memsz <= TLS_MAX_BYTES


def test_build_is_done_when_nothing_changed(library: Path) -> None:
    folder = Path(__file__).parents[2] / "frontend_guest"
    assert subprocess.run(["make", "-q", "-C", str(folder)], check=False).returncode == 0
