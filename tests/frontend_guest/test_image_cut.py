"""What of a fat binary the guest sends: of nvcc's, of made-up ones, and of damaged ones."""

import ctypes
import struct
import subprocess
from collections.abc import Callable, Iterator
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend_host.worker.images import may_print
from backend_host.worker.variants import text_of
from benchmarks.nvcc import find_nvcc
from cuda_api.fatbin import FatbinError, NoPtxError, parse, select_ptx
from cuda_api.ptx.variants import RunsWholeError
from tests.frontend_guest.conftest import PROGRAMS, ROOT, compile_program

PTX, ELF, LTO = 1, 2, 8
SPECIFIC, FAMILY, SINCE_100, UNKNOWN = 0x100000, 0x200000, 0x1000000, 0x4000000
MAGIC = 0xBA55ED50
PTX_9, PTX_8 = 0x90000, 0x80003
PAGE_BYTES = 4096
NR_PAGES = 64
KERNEL = """
#include <cstdio>
__global__ void add(int *n)
{
    *n += 1;
#if __CUDA_ARCH__ == 900
    printf("%d\\n", *n);
#endif
}
"""
DEVICES = (70, 75, 80, 86, 89, 90, 100, 103, 110, 120)

Cut = Callable[..., bytes]


def entry(kind: int, sm: int, flags: int = 0, content: bytes = b"content ", **changes: int) -> bytes:
    """An entry as nvcc lays it out; `changes` of what its header says."""
    says = {"version": 0x101, "header": 64, "stored": len(content), "language": PTX_9 if kind == PTX else 0x10008}
    says |= changes
    head = struct.pack("<HHIQII", kind, says["version"], says["header"], says["stored"], 0, 0)
    return head + struct.pack("<IIIIQQQ", says["language"], sm, 0, 0, 0x11 | flags, 0, 0) + content


def container(*entries: bytes, header_bytes: int = 16, version: int = 1) -> bytes:
    body = b"".join(entries)
    head = struct.pack("<IHHQ", MAGIC, version, header_bytes, len(body))
    return head.ljust(header_bytes, b"\0") + body


def kinds_of(image: bytes) -> list[tuple[int, int]]:
    return [(found.kind, found.sm) for found in parse(image).entries]


@pytest.fixture(scope="module")
def cut() -> Iterator[Cut]:
    """What the guest sends of a container to devices of these capabilities, from memory that ends where the container does."""
    path = compile_program("cut.so", [PROGRAMS / "cut.c", ROOT / "frontend_guest/code/image_cut.c"], "-shared", "-fPIC")
    function = ctypes.CDLL(str(path)).cut
    function.restype = c_uint64
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = c_void_p
    room = NR_PAGES * PAGE_BYTES
    base = libc.mmap(None, c_size_t(room + PAGE_BYTES), 3, 0x22, -1, c_size_t(0))
    assert libc.mprotect(c_void_p(base + room), c_size_t(PAGE_BYTES), 0) == 0
    sent = ctypes.create_string_buffer(room)

    def cut_it(image: bytes, *capabilities: int) -> bytes:
        ctypes.memmove(base + room - len(image), image, len(image))
        numbers = (c_uint32 * len(capabilities))(*capabilities)
        nr_bytes = function(c_void_p(base + room - len(image)), numbers, c_uint32(len(capabilities)), sent)
        return sent.raw[:nr_bytes] if nr_bytes else image

    yield cut_it
    assert libc.munmap(c_void_p(base), c_size_t(room + PAGE_BYTES)) == 0


# ---- what nvcc writes ----


@pytest.fixture(scope="module")
def compile_fatbin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "kernel.cu").write_text(KERNEL)

    def compile_it(*flags: str) -> bytes:
        codes = [
            "-gencode=arch=compute_75,code=[sm_75,compute_75]",
            "-gencode=arch=compute_80,code=[sm_80,sm_86]",
            "-gencode=arch=compute_90,code=[sm_90,compute_90]",
            "-gencode=arch=compute_90a,code=sm_90a",
            "-gencode=arch=compute_100f,code=sm_100f",
        ]
        command = [find_nvcc().path, "-fatbin", "--threads=2", *(flags or codes), "-o", "made", "kernel.cu"]
        subprocess.run(command, check=True, cwd=folder)
        return (folder / "made").read_bytes()

    return compile_it


