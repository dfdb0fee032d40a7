"""The table of driver calls: what it refuses, and whether its facts are the vendor's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cuda_api import layout, table
from cuda_api.c_types import Field
from cuda_api.prototype import PrototypeError, parse
from cuda_api.table import TableError

BASE = """
[cuStreamQuery]
number = 1
family = "stream"
c = "CUresult cuStreamQuery(CUstream hStream)"
since = 2000
per_thread = "_ptsz"
codec = "generated"
answer = "sync"
cost = "none"
order = "stream"
waits = "none"

[cuMemAlloc_v2]
number = 2
family = "memory"
c = "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)"
since = 3020
codec = "generated"
answer = "sync"
cost = "none"
order = "free"
waits = "none"
pointers = { dptr = "out" }

[cuLaunchKernel]
number = 3
family = "launch"
c = "CUresult cuLaunchKernel(CUfunction f, void **kernelParams)"
since = 4000
codec = "hand"
answer = "async"
cost = "compute"
order = "stream"
waits = "none"
wire = "uint64_t function; uint32_t grid[3]; uint32_t flags"
payload = true

[cuLaunchKernelEx]
number = 4
family = "launch"
c = "CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams)"
since = 11060
codec = "guest"
answer = "async"
through = ["cuLaunchKernel"]

