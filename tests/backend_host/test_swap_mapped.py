"""Memory that the client maps itself makes room as other memory does, and stays where the driver's own handle is needed."""

from collections.abc import Iterator
from typing import Any

import pytest

from backend_host.device.readings import Keeps
from tests.backend_host.swapping import (
    CAPACITY,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    PHYSICAL,
    STEP,
    allocate,
    bring_out,
    filled,
    numbered,
    room,
    serving,
    set_target,
    wait_for,
    words,
)
from tests.backend_host.worker_guest import STREAM, Guest
from tests.backend_host.worker_harness import Served

NOT_READY, NOT_SUPPORTED = 600, 801


@pytest.fixture
def served() -> Iterator[Served]:
    yield from serving()


def mapped(guest: Guest, number: int, nbytes: int = STEP, address: int = 0) -> int:
    """Memory of cuMemCreate, where the client reserved addresses, or at this one of them."""
    guest.ok("cuMemCreate", handle=number, bytes=nbytes, is_shareable=1)
    address = address or int(guest.ok("cuMemAddressReserve", bytes=nbytes).address)
    guest.ok("cuMemMap", address=address, bytes=nbytes, handle=number)
    guest.ok("cuMemSetAccess", address=address, bytes=nbytes, access=3)
    return address


def set_words(guest: Guest, address: int, value: int, nbytes: int = STEP) -> None:
    guest.ok("cuMemsetD32Async", dstDevice=address, ui=value, N=nbytes // 4, hStream=0)
    guest.ok("cuCtxSynchronize")


def test_memory_that_the_client_maps_itself_makes_room_too(served: Served) -> None:
    guest = served.guest
    own = filled(guest, 2)
    there = [mapped(guest, PHYSICAL + number) for number in range(3)]
    for number, address in enumerate(there):
        set_words(guest, address, number + 1)
    assert (room(served).allocated_bytes, room(served).resident_bytes) == (5 * STEP, 5 * STEP)
    for target in (0, STEP, 4 * STEP):
        bring_out(served, target)
        assert room(served).resident_bytes == target
        set_target(served, CAPACITY)
        assert words(guest, there) == numbered(3)
        assert words(guest, own) == numbered(2)
    for number, address in enumerate(there):
        guest.ok("cuMemUnmap", address=address, bytes=STEP)
        guest.ok("cuMemRelease", handle=PHYSICAL + number)
        guest.ok("cuMemAddressFree", address=address, bytes=STEP)
    assert (room(served).allocated_bytes, room(served).resident_bytes) == (2 * STEP, 2 * STEP)


def test_what_is_promised_takes_nothing_of_the_device(served: Served) -> None:
    """And it does when the driver's own handle is needed for it."""
    guest = served.guest
    before = room(served).other_bytes
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=4 * STEP)
    assert room(served).other_bytes == before
    address = int(guest.ok("cuMemAddressReserve", bytes=8 * STEP).address)
    guest.ok("cuMemMap", address=address, bytes=4 * STEP, handle=PHYSICAL)
    assert (room(served).other_bytes, room(served).allocated_bytes) == (before, 4 * STEP)
    guest.ok("cuMemMap", address=address + 4 * STEP, bytes=4 * STEP, handle=PHYSICAL)
    assert (room(served).other_bytes, room(served).allocated_bytes) == (before + 4 * STEP, 0)
    guest.ok("cuMemUnmap", address=address, bytes=8 * STEP)
    guest.ok("cuMemRelease", handle=PHYSICAL)
    assert room(served).other_bytes == before


def test_what_is_mapped_while_there_is_no_room_comes_when_there_is(served: Served) -> None:
    guest = served.guest
    set_target(served, 0)
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=STEP)
    address = int(guest.ok("cuMemAddressReserve", bytes=STEP).address)
    guest.ok("cuMemMap", address=address, bytes=STEP, handle=PHYSICAL)
    assert (room(served).allocated_bytes, room(served).resident_bytes) == (STEP, 0)
    slot = guest.begin("cuMemSetAccess", address=address, bytes=STEP, access=3)
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it waits for its memory")
    set_target(served, CAPACITY)
    assert guest.finish("cuMemSetAccess", slot).result == 0
    set_words(guest, address, 7)
    assert words(guest, [address]) == [(7, 7)]


