"""The fat binary container against what nvcc writes, against entries made here (LZ4), and against damage."""

import ctypes
import re
import struct
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path

import lz4.block
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.nvcc import find_nvcc
from cuda_api import fatbin
from cuda_api.fatbin import EntryFlags, EntryKind, FatbinError, NoPtxError
from tests.cuda_api.wheels import library as library_of
from tests.cuda_api.wheels import unpacked

ROOT = Path(__file__).resolve().parents[2]
PTX = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry kernel() { ret; }\n"
INVALID_VALUE = 1
INVALID_IMAGE = 200
FATBIN, ELF, TEXT = 1, 2, 3
WRAPPER_MAGIC = 0x466243B1

KERNEL = """
__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
"""


def entry_bytes(
    content: bytes,
    *,
    kind: int = EntryKind.PTX,
    sm: int = 75,
    flags: int = 0x11,
    unpacked_bytes: int = 0,
    padding: int = 0,
) -> bytes:
    header = struct.pack(
        "<HHIQIIIIQQQQ", kind, 0x101, 64, len(content) + padding, len(content), 0, 0, sm, 0, flags, 0, unpacked_bytes
    )
    return header + content + bytes(padding)


def lz4_entry(content: bytes, **changes: int) -> bytes:
    packed = lz4.block.compress(content, store_size=False)
    arguments = {"flags": 0x2011, "unpacked_bytes": len(content), "padding": -len(packed) % 8, **changes}
    return entry_bytes(packed, **arguments)


def zstd_entry(content: bytes, **changes: int) -> bytes:
    packed = zstandard.ZstdCompressor().compress(content)
    return entry_bytes(packed, **{"flags": 0x8011, "unpacked_bytes": len(content), **changes})


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", fatbin.HEADER_MAGIC, 1, 16, len(body)) + body


def only_payload(*entries: bytes) -> bytes:
    (entry,) = fatbin.parse(container(*entries)).entries
    return entry.payload()


Compile = Callable[..., bytes]


