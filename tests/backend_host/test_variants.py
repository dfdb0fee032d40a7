"""What of an image is kept for variants, what is made of it, and what is refused: images come from guests."""

import struct

import pytest
from backend_host.worker._worker import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from backend_host.worker.kept_images import MAX_IMAGE_BYTES, MAX_KEPT_BYTES, Images
from backend_host.worker.variants import Reader, Variant, make
from cuda_api.fatbin import parse, select_ptx, without_machine_code
from cuda_api.ptx.variants import RunsWholeError, Whole

OWNER = (4, 1)
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = """.global .u32 seen; .const .u32 factor = 3;
.visible .entry k(.param .u64 out) { .reg .b32 %r<3>; ld.const.u32 %r1, [factor]; red.global.add.u32 [seen], %r1; ret; }
"""
PTX, ELF = 1, 2
ARCHITECTURE_SPECIFIC = 0x100000


def entry(kind: int, sm: int, payload: bytes, flags: int = 0) -> bytes:
    padded = payload + bytes(-len(payload) % 8 or 8)
    head = struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 0x40, len(padded), 0, 0, 0, sm, 0, 0, flags, 0, 0)
    return head + padded


def container(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def text(kernel: str = KERNEL) -> bytes:
    return (HEAD + kernel).encode() + b"\0"


def variant_of(kept: bytes | Whole, kernel: str = "k", *, address: int = 4096, is_persistent: bool = False) -> Variant:
    source = Reader().read(kept, kernel, 90)
    addresses = dict.fromkeys(source.used.globals, address) if address else {}
    return make(source, is_persistent=is_persistent, addresses=addresses)


def made(image: bytes | None, kernel: str = "k", *, address: int = 4096, is_persistent: bool = False) -> str:
    images = Images()
    images.keep(OWNER, image)
    return variant_of(images.of(OWNER), kernel, address=address, is_persistent=is_persistent).text


def reason(image: bytes | None, kernel: str = "k", *, address: int = 4096) -> Whole:
    with pytest.raises(RunsWholeError) as raised:
        made(image, kernel, address=address)
    return raised.value.reason


def test_text_and_containers() -> None:
    plain = made(text())
    assert "mov.u64 %fgv_v0, 4096;" in plain
    assert made(container(entry(ELF, 80, b"\x7fELF"), entry(PTX, 80, text()))) == plain
    assert "fgv_state" in made(text(), is_persistent=True)


def test_machine_code_is_not_kept() -> None:
    image = container(entry(ELF, 90, bytes(1 << 20)), entry(PTX, 80, text()), entry(ELF, 75, bytes(1 << 20)))
    small = without_machine_code(image)
    assert len(small) < 1000
    assert [(found.kind, found.sm) for found in parse(small).entries] == [(ELF, 90), (PTX, 80), (ELF, 75)]
    assert select_ptx(small, 90) == select_ptx(image, 90)
    assert without_machine_code(small) == small


def test_constants_are_named() -> None:
    images = Images()
    images.keep(OWNER, text())
    assert variant_of(images.of(OWNER)).constants == ("factor",)


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (None, Whole.SEPARATE_COMPILATION),
        (b"\x7fELF" + bytes(100), Whole.NO_PTX),
        (container(entry(ELF, 90, b"\x7fELF")), Whole.NO_PTX),
        (container(entry(PTX, 100, text())), Whole.NO_PTX),
        (container(entry(PTX, 80, text()), entry(ELF, 90, b"\x7fELF")), Whole.NEWER_MACHINE_CODE),
        (container(entry(PTX, 90, text()), entry(ELF, 90, b"\x7fELF", ARCHITECTURE_SPECIFIC)), Whole.NEWER_MACHINE_CODE),
        (container(entry(PTX, 80, text()))[:-8], Whole.NOT_UNDERSTOOD),
        (b"nonsense\0", Whole.NOT_UNDERSTOOD),
        (text("{" * 100_000), Whole.NOT_UNDERSTOOD),
        (text(".visible .entry k() {" + "{" * 50_000), Whole.NOT_UNDERSTOOD),
        (text("// " + "x" * (5 << 20)), Whole.TOO_LARGE),
        (bytes(MAX_IMAGE_BYTES + 1), Whole.TOO_LARGE),
        (text(".const .u32 c0;" + "".join(f".const .u32 d{i};" for i in range(70))
              + ".visible .entry k() { .reg .b32 %r; " + "".join(f"ld.const.u32 %r, [d{i}];" for i in range(70)) + "ret; }"),
         Whole.TOO_LARGE),
    ],
)  # fmt: skip
def test_refusals(image: bytes | None, wanted: Whole) -> None:
    assert reason(image) == wanted