def test_an_address_that_the_driver_takes_no_memory_at_is_refused_while_there_is_no_room(served: Served) -> None:
    """Else its memory is waited for that never comes, and others wait for who waits."""
    guest = served.guest
    set_target(served, 0)
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=STEP)
    reserved = int(guest.ok("cuMemAddressReserve", bytes=2 * STEP).address)
    for offset in (1, 4096, STEP // 2, STEP - 1):
        odd = guest.call("cuMemMap", address=reserved + offset, bytes=STEP, handle=PHYSICAL)
        assert odd.result == INVALID_VALUE, offset
    assert (room(served).allocated_bytes, room(served).resident_bytes) == (0, 0)
    guest.ok("cuMemMap", address=reserved + STEP, bytes=STEP, handle=PHYSICAL)
    set_target(served, CAPACITY)
    guest.ok("cuMemSetAccess", address=reserved + STEP, bytes=STEP, access=3)
    set_words(guest, reserved + STEP, 7)
    assert words(guest, [reserved + STEP]) == [(7, 7)]


def test_promises_are_kept_within_what_there_is(served: Served) -> None:
    guest = served.guest
    allocate(guest, 4 * STEP)
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=CAPACITY - 4 * STEP)
    assert guest.ok("cuMemGetInfo_v2").free == 0
    assert guest.call("cuMemCreate", handle=PHYSICAL + 1, bytes=STEP).result == OUT_OF_MEMORY
    address = allocate(guest, STEP)
    reserved = int(guest.ok("cuMemAddressReserve", bytes=CAPACITY).address)
    whole: dict[str, Any] = {"address": reserved, "bytes": CAPACITY - 4 * STEP, "handle": PHYSICAL}
    assert guest.call("cuMemMap", **whole).result == OUT_OF_MEMORY, "something else took it"
    guest.ok("cuMemFree_v2", dptr=address)
    guest.ok("cuMemMap", **whole)
    assert room(served).allocated_bytes == CAPACITY
    guest.ok("cuMemUnmap", address=reserved, bytes=CAPACITY - 4 * STEP)
    guest.ok("cuMemRelease", handle=PHYSICAL)
    for number in range(3):
        guest.ok("cuMemCreate", handle=PHYSICAL + 2 + number, bytes=4 * STEP)
        guest.ok("cuMemRelease", handle=PHYSICAL + 2 + number)
    assert guest.ok("cuMemGetInfo_v2").free == CAPACITY - 4 * STEP


def test_memory_that_is_unmapped_while_it_is_out_keeps_its_bytes(served: Served) -> None:
    guest = served.guest
    address = mapped(guest, PHYSICAL)
    set_words(guest, address, 6)
    bring_out(served)
    slot = guest.begin("cuMemUnmap", address=address, bytes=STEP)
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it has to be there")
    set_target(served, CAPACITY)
    assert guest.finish("cuMemUnmap", slot).result == 0
    assert room(served).allocated_bytes == 0
    again = int(guest.ok("cuMemAddressReserve", bytes=STEP).address)
    guest.ok("cuMemMap", address=again, bytes=STEP, handle=PHYSICAL)
    guest.ok("cuMemSetAccess", address=again, bytes=STEP, access=3)
    assert words(guest, [again]) == [(6, 6)]
    assert room(served).allocated_bytes == 0, "it stays on the device from now on"


