"""What the daemon tells a guest: all of one moment, whatever the guest writes there, and nothing beyond its line."""

import dataclasses
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivshmem.region import Region, ffi, lib
from ivshmem.told import Told, read_told, write_told

OFFSET, NR_BYTES = 192, 64  # docs/region.md
TOLD = Told(
    weight=2,
    quota_bytes=4 << 30,
    request_permille=100,
    limit_permille=500,
    entitled_permille=333,
    used_permille=331,
    used_ns=5_000_000_000,
    wait_ns=70_000_000,
    nr_waits=12,
    memory_bytes=1 << 30,
)
PLACES = {"weight": (4, 4), "quota_bytes": (8, 8), "entitled_permille": (24, 4), "memory_bytes": (56, 8)}


def test_nothing_was_told_yet(region: Region) -> None:
    assert read_told(region) is None


@pytest.mark.parametrize("number", [1, 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40])
def test_what_was_told_is_read(region: Region, number: int) -> None:
    for told in (TOLD, dataclasses.replace(TOLD, weight=3, entitled_permille=None)):
        write_told(region, number, told)
        assert read_told(region) == told
        number += 1


def test_it_is_where_the_page_says_and_nowhere_else(region: Region) -> None:
    before = os.pread(region.fileno(), 4096, 0)
    write_told(region, 1, TOLD)
    after = os.pread(region.fileno(), 4096, 0)
    assert before[:OFFSET] == after[:OFFSET]
    assert before[OFFSET + NR_BYTES :] == after[OFFSET + NR_BYTES :]
    for name, (place, size) in PLACES.items():
        found = int.from_bytes(after[OFFSET + place : OFFSET + place + size], "little")
        assert found == getattr(TOLD, name), name


@given(st.integers(-1, 1 << 70), st.integers(-1, 1 << 70))
def test_what_a_worker_counts_may_be_anything(number: int, other: int) -> None:
    fd = os.memfd_create("told")
    os.ftruncate(fd, 16 << 20)
    with Region("told", fd, 16 << 20) as region:
        region.format(table_hash=1)
        write_told(region, 1, dataclasses.replace(TOLD, used_permille=number, wait_ns=other))
        told = read_told(region)
    assert told is not None
    assert told.used_permille == min(max(0, number), (1 << 32) - 1)
    assert told.wait_ns == min(max(0, other), (1 << 64) - 1)


def test_a_guest_that_writes_there_is_not_believed(region: Region) -> None:
    """The next telling puts all right again: the daemon keeps its own count."""
    for junk in (b"\xff" * NR_BYTES, b"\x01" + bytes(NR_BYTES - 1), os.urandom(NR_BYTES)):
        os.pwrite(region.fileno(), junk, OFFSET)
        read_told(region)
        write_told(region, 5, TOLD)
        assert read_told(region) == TOLD


def test_a_telling_that_never_ends_is_given_up(region: Region) -> None:
    write_told(region, 1, TOLD)
    os.pwrite(region.fileno(), (3).to_bytes(4, "little"), OFFSET)
    assert read_told(region) is None


def test_readers_see_all_of_one_telling(region: Region) -> None:
    goes_on = True

    def tell() -> None:
        number = 1
        while goes_on:
            same = number % 1000
            write_told(region, number, Told(same, same, same, same, same, same, same, same, same, same))
            number += 1

    writer = threading.Thread(target=tell)
    writer.start()
    values = ffi.new("struct fgv_told_values *")
    try:
        for _ in range(20_000):
            if lib.fgv_told_read(region.c_region, values):
                assert len({values.weight, values.used_permille, values.used_ns, values.memory_bytes}) == 1
    finally:
        goes_on = False
        writer.join()
