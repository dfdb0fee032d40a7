"""Laying out, checking, and watching a region; every field of a header and of a client entry, wrong one at a time."""

import ctypes
import dataclasses
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ivshmem.region import (
    BEAT_SECONDS,
    FACTS_BYTES,
    NR_CLIENTS,
    PAGE_BYTES,
    REGION_MIN_BYTES,
    ClientState,
    HostState,
    Region,
    RegionClosedError,
    RegionError,
    RegionSizeError,
    RegionStatus,
    Wake,
    ffi,
    lib,
)

from .conftest import TABLE_HASH, Guest, read_layout

HEADER_FIELDS = {
    "magic": (0, 8, RegionStatus.NO_MAGIC),
    "layout_version": (8, 4, RegionStatus.WRONG_VERSION),
    "wake": (12, 4, RegionStatus.DAMAGED),
    "table_hash": (16, 8, RegionStatus.WRONG_TABLE),
    "region_bytes": (24, 8, RegionStatus.DAMAGED),
    "facts_offset": (32, 8, RegionStatus.DAMAGED),
    "clients_offset": (40, 8, RegionStatus.DAMAGED),
    "owners_offset": (48, 8, RegionStatus.DAMAGED),
    "heap_offset": (56, 8, RegionStatus.DAMAGED),
    "nr_heap_pages": (64, 8, RegionStatus.DAMAGED),
    "facts_bytes": (72, 4, RegionStatus.DAMAGED),
    "events_offset": (80, 8, RegionStatus.DAMAGED),
}