def test_what_the_driver_does_not_find() -> None:
    assert reason(text(), address=0) == Whole.HIDDEN_VARIABLE
    assert reason(text(), kernel="other") == Whole.NO_PTX
    with pytest.raises(RunsWholeError):
        variant_of(Images().of(OWNER))


def test_a_guest_that_loads_for_ever_fills_nothing() -> None:
    images = Images()
    large = b"x" * MAX_IMAGE_BYTES
    for number in range(MAX_KEPT_BYTES // MAX_IMAGE_BYTES):
        images.keep((4, number), large)
    images.keep((4, 1000), text())
    with pytest.raises(RunsWholeError) as raised:
        variant_of(images.of((4, 1000)))
    assert raised.value.reason == Whole.TOO_LARGE
    images.forget((4, 0))
    images.keep((4, 1000), text())
    assert variant_of(images.of((4, 1000))).text


def test_a_number_that_is_given_again() -> None:
    images, reader = Images(), Reader()
    images.keep(OWNER, text())
    reader.read(images.of(OWNER), "k", 90)
    images.keep(OWNER, text(KERNEL.replace(" k(", " other(")))
    assert (
        "other" in make(reader.read(images.of(OWNER), "other", 90), is_persistent=False, addresses={"seen": 4096}).text
    )


def boxes_of(grid: tuple[int, int, int], wanted: int) -> list[tuple[list[int], list[int]]]:
    """First block and size of each box."""
    following, size = ffi.new("uint32_t[3]"), ffi.new("uint32_t[3]", grid)
    found = []
    while following[2] < grid[2]:
        box = lib.fgw_grid_next_box(following, size, wanted)
        found.append((list(box.first), list(box.size)))
        lib.fgw_grid_advance(following, size, ffi.addressof(box))
    return found


dimension = st.integers(1, 12)


@given(st.tuples(dimension, dimension, dimension), st.integers(1, 400))
def test_boxes_hold_each_block_once_and_in_order(grid: tuple[int, int, int], wanted: int) -> None:
    order = []
    for first, size in boxes_of(grid, wanted):
        assert size[0] * size[1] * size[2] < max(4, 4 * wanted)
        order += [
            ((first[2] + z) * grid[1] + first[1] + y) * grid[0] + first[0] + x
            for z in range(size[2])
            for y in range(size[1])
            for x in range(size[0])
        ]
    assert order == list(range(grid[0] * grid[1] * grid[2]))


def test_parts_are_as_large_as_wanted() -> None:
    for grid in ((600, 600, 1), (900, 900, 1), (360001, 1, 1), (1, 1, 65535), (3, 5, 40000)):
        sizes = [size[0] * size[1] * size[2] for _, size in boxes_of(grid, 1500)]
        assert min(sizes[:-1]) >= 1500
        assert max(sizes) < 2 * 1500


@pytest.mark.parametrize(("grid", "wanted"), [((0x7FFFFFFF, 65535, 65535), 1 << 40), ((5, 5, 5), 1 << 62)])
def test_large_numbers(grid: tuple[int, int, int], wanted: int) -> None:
    following, size = ffi.new("uint32_t[3]"), ffi.new("uint32_t[3]", grid)
    box = lib.fgw_grid_next_box(following, size, wanted)
    assert all(1 <= box.size[axis] <= grid[axis] for axis in range(3))
    assert lib.fgw_grid_nr_blocks(size) == grid[0] * grid[1] * grid[2]
