"""The window behind a region: more heap, as far as it is mapped, and nothing before or beyond it."""

import os
from collections.abc import Iterator

import pytest

from ivshmem.front import WINDOW_MAX_BYTES, WINDOW_MIN_BYTES, window_front_bytes
from ivshmem.region import PAGE_BYTES, Region, RegionSizeError, lib
from tests.ivshmem.conftest import TABLE_HASH, Guest

NONE = lib.FGV_HEAP_NONE
WINDOW_BYTES = 64 << 20
FRONT_BYTES = WINDOW_BYTES // PAGE_BYTES * 2
CLIENT, OTHER = 3, 4


@pytest.fixture
def piece() -> Iterator[int]:
    fd = os.memfd_create("piece")
    os.ftruncate(fd, FRONT_BYTES)
    yield fd
    os.close(fd)


@pytest.fixture
def full(region: Region, piece: int) -> Region:
    """A region without a free page, whose window can grow."""
    heap_bytes = region.c_region.nr_heap_pages * PAGE_BYTES
    assert lib.fgv_heap_allocate(region.c_region, OTHER, heap_bytes) != NONE
    region.open_window(piece, WINDOW_BYTES)
    region.grow_window(
        FRONT_BYTES + PAGE_BYTES
    )  # one page that comes and goes: where this process looks first is known then
    assert lib.fgv_heap_free(region.c_region, OTHER, allocate(region, 1, OTHER), PAGE_BYTES) == 1
    region.grow_window(0)
    return region


def allocate(region: Region, nr_pages: int, client: int = CLIENT) -> int:
    return int(lib.fgv_heap_allocate(region.c_region, client, nr_pages * PAGE_BYTES))


def test_pages_come_with_what_is_mapped(full: Region) -> None:
    first = full.region_bytes + FRONT_BYTES
    assert allocate(full, 1) == NONE
    full.grow_window(FRONT_BYTES)
    assert allocate(full, 1) == NONE, "the owners' own pages are nobody's"
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    assert allocate(full, 5) == NONE
    assert allocate(full, 3) == first
    assert allocate(full, 2) == NONE
    full.grow_window(FRONT_BYTES + 5 * PAGE_BYTES)
    assert allocate(full, 2) == first + 3 * PAGE_BYTES, "a run goes from one piece into the next"
    assert full.statistics().nr_client_pages[CLIENT] == 5


def test_runs_do_not_reach_from_the_region_into_the_window(region: Region, piece: int) -> None:
    region.open_window(piece, WINDOW_BYTES)
    region.grow_window(FRONT_BYTES + 8 * PAGE_BYTES)
    nr_pages = region.c_region.nr_heap_pages
    assert allocate(region, nr_pages - 4, OTHER) != NONE
    assert allocate(region, 5) == region.region_bytes + FRONT_BYTES
    assert allocate(region, 4) == region.region_bytes - 4 * PAGE_BYTES


def test_what_may_be_named(full: Region) -> None:
    c, end = full.c_region, full.region_bytes
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    first, beyond = end + FRONT_BYTES, end + FRONT_BYTES + 4 * PAGE_BYTES
    assert lib.fgv_region_in_heap(c, first, 4 * PAGE_BYTES)
    for offset, nbytes in [
        (end, PAGE_BYTES),
        (end - PAGE_BYTES, 2 * PAGE_BYTES),
        (first - 1, 1),
        (first, 4 * PAGE_BYTES + 1),
        (beyond, 1),
        (first, 2**64 - first),
        (2**64 - PAGE_BYTES, PAGE_BYTES),
    ]:
        assert not lib.fgv_region_in_heap(c, offset, nbytes)
        assert not lib.fgv_region_is_owned(c, CLIENT, offset, nbytes)
        assert lib.fgv_heap_free(c, CLIENT, offset, nbytes) == 0
    offset = allocate(full, 2)
    assert lib.fgv_region_is_owned(c, CLIENT, offset, 2 * PAGE_BYTES)
    assert not lib.fgv_region_is_owned(c, CLIENT, offset, 0)
    assert not lib.fgv_region_is_owned(c, CLIENT, offset, 2 * PAGE_BYTES + 1)
    assert not lib.fgv_region_is_owned(c, OTHER, offset, 1)


