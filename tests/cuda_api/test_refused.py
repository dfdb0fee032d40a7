"""Every name that CUDA's headers declare is there: for the linker, for dlsym() and for cuGetProcAddress of each version."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from cuda_api import refused, table
from cuda_api.table import TableError

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "build" / "guest" / "libcuda.so.1"
HEADERS = ("cuda", "cudaGL", "cudaEGL", "cudaVDPAU", "cudaProfiler")
NOT_SUPPORTED, INVALID_VALUE = 801, 1
LEGACY, PER_THREAD = 1, 2
FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2


@cache
def exported() -> frozenset[str]:
    names = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    return frozenset(line.split()[-1] for line in names.splitlines())


@cache
def refused_symbols() -> frozenset[str]:
    return frozenset(name for call in refused.read(table.read()).calls for name in call.symbols)


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))


def address(symbol: str) -> int | None:
    return ctypes.cast(getattr(library(), symbol), ctypes.c_void_p).value


def ask(name: str, version: int, flags: int = LEGACY) -> tuple[int | None, int]:
    """What cuGetProcAddress gives, and the status."""
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    assert (
        library().cuGetProcAddress_v2(
            name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), ctypes.byref(status)
        )
        == 0
    )
    return found.value, status.value


def declared(cuda_include: Path) -> set[str]:
    """Symbols: what is declared, also for older programs, what a macro renames a call to, and the per-thread twins."""
    names = set()
    for header in HEADERS:
        text = (cuda_include / f"{header}.h").read_text(errors="replace")
        names |= set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
        names |= set(re.findall(r"#\s*define\s+cu[A-Z]\w+\s+(cu[A-Z]\w+)\s*$", text, re.MULTILINE))
        for kind, name in re.findall(r"#\s*define\s+cu\w+\s+__CUDA_API_PT(DS|SZ)\((\w+)\)", text):
            names |= {name, f"{name}_pt{kind.lower()}"}
    return names


def versions(cuda_include: Path) -> Mapping[str, set[tuple[int, str]]]:
    """Base name -> the versions at which another symbol began to stand for it, and the suffix of a twin."""
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for header in HEADERS:
        text = (cuda_include / f"{header}Typedefs.h").read_text()
        for name, since, twin in re.findall(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
            found[name].add((int(since), twin))
    return found


def test_all_that_the_headers_declare_is_exported(cuda_include: Path) -> None:
    names = declared(cuda_include)
    assert len(names) > 600
    assert names - exported() == set()


def test_every_version_of_a_name_is_found(cuda_include: Path) -> None:
    """The n-th version of a name is the symbol with _vn. What is carried has another address inside the library (exports.c), one each."""
    nr_looked_up = 0
    for name, entries in versions(cuda_include).items():
        ages = [since for since, twin in entries if not twin]
        found = {(since, twin): ask(name, since, PER_THREAD if twin else LEGACY) for since, twin in entries}
        for (since, twin), (at, status) in found.items():
            order = sum(age <= since for age in ages)
            symbol = (name if order == 1 else f"{name}_v{order}") + twin
            assert status == FOUND, (name, since, twin)
            assert (at == address(symbol)) == (symbol in refused_symbols()), symbol
            nr_looked_up += 1
        assert len({at for at, _ in found.values()}) == len(found), name
    assert nr_looked_up > 600


def test_a_program_older_than_a_name_does_not_get_it() -> None:
    assert ask("cuMulticastCreate", 12000) == (None, TOO_OLD)
    assert ask("cuMulticastCreate", 12010)[1] == FOUND


def test_an_old_form_stands_for_the_per_thread_stream_where_the_newer_has_no_twin() -> None:
    """As on an H200: memory has no stream, copies have one."""
    assert ask("cuMemAlloc", 2000, PER_THREAD) == ask("cuMemAlloc", 2000, LEGACY)
    assert ask("cuMemcpyHtoD", 2000, PER_THREAD) == (None, TOO_OLD)
    assert ask("cuMemcpyHtoD", 2000, LEGACY)[1] == FOUND


def test_a_name_newer_than_the_driver_is_not_found_but_there() -> None:
    version = ctypes.c_int()
    assert library().cuDriverGetVersion(ctypes.byref(version)) == 0
    assert version.value < 13010
    assert ask("cuDevSmResourceSplit", 13010) == (None, NOT_FOUND)
    assert "cuDevSmResourceSplit" in exported()


def test_they_say_no() -> None:
    assert library().cuGLInit() == NOT_SUPPORTED
    assert library().cuTexRefCreate(ctypes.c_void_p(8)) == NOT_SUPPORTED
    assert library().cuArrayGetPlane(ctypes.c_void_p(8), None, 0) == INVALID_VALUE


def test_programs_for_the_per_thread_stream_get_its_twins() -> None:
    found = ctypes.c_void_p()
    for flags in (0, LEGACY, PER_THREAD):
        arguments = (b"cuLaunchKernel", ctypes.byref(found), 12000, ctypes.c_uint64(flags), None)
        assert library().cuGetProcAddress_v2_ptsz(*arguments) == 0
        assert found.value == ask("cuLaunchKernel", 12000, flags or PER_THREAD)[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[x", "no TOML"),
        ('[x]\nabout = ""\ncalls = []', "needs about, calls, result"),
        ('[x]\nabout = ""\nresult = "NO"\ncalls = []', "is no error"),
        ('[x]\nabout = ""\nresult = "CUDA_ERROR_UNKNOWN"\ncalls = ["cuX"]', "is not"),
        ('[x]\nabout = ""\nresult = "CUDA_ERROR_UNKNOWN"\ncalls = ["cuX 2000", "cuX 3000"]', "stands twice"),
        ('[x]\nabout = ""\nresult = "CUDA_ERROR_UNKNOWN"\ncalls = ["cuInit 2000"]', "or is carried"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, why: str) -> None:
    with pytest.raises(TableError, match=why):
        refused.from_text(table.read(), text)