@pytest.mark.parametrize("how", ["twice", "in part", "read only"])
def test_what_needs_the_driver_s_handle_stays(served: Served, how: str) -> None:
    guest = served.guest
    reserved = int(guest.ok("cuMemAddressReserve", bytes=4 * STEP).address)
    if how == "in part":
        guest.ok("cuMemCreate", handle=PHYSICAL, bytes=2 * STEP)
        part = guest.call("cuMemMap", address=reserved, bytes=STEP, handle=PHYSICAL)
        assert part.result == NOT_SUPPORTED, "that is the driver's to say, of memory that it has"
        guest.ok("cuMemMap", address=reserved, bytes=2 * STEP, handle=PHYSICAL)
        guest.ok("cuMemSetAccess", address=reserved, bytes=2 * STEP, access=3)
    else:
        mapped(guest, PHYSICAL, address=reserved)
    set_words(guest, reserved, 5)
    if how == "twice":
        guest.ok("cuMemMap", address=reserved + STEP, bytes=STEP, handle=PHYSICAL)
        guest.ok("cuMemSetAccess", address=reserved + STEP, bytes=STEP, access=3)
    if how == "read only":
        guest.ok("cuMemSetAccess", address=reserved, bytes=STEP, access=1)
    assert room(served).allocated_bytes == 0
    beside = filled(guest, 1)
    bring_out(served)
    set_target(served, CAPACITY)
    assert words(guest, beside) == numbered(1)
    assert words(guest, [reserved]) == [(5, 5)]
    if how == "twice":
        assert words(guest, [reserved + STEP]) == [(5, 5)]


def test_mapped_memory_that_is_shared_stays(served: Served) -> None:
    guest = served.guest
    address = mapped(guest, PHYSICAL)
    set_words(guest, address, 4)
    bring_out(served)
    slot = guest.begin("physical_export", handle=PHYSICAL)
    wait_for(served, lambda each: each.displaced_since_ns != 0, "it has to be there to be shared")
    set_target(served, CAPACITY)
    assert guest.finish("physical_export", slot).result == 0
    set_target(served, 0)
    wait_for(served, lambda each: each.keeps is Keeps.SHARED, "it says why it stays")
    assert words(guest, [address]) == [(4, 4)]


def test_a_client_that_lies_about_what_it_mapped(served: Served) -> None:
    guest = served.guest
    address = mapped(guest, PHYSICAL)
    bring_out(served)
    guest.ok("cuMemRelease", handle=PHYSICAL)
    while_it_is_out: list[tuple[str, dict[str, int]]] = [
        ("cuMemRelease", {"handle": PHYSICAL}),
        ("cuMemAddressFree", {"address": address, "bytes": STEP}),
        ("cuMemFree_v2", {"dptr": address}),
    ]
    afterwards: list[tuple[str, dict[str, int]]] = [
        ("cuMemMap", {"address": address, "bytes": STEP, "handle": PHYSICAL}),
        ("cuMemUnmap", {"address": address, "bytes": 2 * STEP}),
        ("cuMemUnmap", {"address": address + STEP, "bytes": STEP}),
        ("cuMemSetAccess", {"address": address - STEP, "bytes": 2 * STEP, "access": 1}),
        ("physical_export", {"handle": PHYSICAL}),
    ]
    for call, fields in while_it_is_out:
        assert guest.call(call, b"", **fields).result == INVALID_VALUE
    set_target(served, CAPACITY)
    for call, fields in afterwards:
        assert guest.call(call, b"", **fields).result == INVALID_VALUE
    guest.ok("cuMemUnmap", address=address, bytes=STEP)
    assert room(served).allocated_bytes == 0
    assert guest.call("cuMemUnmap", address=address, bytes=STEP).result == INVALID_VALUE


def test_memory_that_comes_to_be_mapped_behind_its_unmapping(served: Served) -> None:
    """The request waits for work; when it is carried out there is memory at the address that is not on the device."""
    guest = served.guest
    word = guest.allocate(4096)
    guest.ok("host_register", address=guest.address + word, bytes=4096)
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=STEP)
    address = int(guest.ok("cuMemAddressReserve", bytes=STEP).address)
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=guest.address + word, value=1)
    slot = guest.begin("cuMemUnmap", address=address, bytes=STEP)
    set_target(served, 0)
    guest.ok("cuMemMap", address=address, bytes=STEP, handle=PHYSICAL)
    guest.write_word(word, 1)
    assert guest.finish("cuMemUnmap", slot).result == NOT_READY
    set_target(served, CAPACITY)
    guest.ok("cuMemUnmap", address=address, bytes=STEP)
    guest.ok("cuMemRelease", handle=PHYSICAL)
    assert guest.ok("cuMemGetInfo_v2").free == CAPACITY