@pytest.fixture(scope="module")
def real(compile_fatbin: Callable[..., bytes]) -> bytes:
    return compile_fatbin()


@pytest.mark.parametrize(
    ("device", "sent"),
    [
        (75, [(ELF, 75), (PTX, 75)]),
        (80, [(PTX, 75), (ELF, 80)]),
        (86, [(PTX, 75), (ELF, 80), (ELF, 86)]),
        (90, [(ELF, 90), (PTX, 90), (ELF, 90)]),
        (100, [(PTX, 90), (ELF, 100)]),
        (103, [(PTX, 90), (ELF, 100)]),
        (120, [(PTX, 90)]),
    ],
)
def test_a_device_gets_its_part(cut: Cut, real: bytes, device: int, sent: list[tuple[int, int]]) -> None:
    image = cut(real, device)
    assert kinds_of(image) == sent
    whole = {(found.kind, found.sm, found.flags): found for found in parse(real).entries}
    assert all(whole[found.kind, found.sm, found.flags] == found for found in parse(image).entries)
    assert cut(image, device) == image


def test_a_device_without_any_gets_all(cut: Cut, real: bytes) -> None:
    assert cut(real, 70) == real
    assert cut(real, 90, 70) == real
    assert cut(real) == real


def test_several_devices_get_what_any_of_them_uses(cut: Cut, real: bytes) -> None:
    assert kinds_of(cut(real, 75, 80)) == [(ELF, 75), (PTX, 75), (ELF, 80)]
    assert cut(real, 90, 90) == cut(real, 90)


def test_compressed_and_relocatable_entries_are_cut_alike(cut: Cut, compile_fatbin: Callable[..., bytes]) -> None:
    flags = ("-rdc=true", "-Xfatbin=-compress-all", "-gencode=arch=compute_80,code=[sm_80,lto_80]")
    image = compile_fatbin(*flags, "-gencode=arch=compute_90,code=[sm_90,lto_90,compute_90]")
    assert sorted(kinds_of(cut(image, 80))) == [(ELF, 80), (LTO, 80), (LTO, 90)]
    assert sorted(kinds_of(cut(image, 90))) == [(PTX, 90), (ELF, 90), (LTO, 80), (LTO, 90)]
    assert cut(image, 75) == image


@pytest.mark.parametrize("device", DEVICES)
def test_the_host_finds_the_same_in_it(cut: Cut, real: bytes, device: int) -> None:
    """Printing kernels, PTX for variants and why there is none: what is sent answers as the whole does."""
    image = cut(real, device)
    assert may_print(image, device) == may_print(real, device)
    assert _variant_text(image, device) == _variant_text(real, device)


def _variant_text(image: bytes, device: int) -> str:
    try:
        return text_of(image, device)
    except RunsWholeError as error:
        return error.reason.name
    except NoPtxError:
        return "no PTX"


# ---- the rules, one by one ----


def test_code_for_one_architecture_or_a_family(cut: Cut) -> None:
    image = container(
        entry(ELF, 90, SPECIFIC), entry(ELF, 100, SPECIFIC | SINCE_100), entry(ELF, 100, FAMILY | SINCE_100)
    )
    image = container(image[16:], entry(PTX, 90, SPECIFIC), entry(PTX, 75))
    assert kinds_of(cut(image, 90)) == [(ELF, 90), (PTX, 90)]
    assert kinds_of(cut(image, 100)) == [(ELF, 100), (ELF, 100), (PTX, 75)]
    assert kinds_of(cut(image, 103)) == [(ELF, 100), (PTX, 75)]
    assert kinds_of(cut(image, 120)) == [(PTX, 75)]


def test_ptx_of_another_version_of_the_language_stays(cut: Cut) -> None:
    image = container(entry(PTX, 75, language=PTX_8), entry(PTX, 80), entry(PTX, 86), entry(PTX, 120))
    assert kinds_of(cut(image, 90)) == [(PTX, 75), (PTX, 86)]