def test_the_free_end(full: Region) -> None:
    assert lib.fgv_window_end_bytes(full.c_region) == 0
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    assert lib.fgv_window_end_bytes(full.c_region) == 4 * PAGE_BYTES
    kept = allocate(full, 3)
    assert lib.fgv_window_end_bytes(full.c_region) == PAGE_BYTES
    assert lib.fgv_heap_free(full.c_region, CLIENT, kept, PAGE_BYTES) == 1
    assert lib.fgv_window_end_bytes(full.c_region) == PAGE_BYTES, "a hole before the end does not count"


def test_what_a_dead_client_held_is_taken_back(full: Region) -> None:
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    assert allocate(full, 3) != NONE
    assert lib.fgv_grower_take(full.c_region, CLIENT)
    assert not lib.fgv_grower_take(full.c_region, OTHER)
    lib.fgv_grower_give(full.c_region, OTHER)
    assert not lib.fgv_grower_take(full.c_region, OTHER), "only its owner gives it"
    assert full.reclaim(CLIENT) == 3
    assert lib.fgv_grower_take(full.c_region, OTHER)
    assert allocate(full, 4) != NONE


def test_a_region_laid_out_anew_keeps_its_window(full: Region) -> None:
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    assert allocate(full, 4) != NONE
    full.format(table_hash=TABLE_HASH)
    assert full.statistics().nr_free_pages == full.c_region.nr_heap_pages + 4


def test_closed(full: Region) -> None:
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    assert allocate(full, 4) != NONE
    full.close_window()
    full.close_window()
    assert allocate(full, 1) == NONE
    assert full.reclaim(CLIENT) == 0
    with pytest.raises(RegionSizeError):
        full.grow_window(PAGE_BYTES)


@pytest.mark.parametrize("nbytes", [0, PAGE_BYTES, WINDOW_MIN_BYTES // 2, 3 << 20, WINDOW_MAX_BYTES * 2, 2**64 - 1])
def test_sizes_that_no_window_has(region: Region, piece: int, nbytes: int) -> None:
    with pytest.raises(RegionSizeError):
        region.open_window(piece, nbytes)


def test_a_first_piece_too_small_for_the_owners(region: Region, piece: int) -> None:
    with pytest.raises(RegionSizeError):
        region.open_window(piece, WINDOW_BYTES * 2)


@pytest.mark.parametrize("mapped", [1, PAGE_BYTES + 1, WINDOW_BYTES + PAGE_BYTES, 2**64 - PAGE_BYTES])
def test_growth_that_cannot_be(full: Region, mapped: int) -> None:
    with pytest.raises(RegionSizeError):
        full.grow_window(mapped)


def test_owners_that_the_guest_wrote(full: Region, piece: int) -> None:
    """They are words of the guest's: any number may stand there, and it changes nothing beyond them."""
    full.grow_window(FRONT_BYTES + 4 * PAGE_BYTES)
    os.pwrite(piece, b"\xff" * FRONT_BYTES, 0)
    assert allocate(full, 1) == NONE
    assert full.statistics().nr_stray_pages == 4
    assert full.reclaim(CLIENT) == 0


def test_the_front_of_the_largest_window() -> None:
    assert window_front_bytes(WINDOW_MIN_BYTES) == PAGE_BYTES
    assert window_front_bytes(WINDOW_MAX_BYTES) == WINDOW_MAX_BYTES // 2048


def test_a_clients_parts_lie_in_the_region(guest: Guest, piece: int) -> None:
    region, entry = guest.region, guest.good_entry()
    region.open_window(piece, WINDOW_BYTES)
    region.grow_window(FRONT_BYTES + (1 << 20))
    assert guest.is_accepted(entry)
    assert lib.fgv_heap_allocate(region.c_region, OTHER, region.statistics().nr_free_pages // 2 * PAGE_BYTES) != NONE
    while (offset := guest.allocate(1 << 18)) < region.region_bytes:
        pass
    assert lib.fgv_region_is_owned(region.c_region, guest.index, offset, 1 << 18)
    for field in ("ring_offset", "responses_offset", "chunks_offset", "arena_offset"):
        assert not guest.is_accepted(entry, **{field: offset}), field
