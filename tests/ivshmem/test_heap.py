"""The heap: against a model of page owners, with many clients, and with several processes at once."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivshmem.region import PAGE_BYTES, REGION_MIN_BYTES, Region, ffi, lib

NONE = lib.FGV_HEAP_NONE
TABLE_HASH = 0x4EA9


def heap_offset(region: Region) -> int:
    return int(region.c_region.heap - region.c_region.base)


@settings(max_examples=50)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 63),
            st.one_of(st.integers(1, 20), st.integers(500, 4000)),
            st.integers(0, 3),
            st.integers(0, 2**32),
        ),
        max_size=60,
    ),
)
def test_the_heap_agrees_with_a_model_of_owners(steps: list[tuple[int, int, int, int]]) -> None:
    with Region.create(f"fairgv-test-heap-{os.getpid()}", REGION_MIN_BYTES, table_hash=TABLE_HASH) as region:
        region.unlink()
        c = region.c_region
        base = heap_offset(region)
        owners: list[int | None] = [None] * c.nr_heap_pages
        blocks: list[tuple[int, int, int]] = []
        for client, nr_pages, action, pick in steps:
            if action <= 1:
                offset = lib.fgv_heap_allocate(c, client, nr_pages * PAGE_BYTES - pick % PAGE_BYTES)
                if offset == NONE:
                    free = "".join("." if owner is None else "x" for owner in owners)
                    assert "." * nr_pages not in free, "there was room"
                    continue
                first = (offset - base) // PAGE_BYTES
                assert owners[first : first + nr_pages] == [None] * nr_pages
                owners[first : first + nr_pages] = [client] * nr_pages
                blocks.append((client, offset, nr_pages))
            elif action == 2 and blocks:
                owner, offset, size = blocks.pop(pick % len(blocks))
                first = (offset - base) // PAGE_BYTES
                assert lib.fgv_heap_free(c, (owner + 1) % 64, offset, size * PAGE_BYTES) == 0, "another's pages"
                assert lib.fgv_heap_free(c, owner, offset, size * PAGE_BYTES) == size
                owners[first : first + size] = [None] * size
            elif action == 3:
                assert lib.fgv_heap_reclaim(c, client) == owners.count(client)
                owners = [None if owner == client else owner for owner in owners]
                blocks = [block for block in blocks if block[0] != client]
        statistics = region.statistics()
        assert statistics.nr_free_pages == owners.count(None)
        assert list(statistics.nr_client_pages) == [owners.count(client) for client in range(64)]


def test_the_whole_heap_can_be_had_and_given_back(region: Region) -> None:
    c = region.c_region
    nbytes = c.nr_heap_pages * PAGE_BYTES
    for _ in range(3):
        assert lib.fgv_heap_allocate(c, 0, nbytes + 1) == NONE
        assert lib.fgv_heap_allocate(c, 0, nbytes) == heap_offset(region)
        assert lib.fgv_heap_allocate(c, 1, 1) == NONE
        assert region.statistics().nr_client_pages[0] == c.nr_heap_pages
        assert lib.fgv_heap_free(c, 0, heap_offset(region), nbytes) == c.nr_heap_pages


@pytest.mark.parametrize("nbytes", [0, 2**64 - 1, 2**64 - PAGE_BYTES, 2**63])
def test_impossible_allocations(region: Region, nbytes: int) -> None:
    assert lib.fgv_heap_allocate(region.c_region, 0, nbytes) == NONE
    assert region.statistics().nr_free_pages == region.statistics().nr_heap_pages


def test_impossible_owners_and_places(region: Region) -> None:
    c = region.c_region
    base = heap_offset(region)
    for client in (64, 65535, 2**32 - 1):
        assert lib.fgv_heap_allocate(c, client, 1) == NONE
        assert lib.fgv_heap_reclaim(c, client) == 0
    assert lib.fgv_heap_allocate(c, 0, PAGE_BYTES) != NONE
    for offset, nbytes in (
        (0, PAGE_BYTES),
        (base + 1, 1),
        (base, 2**64 - 1),
        (2**64 - PAGE_BYTES, PAGE_BYTES),
        (region.region_bytes, 1),
    ):
        assert lib.fgv_heap_free(c, 0, offset, nbytes) == 0
    assert lib.fgv_heap_free(c, 64, base, PAGE_BYTES) == 0


def work(name: str, client: int, nr_steps: int) -> None:
    """One guest program: allocates, marks every page, checks the marks before it frees. Exits 1 when another wrote into its pages."""
    chance = random.Random(client)
    with Region.open(name, table_hash=TABLE_HASH) as region:
        c = region.c_region
        memory = lib_buffer(region)
        held: list[tuple[int, int]] = []
        for _ in range(nr_steps):
            nr_pages = chance.choice([1, 2, 3, 50, 300])
            offset = lib.fgv_heap_allocate(c, client, nr_pages * PAGE_BYTES)
            if offset != NONE:
                held.append((offset, nr_pages))
                for at in range(offset, offset + nr_pages * PAGE_BYTES, PAGE_BYTES):
                    memory[at : at + 1] = bytes([client])
            if offset == NONE or len(held) > 6:
                offset, nr_pages = held.pop(chance.randrange(len(held))) if held else (0, 0)
                for at in range(offset, offset + nr_pages * PAGE_BYTES, PAGE_BYTES):
                    if memory[at : at + 1] != bytes([client]):
                        os._exit(1)
                if lib.fgv_heap_free(c, client, offset, nr_pages * PAGE_BYTES) != nr_pages:
                    os._exit(1)
        if region.statistics().nr_client_pages[client] != sum(nr_pages for _, nr_pages in held):
            os._exit(1)
        os._exit(0)


def lib_buffer(region: Region) -> memoryview:

    return memoryview(ffi.buffer(ffi.cast("uint8_t *", region.base), region.region_bytes)).cast("B")


def test_processes_share_the_heap(region_name: str) -> None:
    with Region.create(region_name, REGION_MIN_BYTES, table_hash=TABLE_HASH) as region:
        children = []
        for client in range(1, 5):
            child = os.fork()
            if child == 0:
                try:
                    work(region_name, client, 1500)
                finally:
                    os._exit(2)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]
        held = region.statistics().nr_client_pages
        assert [region.reclaim(client) for client in range(64)] == list(held)
        assert region.statistics().nr_free_pages == region.statistics().nr_heap_pages