@pytest.fixture(scope="module")
def compile_fatbin(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("fatbin")
    source = folder / "kernel.cu"
    source.write_text(KERNEL)

    def compile_it(*flags: str, kind: str = "-fatbin") -> bytes:
        output = folder / "output"
        subprocess.run([find_nvcc().path, kind, *flags, "-o", output, source], check=True)
        return output.read_bytes()

    return compile_it


@pytest.fixture(scope="module")
def real(compile_fatbin: Compile) -> bytes:
    return compile_fatbin(
        "-gencode=arch=compute_75,code=[compute_75,sm_75]", "-gencode=arch=compute_90,code=compute_90"
    )


@pytest.fixture(scope="module")
def cubin(compile_fatbin: Compile) -> bytes:
    return compile_fatbin("-arch=sm_90", kind="-cubin")


# ---- what nvcc writes ----


def test_nvccs_container_has_its_entries(real: bytes) -> None:
    entries = fatbin.parse(real).entries
    assert [(entry.kind, entry.sm) for entry in entries] == [
        (EntryKind.PTX, 75),
        (EntryKind.ELF, 75),
        (EntryKind.PTX, 90),
    ]
    assert all(EntryFlags.BITS_64 | EntryFlags.LINUX in entry.flags for entry in entries)
    assert entries[1].payload().startswith(fatbin.ELF_MAGIC)
    for entry in (entries[0], entries[2]):
        assert entry.flags & EntryFlags.ZSTD
        assert f".target sm_{entry.sm}".encode() in entry.payload()


def test_uncompressed_entries_are_read_too(compile_fatbin: Compile) -> None:
    image = compile_fatbin("-gencode=arch=compute_75,code=compute_75", "-no-compress")
    (entry,) = fatbin.parse(image).entries
    assert not entry.flags & EntryFlags.ZSTD
    assert ".target sm_75" in fatbin.select_ptx(image, 75)


def test_debug_entries_have_longer_headers(compile_fatbin: Compile) -> None:
    image = compile_fatbin("-G", "-gencode=arch=compute_75,code=compute_75")
    (entry,) = fatbin.parse(image).entries
    assert entry.flags & EntryFlags.DEBUG
    assert ".target sm_75, debug" in fatbin.select_ptx(image, 75)


def test_the_architecture_flags_are_nvccs(compile_fatbin: Compile) -> None:
    image = compile_fatbin("-gencode=arch=compute_90a,code=compute_90a", "-gencode=arch=compute_100f,code=compute_100f")
    specific, family = fatbin.parse(image).entries
    assert specific.flags & EntryFlags.ARCHITECTURE_SPECIFIC
    assert family.flags & EntryFlags.FAMILY_SPECIFIC
    assert ".target sm_90a" in fatbin.select_ptx(image, 90)
    assert ".target sm_100f" in fatbin.select_ptx(image, 103)
    for capability in (89, 91, 120):
        with pytest.raises(NoPtxError):
            fatbin.select_ptx(image, capability)


def test_containers_of_cuda_12_unpack() -> None:
    """nvcc 12.4 wrote these, with LZ4: those of nvJPEG, found in the library by their magic."""
    content = library_of(unpacked("nvidia-nvjpeg-cu12", "12.3.1.117"), "libnvjpeg.so.12").read_bytes()
    nr_compressed = nr_ptx = 0
    for found in re.finditer(struct.pack("<IHH", fatbin.HEADER_MAGIC, 1, 16), content):
        (entries_bytes,) = struct.unpack_from("<Q", content, found.end())
        for entry in fatbin.parse(content[found.start() : found.end() + 8 + entries_bytes]).entries:
            payload = entry.payload()
            nr_compressed += EntryFlags.LZ4 in entry.flags
            if entry.kind == EntryKind.ELF:
                assert payload.startswith(fatbin.ELF_MAGIC)
            else:
                nr_ptx += f".target sm_{entry.sm}".encode() in payload
    assert (nr_compressed, nr_ptx) == (110, 10)


# ---- choosing PTX ----


@pytest.mark.parametrize(("capability", "target"), [(75, 75), (86, 75), (89, 75), (90, 90), (120, 90)])
def test_the_newest_ptx_that_fits_is_chosen(real: bytes, capability: int, target: int) -> None:
    text = fatbin.select_ptx(real, capability)
    assert f".target sm_{target}" in text
    assert "\0" not in text


def test_too_old_a_device_is_told_what_there_is(real: bytes) -> None:
    with pytest.raises(NoPtxError, match=r"no PTX for sm_70 .*compute_75, compute_90"):
        fatbin.select_ptx(real, 70)


def test_a_container_of_machine_code_has_no_ptx(compile_fatbin: Compile) -> None:
    with pytest.raises(NoPtxError, match="machine code only"):
        fatbin.select_ptx(compile_fatbin("-gencode=arch=compute_90,code=sm_90"), 90)


def test_a_cubin_has_no_ptx(cubin: bytes) -> None:
    with pytest.raises(NoPtxError, match="a cubin"):
        fatbin.select_ptx(cubin, 90)
    with pytest.raises(NoPtxError, match="machine 62, not a GPU"):
        fatbin.select_ptx(cubin[:0x12] + b"\x3e\0" + cubin[0x14:], 90)
    with pytest.raises(NoPtxError, match="cut short"):
        fatbin.select_ptx(cubin[:20], 90)


@pytest.mark.parametrize(
    "prefix", [b"", b"\n\n\t ", b"// comment\n", b"/* of\ntwo lines */ //\n", "// gr\u00fc\u00df\n".encode()]
)
def test_bare_ptx_is_text_with_or_without_nul(prefix: bytes) -> None:
    assert fatbin.select_ptx(prefix + PTX, 75).encode("latin-1") == prefix + PTX
    assert fatbin.select_ptx(prefix + PTX + b"\0", 90).encode("latin-1") == prefix + PTX


def test_bare_ptx_of_a_newer_architecture_is_refused() -> None:
    with pytest.raises(NoPtxError, match="PTX for sm_75 on a device of sm_70"):
        fatbin.select_ptx(PTX, 70)
    with pytest.raises(NoPtxError, match="PTX for sm_90a on a device of sm_100"):
        fatbin.select_ptx(PTX.replace(b"sm_75", b"sm_90a"), 100)


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"\0",
        b"garbage",
        b".versio",
        b"// comment only\n",
        b"/* " * 5000,
        b"/**/" * 5000,
        PTX[:12],
        PTX + b"\0" + PTX,
    ],
)
def test_what_is_no_image_is_refused(image: bytes) -> None:
    with pytest.raises(FatbinError):
        fatbin.select_ptx(image, 90)


# ---- compression ----