def bad_values(good: int, nbytes: int) -> list[int]:
    top = 256**nbytes - 1
    candidates = {0, 1 << 17, good + PAGE_BYTES, good - PAGE_BYTES, top, top // 2, top - PAGE_BYTES + 1}
    return [value & top for value in candidates if value & top != good]


def test_facts_are_replaced_by_as_many(region: Region, region_name: str) -> None:
    with Region.open(region_name, table_hash=TABLE_HASH) as other:
        region.set_facts(b"other")
        assert other.facts == b"other"
    with pytest.raises(RegionSizeError, match="3 bytes of facts in place of 5"):
        region.set_facts(b"few")
    assert region.facts == b"other"


def test_create_gives_a_region_that_open_accepts(region: Region, region_name: str) -> None:
    with Region.open(region_name, table_hash=TABLE_HASH) as other:
        assert other.facts == b"facts"
        assert other.wake is Wake.FUTEX
        seen = [other.host_state]
        region.set_host_state(HostState.UP)
        assert [*seen, other.host_state] == [HostState.DOWN, HostState.UP]
        assert other.statistics().nr_free_pages == region.statistics().nr_heap_pages
        assert other.base != region.base
    assert Path("/dev/shm", region_name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "nbytes", [REGION_MIN_BYTES, REGION_MIN_BYTES + PAGE_BYTES, 2049 * 4 * PAGE_BYTES + 23 * PAGE_BYTES, 1 << 28]
)
def test_the_parts_fill_the_region_without_overlap(region_name: str, nbytes: int) -> None:
    with Region.create(region_name, nbytes, table_hash=1) as region:
        c = region.c_region
        owners_offset = PAGE_BYTES + FACTS_BYTES + NR_CLIENTS * 320 + lib.FGV_EVENTS_BYTES
        heap_offset = int(c.heap - c.base)
        assert heap_offset % PAGE_BYTES == 0
        assert owners_offset + 2 * c.nr_heap_pages <= heap_offset
        assert heap_offset + c.nr_heap_pages * PAGE_BYTES == nbytes
        assert heap_offset - owners_offset - 2 * c.nr_heap_pages < PAGE_BYTES + 4, "a page was given away"


@pytest.mark.parametrize(
    ("nbytes", "facts"),
    [
        (0, b""),
        (PAGE_BYTES, b""),
        (REGION_MIN_BYTES - PAGE_BYTES, b""),
        (REGION_MIN_BYTES + 1, b""),
        (REGION_MIN_BYTES, bytes(FACTS_BYTES + 1)),
    ],
)
def test_impossible_sizes_leave_nothing_behind(region_name: str, nbytes: int, facts: bytes) -> None:
    with pytest.raises(RegionSizeError):
        Region.create(region_name, nbytes, table_hash=1, facts=facts)
    assert not Path("/dev/shm", region_name).exists()


def test_a_taken_name_is_left_alone(region: Region, region_name: str) -> None:
    with pytest.raises(FileExistsError):
        Region.create(region_name, REGION_MIN_BYTES, table_hash=1)
    assert region.check(table_hash=TABLE_HASH) is RegionStatus.OK


def test_open_says_what_is_wrong(region: Region, region_name: str, tmp_path: Path) -> None:
    with pytest.raises(RegionError, match="same FairGV release") as caught:
        Region.open(region_name, table_hash=TABLE_HASH + 1)
    assert caught.value.status is RegionStatus.WRONG_TABLE
    empty = tmp_path / "region"
    empty.write_bytes(bytes(REGION_MIN_BYTES))
    with pytest.raises(RegionError, match="fairgv-host start") as caught:
        Region.open(str(empty), table_hash=TABLE_HASH)
    assert caught.value.status is RegionStatus.NO_MAGIC
    os.truncate(empty, 100)
    with pytest.raises(RegionError):
        Region.open(str(empty), table_hash=TABLE_HASH)
    with pytest.raises(FileNotFoundError):
        Region.open(region_name + "-missing", table_hash=TABLE_HASH)


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_each_header_field_is_checked(guest: Guest, field: str) -> None:
    offset, nbytes, status = HEADER_FIELDS[field]
    good = bytes(guest.memory[offset : offset + nbytes])
    for value in bad_values(int.from_bytes(good, "little"), nbytes):
        if (field, value) == ("facts_bytes", 0):
            continue
        guest.memory[offset : offset + nbytes] = value.to_bytes(nbytes, "little")
        if field == "facts_bytes" and value <= FACTS_BYTES:
            assert guest.region.check(table_hash=TABLE_HASH) is RegionStatus.OK
        else:
            assert guest.region.check(table_hash=TABLE_HASH) is status, hex(value)
    guest.memory[offset : offset + nbytes] = good
    assert guest.region.check(table_hash=TABLE_HASH) is RegionStatus.OK


def test_each_status_has_its_own_sentence() -> None:
    texts = {ffi.string(lib.fgv_region_status_text(status)).decode() for status in RegionStatus}
    assert len(texts) == len(RegionStatus)


def test_in_heap_knows_no_overflow(region: Region) -> None:
    c = region.c_region
    heap_offset = int(c.heap - c.base)
    end = region.region_bytes
    inside = [(heap_offset, 0), (heap_offset, end - heap_offset), (end, 0), (end - 1, 1)]
    outside = [
        (heap_offset - 1, 1), (0, 0), (end, 1), (end + 1, 0), (heap_offset, end - heap_offset + 1), (heap_offset, 2**64 - 1),
        (2**64 - 1, 2), (2**64 - PAGE_BYTES, PAGE_BYTES + heap_offset), (end - 1, 2**64 - end + 1),
    ]  # fmt: skip
    assert all(lib.fgv_region_in_heap(c, offset, nbytes) for offset, nbytes in inside)
    assert not any(lib.fgv_region_in_heap(c, offset, nbytes) for offset, nbytes in outside)


def test_a_good_entry_is_read_whole(guest: Guest) -> None:
    entry = guest.good_entry()
    guest.write(entry)
    layout = read_layout(guest.region, guest.index)
    assert layout is not None
    for field in ("address", "commit_key", "ring_bytes", "nr_responses", "nr_chunks", "chunk_bytes", "pid"):
        assert getattr(layout, field) == getattr(entry, field)
    assert (layout.ring.offset, layout.ring.bytes) == (entry.ring_offset, entry.ring_bytes + 192)
    assert (layout.responses.offset, layout.responses.bytes) == (entry.responses_offset, 64 * 512)
    assert (layout.chunks.offset, layout.chunks.bytes) == (entry.chunks_offset, 4 * 8)
    assert (layout.arena.offset, layout.arena.bytes) == (entry.arena_offset, 4 * 65536)
    assert ffi.string(layout.program).decode() == "vectorAdd"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("address", [0, 1, 4096, 0x2000_0000_0001, 0x7FFF_FFFF_F000, 0x8000_0000_0000, 0xFFFF_8000_0000_0000, 2**64 - 4096]),
        ("ring_bytes", [0, 1, 64, 32768, 65536 - 64, 65537, 98304, 131072, 1 << 25, 1 << 31, 2**32 - 1]),
        ("nr_responses", [0, 1025, 2**31, 2**32 - 1, 129]),
        ("nr_chunks", [0, 1025, 2**31, 2**32 - 1, 1024]),
        ("chunk_bytes", [0, 64, 4095, 4097, 65536 + 64, 131072, (1 << 24) + 4096, 2**31, 2**32 - 4096]),
    ],
)  # fmt: skip
def test_sizes_out_of_bounds_are_refused(guest: Guest, field: str, values: list[int]) -> None:
    entry = guest.good_entry()
    assert guest.is_accepted(entry)
    for value in values:
        assert not guest.is_accepted(entry, **{field: value}), hex(value)