[internal.blob_begin]
number = 0xF000
answer = "async"
cost = "none"
order = "free"
waits = "none"
wire = "uint64_t blob; uint64_t bytes"
"""


def test_the_example_is_accepted() -> None:
    calls = table.from_text(BASE).by_name
    assert calls["cuMemAlloc_v2"].base_name == "cuMemAlloc"
    assert calls["cuMemAlloc_v2"].request.size_bytes == 8
    assert calls["cuMemAlloc_v2"].reply.offset("dptr") == 0
    assert calls["cuLaunchKernel"].request.size_bytes == 24
    assert calls["cuStreamQuery"].handle_offset("CUstream") == 0
    assert not calls["cuLaunchKernelEx"].has_record


def test_who_lends_a_context() -> None:
    def lending(name: str, text: str = BASE) -> str | None:
        lender = table.from_text(text).by_name[name].lending()
        return lender.name if lender else None

    assert lending("cuStreamQuery") == "hStream"
    assert lending("cuLaunchKernel") == "f"
    assert lending("cuLaunchKernelEx") == "config"
    assert lending("cuMemAlloc_v2") is None
    assert lending("cuLaunchKernel", BASE.replace("payload = true", 'payload = true\nlender = "none"')) is None
    assert lending("cuStreamQuery", BASE.replace('waits = "none"', 'waits = "none"\ncontextless = true', 1)) is None
    freed = BASE.replace("CUdeviceptr *dptr", "CUdeviceptr dptr").replace(
        'pointers = { dptr = "out" }', 'lender = "dptr"'
    )
    assert lending("cuMemAlloc_v2", freed) == "dptr"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('pointers = { dptr = "out" }', "", "cuMemAlloc_v2: parameter dptr: a pointer without a rule"),
        ('{ dptr = "out" }', '{ dptr = "uot" }', "cuMemAlloc_v2: parameter dptr: 'uot' is no rule"),
        ('{ dptr = "out" }', '{ dptr = "out", size = "in" }', "parameter size: pointers names a parameter that is not"),
        ('{ dptr = "out" }', '{ dptr = "out", bytesize = "in" }', "parameter bytesize: rule 'in' on something"),
        ('{ dptr = "out" }', '{ dptr = "new" }', "parameter dptr: a CUdeviceptr is no handle"),
        ("CUdeviceptr *dptr", "CUmystery *dptr", "parameter dptr: nobody knows how a CUmystery travels"),
        ("CUdeviceptr *dptr", "CUdeviceptr **dptr", "parameter dptr: a pointer to a pointer"),
        ("CUdeviceptr *dptr", "const CUdeviceptr *dptr", "parameter dptr: rule 'out' on a pointer to const"),
        ("size_t bytesize", "CUmystery bytesize", "parameter bytesize: nobody knows how a CUmystery travels"),
        ("(CUstream hStream)", "(CUstream hStream, ...)", "cuStreamQuery: not a parameter"),
        (
            "cuStreamQuery(CUstream hStream)",
            "cuStreamQwery(CUstream hStream)",
            "the prototype is that of cuStreamQwery",
        ),
        ('codec = "guest"', 'codec = "guset"', "cuLaunchKernelEx: codec = 'guset' is none of generated, hand"),
        ('cost = "compute"', 'cost = "computing"', "cuLaunchKernel: cost = 'computing' is none of"),
        ('order = "stream"\nwaits = "none"\nwire', 'order = "free"\nwaits = "none"\nwire', "needs order 'stream'"),
        ("payload = true", "paylaod = true", "cuLaunchKernel: 'paylaod' means nothing"),
        ("payload = true", 'payload = "yes"', "cuLaunchKernel: payload = 'yes' is not a bool"),
        ("payload = true", 'reply = "uint64_t x"', "cuLaunchKernel: answer 'async', and yet there is a reply"),
        ("payload = true", 'lender = "g"', "cuLaunchKernel: lender: parameter g: neither a handle of something"),
        ("payload = true", 'lender = "kernelParams"', "cuLaunchKernel: lender: parameter kernelParams: neither"),
        ("payload = true", "hook = true", "cuLaunchKernel: 'hook' means nothing for codec 'hand'"),
        ("payload = true", "before = true", "cuLaunchKernel: 'before' means nothing for codec 'hand'"),
        ("payload = true", "unsafe = true", "cuLaunchKernel: 'unsafe' means nothing for codec 'hand'"),
        ("uint32_t flags", "uint32_t flags; uint32_t more", "wire: 28 bytes are no multiple of 8"),
        ("uint64_t function; uint32_t grid[3]", "uint32_t grid[3]; uint64_t function", "wire: function at offset 12"),
        ("uint32_t flags", "size_t flags", "wire: not a member of a wire struct: 'size_t flags'"),
        ("number = 2", "number = 3", "number 3 is that of"),
        ("number = 2", "number = 0", "cuMemAlloc_v2: number 0 is not in 1 .. 61439"),
        ("number = 0xF000", "number = 7", "internal.blob_begin: number 7 is not in"),
        ("since = 3020", "", "cuMemAlloc_v2: 'since' is missing"),
        ('through = ["cuLaunchKernel"]', 'through = ["cuLaunch"]', "cuLaunchKernelEx: through: cuLaunch has no record"),
        (
            'answer = "sync"\ncost = "none"\norder = "free"',
            'answer = "local"\ncost = "none"\norder = "free"',
            "no record",
        ),
        ('{ dptr = "out" }', '{ dptr = "out" }\ndestroys = "bytesize"', "destroys: parameter bytesize: not a handle"),
        ('{ dptr = "out" }', '{ dptr = "out" }\nsettles = "dptr"', "settles: parameter dptr: not a device address"),
        (
            '{ dptr = "out" }',
            '{ dptr = "out" }\nallowed = { bytesize = "0..3" }',
            "bytesize: allowed is for enumerations",
        ),
        (
            '{ dptr = "out" }',
            '{ dptr = "out" }\ndoubtful = { bytesize = "1" }',
            "bytesize: doubtful is for enumerations",
        ),
        ('{ dptr = "out" }', '{ dptr = "out" }\nwithin = { dptr = "1 bytesize" }', "that nobody waits for otherwise"),
        ('{ dptr = "out" }', '{ dptr = "out" }\nwithin = { size = "1 bytesize" }', "within names a parameter"),
        ('{ dptr = "out" }', '{ dptr = "out" }\nwaits2 = "none"', "cuMemAlloc_v2: 'waits2' means nothing"),
        ('{ dptr = "out" }', '{ dptr = "out" }\nper_thread = "_ptsz"', "per_thread '_ptsz' without a stream"),
        ('{ dptr = "out" }', '{ dptr = "out" }\nper_thread = "_ptds"', "per_thread_async is for codec 'guest'"),
        ('order = "free"\nwaits = "none"\npointers', 'order = "free"\nwaits = "stream"\npointers', "without a stream"),
    ],
)
def test_a_mistake_stops_generation_with_its_place(old: str, new: str, message: str) -> None:
    assert BASE.count(old) >= 1
    with pytest.raises(TableError, match=re.escape(message)):
        table.from_text(BASE.replace(old, new))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("3 N", "not a device address and the bytes of an element"),
        ("1", "not a width"),
        ("1 uc", "not a width"),
        ("1 M", "not a width"),
        ("1 N N", "not a width, or a width, a height and a pitch"),
    ],
)
def test_what_a_call_reaches_is_named_by_its_sizes(words: str, message: str) -> None:
    entry = '[cuMemsetD8]\nnumber = 9\nfamily = "memory"\nsince = 2000\ncodec = "generated"\nanswer = "async"\n'
    entry += 'c = "CUresult cuMemsetD8(CUdeviceptr d, unsigned char uc, size_t N)"\n'
    entry += 'cost = "none"\norder = "free"\nwaits = "none"\nwithin = { d = "WORDS" }\n'
    assert table.from_text(BASE + entry.replace("WORDS", "1 N")).by_name["cuMemsetD8"].within == {"d": ("1", "N")}
    assert table.from_text(BASE + entry.replace("WORDS", "8")).by_name["cuMemsetD8"].within == {"d": ("8",)}
    with pytest.raises(TableError, match=re.escape(message)):
        table.from_text(BASE + entry.replace("WORDS", words))


def test_an_alias_has_the_parameters_of_its_call() -> None:
    alias = '[cuStreamQuery_v2]\nnumber = 9\nfamily = "stream"\nsince = 9000\ncodec = "alias"\nof = "cuStreamQuery"\n'
    good = alias + 'c = "CUresult cuStreamQuery_v2(CUstream s)"\n'
    assert table.from_text(BASE + good).by_name["cuStreamQuery_v2"].of == "cuStreamQuery"
    with pytest.raises(TableError, match="no call with the same parameters"):
        table.from_text(BASE + good.replace("CUstream s", "CUevent e"))


def test_two_symbols_of_one_name_came_at_different_times() -> None:
    other = BASE.replace("[cuStreamQuery]", "[cuMemAlloc]").replace("cuStreamQuery(", "cuMemAlloc(")
    with pytest.raises(TableError, match="since 3020 is that of"):
        table.from_text(other.replace("since = 2000", "since = 3020"))


def test_any_fact_changes_the_hash_and_a_heading_does_not() -> None:
    before = table.from_text(BASE).hash
    assert table.from_text(BASE.replace("since = 4000", "since = 4010")).hash != before
    assert table.from_text(BASE.replace("uint32_t flags", "uint32_t flag")).hash != before
    assert table.from_text(BASE.replace("uint64_t bytes", "int64_t bytes")).hash != before
    assert table.from_text(BASE.replace('family = "memory"', 'family = "other"')).hash == before
    assert table.from_text(BASE + "# a comment\n").hash == before


@pytest.mark.parametrize(
    "text",
    [
        "int cuInit(void)",
        "CUresult cuInit(unsigned int)",
        "CUresult cuInit(int a[3])",
        "CUresult cuInit(int a, int a)",
        "",
    ],
)
def test_what_is_no_prototype_is_refused(text: str) -> None:
    with pytest.raises(PrototypeError):
        parse(text)


def test_prototypes_survive_a_round_trip() -> None:
    for call in table.read().symbols:
        assert call.prototype is not None
        assert parse(call.prototype.declaration()) == call.prototype


def test_padding_is_explicit() -> None:
    struct = layout.lay_out([Field("a", "uint8_t"), Field("b", "uint64_t"), Field("c", "uint16_t", 3)])
    assert [(offset, field.name) for offset, field in struct.fields] == [
        (0, "a"),
        (1, "padding_1"),
        (8, "b"),
        (16, "c"),
        (22, "padding_22"),
    ]
    assert struct.size_bytes == 24


def _compile(source: str, tmp_path: Path, include: Path) -> None:
    file = tmp_path / "check.c"
    file.write_text(source)
    result = subprocess.run(
        ["cc", "-std=c11", "-fsyntax-only", "-Werror", f"-I{include}", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[:4000]


def test_prototypes_are_the_vendors(tmp_path: Path, cuda_include: Path) -> None:
    """A second declaration that differs from the vendor's does not compile; the pointers prove that there is a first one."""
    lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cuda.h>", "#include <cudaProfiler.h>"]
    for call in table.read().symbols:
        assert call.prototype is not None
        for name in (call.name, call.name + call.per_thread) if call.per_thread else (call.name,):
            lines += [f"__typeof__({name}) *exists_{name};", f"{call.prototype.declaration(name)};"]
    _compile("\n".join(lines) + "\n", tmp_path, cuda_include)