@pytest.mark.parametrize("make", [entry_bytes, lz4_entry, zstd_entry])
@pytest.mark.parametrize("content", [PTX, PTX + b"\0", PTX + b"// filler\n" * 10000])
def test_entries_come_out_as_they_went_in(make: Callable[[bytes], bytes], content: bytes) -> None:
    assert only_payload(make(content)) == content
    assert fatbin.select_ptx(container(make(content)), 75).encode("latin-1") == content.rstrip(b"\0")


@pytest.mark.parametrize("make", [lz4_entry, zstd_entry])
@pytest.mark.parametrize("unpacked_bytes", [0, 1, len(PTX) - 1, len(PTX) + 1, fatbin.MAX_PAYLOAD_BYTES + 1, 2**64 - 1])
def test_an_entry_that_unpacks_to_another_size_is_refused(make: Callable[..., bytes], unpacked_bytes: int) -> None:
    with pytest.raises(FatbinError):
        only_payload(make(PTX, unpacked_bytes=unpacked_bytes))


def test_a_bomb_is_refused_before_memory_is_allocated() -> None:
    """A frame that says it holds a terabyte, in an entry that says the same, and in one that says little."""
    huge = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x03\x00\x00\x00"
    for unpacked_bytes in (1 << 40, 100):
        with pytest.raises(FatbinError):
            only_payload(entry_bytes(huge, flags=0x8011, unpacked_bytes=unpacked_bytes))
    with pytest.raises(FatbinError, match="cannot hold"):
        only_payload(entry_bytes(b"\x10a", flags=0x2011, unpacked_bytes=fatbin.MAX_PAYLOAD_BYTES))


def test_two_compressions_at_once_are_refused() -> None:
    with pytest.raises(FatbinError, match="two ways"):
        only_payload(zstd_entry(PTX, flags=0xA011))


# ---- damage ----


@pytest.mark.parametrize(
    "image",
    [
        container(entry_bytes(PTX))[:-1],
        container(entry_bytes(PTX)) + b"\0",
        container(entry_bytes(PTX)[:63]),
        container(b"\0" * 64),
        container(entry_bytes(PTX)[:4] + b"\xff\xff\xff\xff" + entry_bytes(PTX)[8:]),
        container(entry_bytes(PTX)[:8] + b"\xff" * 8 + entry_bytes(PTX)[16:]),
        struct.pack("<IHHQ", fatbin.HEADER_MAGIC, 1, 16, 2**64 - 16),
        struct.pack("<IHHQ", fatbin.HEADER_MAGIC, 2, 16, 0),
        struct.pack("<IHHQ", fatbin.HEADER_MAGIC, 1, 8, 8),
        struct.pack("<IHHQ", WRAPPER_MAGIC, 1, 16, 0),
        container(zstd_entry(PTX)[:16] + b"\xff\xff\xff\xff" + zstd_entry(PTX)[20:]),
    ],
)
def test_wrong_lengths_are_refused(image: bytes) -> None:
    with pytest.raises(FatbinError):
        fatbin.parse(image)


def read_everything(image: bytes) -> None:
    """All that our code does with an image; what is wrong with it may be said only by FatbinError."""
    try:
        for entry in fatbin.parse(image).entries:
            try:
                entry.payload()
            except FatbinError:
                continue
    except FatbinError:
        pass
    try:
        text = fatbin.select_ptx(image, 90)
    except FatbinError:
        return
    assert text.strip()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_container_raises_nothing_else(real: bytes, data: st.DataObject) -> None:
    image = bytearray(real + lz4_entry(PTX))
    struct.pack_into("<Q", image, 8, len(image) - 16)
    read_everything(bytes(image))
    for _ in range(data.draw(st.integers(1, 6))):
        # Headers are where it hurts: half of the damage goes there.
        offset = data.draw(st.integers(0, len(image) - 1) | st.integers(0, 0x5F))
        image[offset] = data.draw(st.integers(0, 255))
    read_everything(bytes(image[: data.draw(st.integers(0, len(image)) | st.just(len(image)))]))


@settings(max_examples=300)
@given(image=st.binary(max_size=300))
def test_noise_behind_a_good_magic_raises_nothing_else(image: bytes) -> None:
    read_everything(image)
    read_everything(fatbin.ELF_MAGIC + image)
    read_everything(container(image))
    read_everything(container(entry_bytes(image, flags=0x8011, unpacked_bytes=len(image))))
    read_everything(container(entry_bytes(image, flags=0x2011, unpacked_bytes=len(image))))


