"""Pages of the heap in place of memory of the device: what an honest guest has of it, and what one that lies gets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backend_host.between import build_between
from tests.backend_host.worker_guest import Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

STEP = 2 << 20
PAGE = 4096
QUOTA = 16 * STEP
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
ALLOCATION = 0x49_00000001_000001
OTHER = ALLOCATION + 1
READWRITE = 3


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(SOFTGPU)
    try:
        yield host
    finally:
        host.close()


@pytest.fixture
def served(host: Host) -> Iterator[Served]:
    with make_region() as region:
        yield Served(host, region, QUOTA)


def mapped(guest: Guest, nbytes: int = STEP, handle: int = ALLOCATION, room: int = 4 * STEP) -> int:
    address = int(guest.ok("cuMemAddressReserve", bytes=room).address)
    guest.ok("cuMemCreate", handle=handle, bytes=nbytes)
    guest.ok("cuMemMap", address=address, bytes=nbytes, handle=handle)
    guest.ok("cuMemSetAccess", address=address, bytes=nbytes, access=READWRITE)
    return address


def place(guest: Guest, address: int, offset: int, nbytes: int = STEP) -> int:
    return guest.call("host_place", address=address, bytes=nbytes, heap=(guest.address + offset) % 2**64).result


def unplace(guest: Guest, address: int, allocation: int = 0) -> int:
    return guest.call("host_unplace", address=address, allocation=allocation).result


def set_to(guest: Guest, address: int, value: int, nbytes: int = STEP) -> None:
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=value, N=nbytes)
    guest.ok("cuCtxSynchronize")


def used_bytes(served: Served) -> int:
    reading = served.host.control.vgpu(served.vgpu)
    assert reading is not None
    return reading.memory_bytes


def test_the_device_and_the_guest_have_the_same_pages(served: Served) -> None:
    guest = served.primary()
    address, offset = mapped(guest), guest.allocate(STEP)
    set_to(guest, address, 3)
    guest.write(offset, b"\x07" * STEP)
    assert place(guest, address, offset) == 0
    assert guest.from_device(address + STEP - PAGE, PAGE) == b"\x07" * PAGE
    set_to(guest, address, 9, PAGE)
    assert guest.read(offset, PAGE + 1) == b"\x09" * PAGE + b"\x07"
    guest.to_device(address + PAGE, b"four")
    guest.ok("cuCtxSynchronize")
    assert guest.read(offset + PAGE, 4) == b"four"
    assert unplace(guest, address, ALLOCATION) == 0
    assert guest.from_device(address, PAGE) == b"\x03" * PAGE, "the memory that was there"
    set_to(guest, address, 5)
    assert guest.read(offset, PAGE) == b"\x09" * PAGE, "which the guest does not have"


def test_the_memory_counts_as_long_as_the_guest_has_it(served: Served) -> None:
    guest = served.primary()
    address, offset = mapped(guest), guest.allocate(STEP)
    assert place(guest, address, offset) == 0
    assert used_bytes(served) == STEP, "its number is good"
    guest.ok("cuMemRelease", handle=ALLOCATION)
    assert used_bytes(served) == 0
    guest.ok("cuMemCreate", handle=OTHER, bytes=STEP)
    assert unplace(guest, address, OTHER) == 0
    guest.ok("cuMemRelease", handle=OTHER)
    assert used_bytes(served) == STEP, "it is mapped"
    guest.ok("cuMemUnmap", address=address, bytes=STEP)
    assert used_bytes(served) == 0
    guest.ok("cuMemAddressFree", address=address, bytes=4 * STEP)


def test_places_that_are_refused(served: Served) -> None:
    guest = served.primary()
    address, offset = mapped(guest, 2 * STEP), guest.allocate(2 * STEP)
    set_to(guest, address, 3, 2 * STEP)
    arena = guest.parts["arena"]
    for at, start, nbytes in [
        (address, offset, STEP),  # a part of what is mapped
        (address + STEP, offset, STEP),
        (address + 2 * STEP, offset, 2 * STEP),  # reserved, and nothing is mapped
        (0, offset, 2 * STEP),
        (guest.address + offset, offset, 2 * STEP),
        (address, offset + 1, 2 * STEP),
        (address, offset + PAGE, 2 * STEP),  # its end is nobody's
        (address, 0, 2 * STEP),  # the header's
        (address, -PAGE, 2 * STEP),
        (address, arena, 2 * STEP),
        (address, served.region.region_bytes - PAGE, 2 * STEP),
        (address, offset, 0),
        (address, offset, 2**64 - PAGE),
        (address, 2**64 - PAGE - guest.address, 2 * STEP),
    ]:
        assert place(guest, at, start, nbytes) == INVALID_VALUE, (at, start, nbytes)
    guest.ok("cuMemRelease", handle=ALLOCATION)
    assert place(guest, address, offset, 2 * STEP) == INVALID_VALUE, "it could not be had back"
    assert guest.from_device(address + 2 * STEP - PAGE, PAGE) == b"\x03" * PAGE


def test_what_is_placed_is_in_nobodys_way(served: Served) -> None:
    guest = served.primary()
    address, offset = mapped(guest), guest.allocate(STEP)
    guest.ok("cuMemCreate", handle=OTHER, bytes=2 * STEP)
    assert place(guest, address, offset) == 0
    assert place(guest, address, offset) == INVALID_VALUE, "twice"
    refused: list[tuple[str, dict[str, Any]]] = [
        ("cuMemMap", {"address": address, "bytes": STEP, "handle": ALLOCATION}),
        ("cuMemUnmap", {"address": address, "bytes": STEP}),
        ("cuMemSetAccess", {"address": address, "bytes": STEP, "access": READWRITE}),
        ("cuMemAddressFree", {"address": address, "bytes": 4 * STEP}),
        ("host_unplace", {"address": address + PAGE}),
        ("host_unplace", {"address": guest.address + offset}),
        ("host_unplace", {"address": address, "allocation": OTHER}),  # of another size
        ("host_unplace", {"address": address, "allocation": OTHER + 1}),
    ]
    for call, fields in refused:
        assert guest.call(call, **fields).result == INVALID_VALUE, (call, fields)
    set_to(guest, address, 4)
    assert guest.read(offset + STEP - 1, 1) == b"\x04"
    assert unplace(guest, address) == 0
    assert unplace(guest, address) == INVALID_VALUE
    guest.ok("cuMemMap", address=address, bytes=2 * STEP, handle=OTHER)


def test_memory_is_back_where_the_driver_registers_nothing(tmp_path: Path) -> None:
    host = Host(build_between("no_pinning", tmp_path))
    try:
        with make_region() as region:
            guest = Served(host, region, QUOTA).primary()
            address, offset = mapped(guest), guest.allocate(STEP)
            set_to(guest, address, 3)
            assert place(guest, address, offset) == OUT_OF_MEMORY
            assert guest.from_device(address, PAGE) == b"\x03" * PAGE
            assert unplace(guest, address) == INVALID_VALUE
            guest.ok("cuMemUnmap", address=address, bytes=STEP)
    finally:
        host.close()


def test_pages_stay_placed_while_contexts_come_and_go(served: Served) -> None:
    guest = served.primary()
    address, offset = mapped(guest), guest.allocate(STEP)
    assert place(guest, address, offset) == 0
    other = guest.context + 1
    guest.ok("context_create", context=0, handle=other, is_primary=0)
    guest.ok("context_destroy", context=0, handle=other)
    set_to(guest, address, 4)
    assert guest.read(offset, 1) == b"\x04"


def test_a_guest_that_goes_leaves_nothing(served: Served) -> None:
    guest = served.primary()
    assert place(guest, mapped(guest), guest.allocate(STEP)) == 0
    guest.ok("cuMemRelease", handle=ALLOCATION)
    mapped(guest, handle=OTHER)
    guest.close()
    served.worker.ended()
    assert used_bytes(served) == 0