@pytest.mark.parametrize(
    "odd",
    [entry(LTO, 75), entry(0, 75), entry(ELF, 75, UNKNOWN), entry(PTX, 120, UNKNOWN), entry(ELF, 75, version=0x102)],
)
def test_what_is_not_understood_stays(cut: Cut, odd: bytes) -> None:
    image = container(entry(ELF, 75), odd, entry(ELF, 80), entry(ELF, 90), odd)
    assert cut(image, 90) == container(odd, entry(ELF, 90), odd)
    alone = container(odd, entry(ELF, 80))  # useless as far as one can know, so the driver has the word
    assert cut(alone, 90) == alone


@pytest.mark.parametrize(
    "image",
    [
        container(),
        container(entry(ELF, 75), entry(ELF, 90), header_bytes=24),
        container(entry(ELF, 75), entry(ELF, 90)[:63]),
        container(entry(ELF, 75), entry(ELF, 90)[:-1]),
        container(entry(ELF, 75), entry(ELF, 90, stored=9)),
        container(entry(ELF, 75), entry(ELF, 90, stored=2**64 - 64)),
        container(entry(ELF, 75), entry(ELF, 90, header=63)),
        container(entry(ELF, 75), entry(ELF, 90, header=0)),
        container(entry(ELF, 75), entry(ELF, 90, header=2**32 - 1)),
        container(entry(ELF, 75, stored=0), entry(ELF, 90)),
        container(entry(ELF, 75, stored=7), entry(ELF, 90)),
        container(entry(ELF, 75), entry(ELF, 90), b"\0"),
    ],
)
def test_a_container_that_does_not_add_up_goes_whole(cut: Cut, image: bytes) -> None:
    assert cut(image, 90) == image


def test_longer_headers_of_entries_go_along(cut: Cut) -> None:
    long = entry(ELF, 90, content=b"-options" * 2 + b"content ", header=80, stored=8)
    assert cut(container(entry(ELF, 75), long), 90) == container(long)


entries = st.builds(
    entry,
    st.sampled_from([PTX, ELF, LTO]),
    st.sampled_from(DEVICES),
    st.sampled_from([0, SPECIFIC, FAMILY, SINCE_100, SINCE_100 | FAMILY, UNKNOWN]),
    st.sampled_from([b"", b"content ", b"longer content  "]),
    language=st.sampled_from([PTX_8, PTX_9]),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.lists(entries, max_size=12), device=st.sampled_from(DEVICES))
def test_what_is_left_out_is_of_no_use(cut: Cut, made: list[bytes], device: int) -> None:
    whole = container(*made)
    image = cut(whole, device)
    before, after = parse(whole).entries, parse(image).entries
    left = list(after)
    gone = [found for found in before if not (left and found == left[0] and left.pop(0))]
    assert not left  # in the order in which they stood
    assert cut(image, device) == image
    for found in gone:
        runs = found.kind in (PTX, ELF) and found.runs_on(device)
        assert not found.flags & UNKNOWN and found.kind != LTO
        if found.kind == ELF:
            assert not (runs and found.sm // 10 == device // 10)
        else:
            assert not runs or any(
                newer.kind == PTX and newer.sm > found.sm and newer.runs_on(device) for newer in after
            )
    assert _selected(image, device) == _selected(whole, device)


def _selected(image: bytes, device: int) -> str | None:
    try:
        return select_ptx(image, device)
    except FatbinError:
        return None


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_container_is_read_no_further_than_it_goes(cut: Cut, data: st.DataObject) -> None:
    image = bytearray(container(entry(ELF, 75), entry(PTX, 75), entry(ELF, 90), entry(LTO, 90)))
    for _ in range(data.draw(st.integers(1, 6))):
        image[data.draw(st.integers(16, len(image) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from([0, 64, 255])
        )
    sent = cut(bytes(image), data.draw(st.sampled_from(DEVICES)))
    assert len(sent) <= len(image)
    assert struct.unpack_from("<Q", sent, 8)[0] == len(sent) - 16