# ---- the C side: how long is an image ----


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("fatbin_c") / "embedder.so"
    sources = [ROOT / "tests/cuda_api/handshake_embedder.c", *sorted((ROOT / "cuda_api/common/handshake").glob("*.c"))]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-I{ROOT}/cuda_api/include"]
    subprocess.run(["gcc", *flags, "-o", path, *sources], check=True)
    return ctypes.CDLL(str(path))


def image_bytes(library: ctypes.CDLL, address: int) -> tuple[int, int, int]:
    size, kind = c_size_t(), c_int()
    result = library.embedder_image_bytes(c_void_p(address), byref(size), byref(kind))
    return result, size.value, kind.value


def measure(library: ctypes.CDLL, image: bytes) -> tuple[int, int, int]:
    """Through a buffer that ends where the image does, with a page behind it that cannot be read."""
    page = 4096
    room = -(-max(len(image), 1) // page) * page
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = c_void_p
    base = libc.mmap(None, c_size_t(room + page), 3, 0x22, -1, c_size_t(0))
    assert libc.mprotect(c_void_p(base + room), c_size_t(page), 0) == 0
    start = base + room - len(image)
    ctypes.memmove(start, image, len(image))
    size, kind = c_size_t(), c_int()
    result = library.embedder_image_measure(c_void_p(start), c_size_t(len(image)), byref(size), byref(kind))
    assert libc.munmap(c_void_p(base), c_size_t(room + page)) == 0
    return result, size.value, kind.value


def test_length_of_a_container_with_and_without_wrapper(library: ctypes.CDLL, real: bytes) -> None:
    image = ctypes.create_string_buffer(real + b"what follows in memory")
    address = ctypes.addressof(image)
    assert image_bytes(library, address) == (0, len(real), FATBIN)
    for version in (1, 2):
        wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", WRAPPER_MAGIC, version, address, 0))
        assert image_bytes(library, ctypes.addressof(wrapper)) == (0, len(real), FATBIN)
    for bad in ((3, address), (1, 0)):
        wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", WRAPPER_MAGIC, *bad, 0))
        assert image_bytes(library, ctypes.addressof(wrapper))[0] == INVALID_IMAGE
    assert image_bytes(library, 0)[0] == INVALID_VALUE


def test_length_of_a_cubin_and_of_text(library: ctypes.CDLL, cubin: bytes) -> None:
    image = ctypes.create_string_buffer(cubin + b"what follows in memory")
    assert image_bytes(library, ctypes.addressof(image)) == (0, len(cubin), ELF)
    for text in (PTX, b"// one\n/* two * / */\n\t" + PTX):
        image = ctypes.create_string_buffer(text)
        assert image_bytes(library, ctypes.addressof(image)) == (0, len(text) + 1, TEXT)


@pytest.mark.parametrize(
    "text", [b"", b"garbage", b"\xa5" * 100, b".versio", b"// only\n", b"/* open", b"/", b"\xb1\x43", b"\x7fEL"]
)
def test_what_is_no_image_has_no_length(library: ctypes.CDLL, text: bytes) -> None:
    image = ctypes.create_string_buffer(text)
    assert image_bytes(library, ctypes.addressof(image))[0] == INVALID_IMAGE
    assert measure(library, text + b"\0")[0] == INVALID_IMAGE
    assert measure(library, text)[0] == INVALID_IMAGE


def test_an_image_cut_short_is_not_whole(library: ctypes.CDLL, real: bytes, cubin: bytes) -> None:
    for image, kind in ((real, FATBIN), (cubin, ELF), (PTX + b"\0", TEXT)):
        assert measure(library, image) == (0, len(image), kind)
        for length in {0, 1, 3, 4, 15, 16, 63, 64, len(image) // 2, len(image) - 1}:
            if length < len(image):
                assert measure(library, image[:length])[0] == INVALID_IMAGE


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_measuring_a_damaged_image_reads_nothing_beyond_it(
    library: ctypes.CDLL, real: bytes, cubin: bytes, data: st.DataObject
) -> None:
    image = bytearray(data.draw(st.sampled_from([real, cubin])))
    for _ in range(data.draw(st.integers(1, 6))):
        image[data.draw(st.integers(0, len(image) - 1) | st.integers(4, 63))] = data.draw(st.integers(0, 255))
    result, size, kind = measure(library, bytes(image[: data.draw(st.integers(0, len(image)) | st.just(len(image)))]))
    assert result == INVALID_IMAGE or (result == 0 and 0 < size <= len(image) and kind in (FATBIN, ELF, TEXT))