def test_versions_are_the_vendors(tmp_path: Path, cuda_include: Path) -> None:
    """cudaTypedefs.h has a type PFN_<base>_v<since> for each symbol; ours must fit it."""
    lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cuda.h>", "#include <cudaProfiler.h>"]
    lines += ["#include <cudaTypedefs.h>", "#include <cudaProfilerTypedefs.h>"]
    for call in table.read().symbols:
        lines.append(f"PFN_{call.base_name}_v{call.since} check_{call.name} = {call.name};")
        if call.per_thread:
            twin, since = call.name + call.per_thread, max(call.since, 7000)
            lines.append(f"PFN_{call.base_name}_v{since}{call.per_thread} check_{twin} = {twin};")
    _compile("\n".join(lines) + "\n", tmp_path, cuda_include)


def test_the_newest_version_of_each_name_is_there(cuda_include: Path) -> None:
    typedefs = (cuda_include / "cudaTypedefs.h").read_text()
    vendors: dict[str, int] = {}
    for name, version in re.findall(r"\*PFN_(cu\w+?)_v(\d+)\)", typedefs):
        vendors[name] = max(vendors.get(name, 0), int(version))
    ours: dict[str, int] = {}
    for call in table.read().symbols:
        ours[call.base_name] = max(ours.get(call.base_name, 0), call.since)
    assert {name: version for name, version in ours.items() if vendors.get(name, version) != version} == {}
    twins = set(re.findall(r"\*PFN_(cu\w+?)_v\d+_pt[ds][sz]\)", typedefs))
    assert {call.base_name for call in table.read().symbols if call.per_thread} == twins & set(ours)
