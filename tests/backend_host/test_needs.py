"""What a driver takes for an image, computed from the image."""

import struct

import pytest
import zstandard

from backend_host.worker.declarations import UNKNOWABLE_BYTES
from backend_host.worker.needs import needs_bytes
from cuda_api.fatbin import EntryFlags

HEAD = b".version 7.0\n.target sm_70\n.address_size 64\n"
LOADED, NOBITS = 2, 8


def beside_text(declaration: str) -> int:
    text = HEAD + declaration.encode("latin-1") + b"\0"
    return needs_bytes(text, 90, is_exact=True) - len(text)


def machine_code(*sections: tuple[str, int, int, int]) -> bytes:
    """Of sections of a name, a type, flags and a size."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections)
    head = struct.pack("<16sHHI", b"\x7fELF\x02\x01", 2, 190, 1).ljust(0x28, b"\0")
    table = 64 + len(names)
    head += struct.pack("<QIHHHHHH", table, 0, 64, 0, 0, 64, len(sections) + 1, 0)
    first = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    at = 1
    rest = b""
    for name, kind, flags, size in sections:
        rest += struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64, size, 0, 0, 0, 0)
        at += len(name) + 1
    return head + names + first + rest


def entry(payload: bytes, sm: int = 90, kind: int = 2) -> bytes:
    """Packed."""
    packed = zstandard.compress(payload)
    stored = packed + bytes(-len(packed) % 8)
    flags = EntryFlags.ZSTD | EntryFlags.BITS_64
    head = struct.pack(
        "<HHIQIIIIIIQQQ", kind, 0x101, 0x40, len(stored), len(packed), 0, 0, sm, 0, 0, flags, 0, len(payload)
    )
    return head + stored


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


@pytest.mark.parametrize(
    ("declaration", "nr_bytes"),
    [
        (".global .align 4 .b8 x[134217728];", 1 << 27),
        (".visible .global .b32 a[2] = {1,2}, b[0x100];", 4 * 2 + 4 * 256),
        (".global .v4 .f32 q[2][3];", 96),
        (".global .align 256 .b8 a;", 256),
        (".global .align 8 .u64 p = x;", 8),
        (".global .b8 s[] = {1, 2, 3};", 3),
        (".global .b32 s[][2] = {{1, 2}, {3, 4}};", 32),  # more than it has
        (".const .b8 x[(1 << 20) + 2 * 3];", (1 << 20) + 6),
        (".global .attribute(.managed) .b32 m[16];", 64),
        (".global .texref t;", 16),
        ('.file 1 "//" .global .b8 x[1 << 20];', 1 << 20),
        ('.file 1 "/*" .global .b8 x[1 << 20];', 1 << 20),
        ("/* .global .b8 x[99]; */ // .global .b8 x[99];", 0),
        ("ld.global.f32 %f1, [%rd1]; st.volatile.global.b32 [%rd1], 3;", 0),
        (".extern .shared .b8 s[]; .local .b8 l[99];", 0),
        (".entry k(.param .u64 .ptr .global .align 16 p, .param .u64 .ptr .const q) { .reg .b32 r<9>; ret; }", 0),
    ],
)
def test_variables_of_ptx(declaration: str, nr_bytes: int) -> None:
    assert beside_text(declaration) == nr_bytes


@pytest.mark.parametrize(
    "declaration",
    [
        ".global .b8 x[99999999999999999999];",
        ".global .b8 x[1 << 40][1 << 40];",
        ".global .b8 x[N];",
        ".global .b8 x[-1];",
        f".global .b8 x[{'1' * 5000}];",
        f".global .b8 x[{'(' * 150}1{')' * 150}];",
        ".global .b8 x[[3]];",
        "#define G .global\nG .b8 x[1 << 30];",
    ],
)
def test_what_nobody_can_tell_fits_nowhere(declaration: str) -> None:
    text = HEAD + declaration.encode() + b"\0"
    assert needs_bytes(text, 90, is_exact=True) == UNKNOWABLE_BYTES
    assert needs_bytes(text, 90, is_exact=False) == len(text), "without a quota it is a number for people"


def test_sections_of_machine_code_that_are_loaded() -> None:
    code = machine_code(
        (".text.k", 1, LOADED | 4, 5000),
        (".nv.global", NOBITS, LOADED | 1, 1 << 30),
        (".nv.constant0.k", 1, LOADED, 300),
        (".nv.shared.k", NOBITS, LOADED | 1, 1 << 16),
        (".debug_frame", 1, 0, 70000),
    )
    assert needs_bytes(code, 90, is_exact=True) == (1 << 30) + 5300


def test_packed_machine_code_is_unpacked_under_a_quota() -> None:
    code = machine_code((".nv.global", NOBITS, LOADED | 1, 1 << 30))
    image = container(entry(code))
    assert needs_bytes(image, 90, is_exact=True) == 1 << 30
    assert needs_bytes(image, 90, is_exact=False) == len(code)


def test_the_most_of_what_a_device_may_run() -> None:
    small, large = (machine_code((".nv.global", NOBITS, LOADED | 1, size)) for size in (1 << 20, 1 << 30))
    assert needs_bytes(container(entry(small), entry(large, sm=80)), 90, is_exact=True) == 1 << 20
    assert needs_bytes(container(entry(small), entry(large, sm=80)), 86, is_exact=True) == 1 << 30
    assert needs_bytes(container(entry(small), entry(large)), 90, is_exact=True) == 1 << 30


@pytest.mark.parametrize("cut", [3, 20, 70, 100, 200])
def test_damaged_images_count_for_what_there_is(cut: int) -> None:
    code = machine_code((".nv.global", NOBITS, LOADED | 1, 1 << 30), (".text", 1, LOADED, 100))
    for image in (code[:cut], container(entry(code))[:cut]):
        assert 0 <= needs_bytes(image, 90, is_exact=True) <= UNKNOWABLE_BYTES