@pytest.mark.parametrize("part", ["ring", "responses", "chunks", "arena"])
def test_a_part_must_be_the_clients_own_aligned_and_apart(guest: Guest, part: str) -> None:
    entry = guest.good_entry()
    field = f"{part}_offset"
    good = getattr(entry, field)
    others = [getattr(entry, f"{other}_offset") for other in ("ring", "responses", "chunks", "arena") if other != part]
    foreign = Guest(guest.region, guest.index + 1)
    foreign_offset = foreign.allocate(1 << 20)
    del foreign.memory
    free_offset = guest.region.region_bytes - (1 << 20)
    outside = [0, PAGE_BYTES, guest.region.region_bytes, guest.region.region_bytes - 64, 2**63, 2**64 - PAGE_BYTES]
    for value in [*others, *outside, foreign_offset, free_offset, good + 8, good + 1]:
        assert not guest.is_accepted(entry, **{field: value}), hex(value)
    assert guest.is_accepted(entry)
    lib.fgv_heap_free(guest.region.c_region, guest.index, good // PAGE_BYTES * PAGE_BYTES, 1)
    assert not guest.is_accepted(entry), "a page that was given back"


def test_the_arena_must_start_at_a_page(guest: Guest) -> None:
    entry = replace(guest.good_entry(), arena_offset=guest.allocate(5 * 65536))
    assert guest.is_accepted(entry)
    assert not guest.is_accepted(entry, arena_offset=entry.arena_offset + 64)


def test_parts_may_share_a_page_but_no_byte(guest: Guest) -> None:
    entry = guest.good_entry()
    block = guest.allocate(2 * PAGE_BYTES + 64 * 512)
    packed = replace(entry, responses_offset=block, chunks_offset=block + 64 * 512)
    assert guest.is_accepted(packed)
    assert not guest.is_accepted(packed, chunks_offset=block + 64 * 512 - 64)


def test_no_such_entry(region: Region) -> None:
    assert read_layout(region, NR_CLIENTS) is None
    assert read_layout(region, 2**32 - 1) is None
    with pytest.raises(IndexError):
        region.client(NR_CLIENTS)


def test_names_from_a_guest_are_made_fit_to_print(guest: Guest) -> None:
    entry = guest.good_entry()
    guest.write(replace(entry, program=b"\x1b[31m\xffname" + b"x" * 54))
    assert guest.region.client(guest.index).program == "?[31m?name" + "x" * 53
    layout = read_layout(guest.region, guest.index)
    assert layout is not None
    assert ffi.string(layout.program).decode() == "?[31m?name" + "x" * 53


def test_clients_are_snapshots(guest: Guest) -> None:
    assert guest.region.clients() == ()
    guest.write(guest.good_entry())
    guest.poke("beat", 7)
    (client,) = guest.region.clients()
    assert (client.index, client.state, client.beat, client.pid) == (5, ClientState.HELLO, 7, 4711)
    assert client.boot_id == bytes(range(16))
    guest.poke("state", 77)
    assert client.state == ClientState.HELLO
    assert guest.region.client(5).state == 77
    with pytest.raises(dataclasses.FrozenInstanceError):
        client.pid = 1  # type: ignore[misc]


def test_refusing_works_once(guest: Guest) -> None:
    guest.write(guest.good_entry())
    assert guest.region.refuse(guest.index, 803)
    assert guest.region.client(guest.index).refusal == 803
    assert guest.region.client(guest.index).state == ClientState.REFUSED
    assert not guest.region.refuse(guest.index, 999)
    assert not guest.region.refuse(NR_CLIENTS, 999)


def test_only_a_ready_client_is_marked_dead(guest: Guest) -> None:
    guest.write(guest.good_entry(), ClientState.CLOSING)
    assert not guest.region.declare_dead(guest.index)
    guest.poke("state", ClientState.READY)
    assert guest.region.declare_dead(guest.index)
    assert guest.region.client(guest.index).state == ClientState.DEAD


def test_freeing_takes_pages_back_and_clears_the_hosts_words(guest: Guest) -> None:
    guest.write(guest.good_entry(), ClientState.CLOSING)
    words = ("refusal", "deferred_error", "sticky_error", "output_pending")
    for field in words:
        guest.poke(field, 700)
    before = guest.region.statistics()
    assert before.nr_client_pages[guest.index] > 0
    assert not guest.region.free(guest.index, ClientState.READY), "the state was another"
    assert guest.region.statistics() == before
    assert guest.region.free(guest.index, ClientState.CLOSING)
    after = guest.region.statistics()
    assert after.nr_free_pages == after.nr_heap_pages
    assert after.nr_clients == 0
    assert [guest.peek(field) for field in words] == [0, 0, 0, 0]
    assert not guest.region.free(guest.index, ClientState.FREE)


def test_statistics_count_every_page(guest: Guest) -> None:
    guest.allocate(3 * PAGE_BYTES)
    owners_offset = int.from_bytes(guest.memory[48:56], "little")
    guest.memory[owners_offset + 2000 : owners_offset + 2002] = b"\xff\xff"
    statistics = guest.region.statistics()
    assert statistics.nr_client_pages[guest.index] == 3
    assert statistics.nr_stray_pages == 1
    assert statistics.nr_free_pages == statistics.nr_heap_pages - 4
    assert statistics.region_bytes == guest.region.region_bytes


def held_up(region: Region) -> int:
    """The beat, after a while in which no other thread of Python could do anything: this one keeps the interpreter's lock."""
    ctypes.PyDLL(None).usleep(int(2e6 * BEAT_SECONDS))
    return region.host_beat()


def test_it_beats_while_python_stands_still(region: Region) -> None:
    region.keep_beating(3600)
    before = region.host_beat()
    assert before > 0
    assert any(region.host_beat() < held_up(region) for _ in range(100))


def test_it_beats_no_longer_than_it_was_told(region_name: str, region: Region) -> None:
    with Region.create(f"{region_name}-other", REGION_MIN_BYTES, table_hash=TABLE_HASH) as other:
        other.unlink()
        other.keep_beating(3600)
        region.keep_beating(0)
        assert region.host_beat() == 1
        while other.host_beat() < 4:
            other.wait_announce(BEAT_SECONDS)
        region.stop_beating()
        assert region.host_beat() == 1


def test_announcements_are_counted(region: Region) -> None:
    assert not region.wait_announce(0)
    region.announce()
    region.announce()
    assert region.wait_announce(0)
    assert not region.wait_announce(0)
    assert region.statistics().nr_announcements == 2


def test_the_first_announcement_in_a_region_that_was_laid_out_anew_is_heard(region: Region) -> None:
    region.announce()
    assert region.wait_announce(0)
    region.format(table_hash=1)
    region.announce()
    assert region.wait_announce(0)


@pytest.mark.parametrize("wake", list(Wake))
def test_an_announcement_wakes_a_waiting_daemon(region_name: str, wake: Wake) -> None:
    with Region.create(region_name, REGION_MIN_BYTES, table_hash=1, wake=wake) as region:
        woken: list[bool] = []
        waiter = threading.Thread(target=lambda: woken.append(region.wait_announce(600)))
        waiter.start()
        region.announce()  # runs while the other thread waits or before it does: the GIL is free, or the count is seen
        waiter.join(60)
        assert woken == [True]


@pytest.mark.parametrize("wake", list(Wake))
def test_a_signal_ends_the_wait(region_name: str, wake: Wake) -> None:
    class InterruptionError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise InterruptionError

    with Region.create(region_name, REGION_MIN_BYTES, table_hash=1, wake=wake) as region:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(InterruptionError):
                signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
                region.wait_announce(600)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_format_forgets_everything(guest: Guest) -> None:
    guest.write(guest.good_entry())
    at = guest.good_entry().arena_offset
    guest.memory[at : at + 6] = b"secret"
    guest.region.format(table_hash=TABLE_HASH, facts=b"new")
    assert guest.region.clients() == ()
    assert guest.region.statistics().nr_free_pages == guest.region.statistics().nr_heap_pages
    assert guest.region.facts == b"new"
    assert bytes(guest.memory[at : at + 6]) == bytes(6)


def test_a_closed_region_says_so(region_name: str) -> None:
    region = Region.create(region_name, REGION_MIN_BYTES, table_hash=1)
    region.close()
    region.close()
    for use in (
        region.clients,
        lambda: region.keep_beating(0),
        region.statistics,
        lambda: region.base,
        lambda: region.check(table_hash=1),
    ):
        with pytest.raises(RegionClosedError):
            use()
    region.unlink()
    region.unlink()
    assert not Path("/dev/shm", region_name).exists()
