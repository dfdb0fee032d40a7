"""A worker whose memory makes room for others', by targets that are set by hand."""

import contextlib
import struct
from collections.abc import Callable, Iterator

from backend_host.device.readings import Room
from tests.backend_host.worker_guest import Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

SPAN = 0x3000_0000_0000
STEP = 2 << 20
CAPACITY = 16 * STEP
DEVICE = 4 << 30
"""Memory of softgpu's; it is only taken as it is written to."""
OUT_OF_MEMORY, INVALID_VALUE = 2, 1
PHYSICAL = 0x4C_00000001_000001


def serving(host: Host | None = None) -> Iterator[Served]:
    """Its client may have all of a device that is short, and has its span open."""
    host = host or Host(SOFTGPU)
    try:
        host.control.set_capacity(CAPACITY, 2 * CAPACITY)
        with make_region() as region:
            served = Served(host, region, memory="span")
            set_target(served, CAPACITY)
            served.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
            yield served
    finally:
        host.close()


def set_target(served: Served, nbytes: int) -> None:
    served.host.control.set_target(served.worker.slot, nbytes)


def room(served: Served) -> Room:
    [found] = [each for each in served.host.control.rooms() if each.slot == served.worker.slot]
    return found


def wait_for(served: Served, is_so: Callable[[Room], bool], what: str) -> None:
    wait_until(lambda: is_so(room(served)), what)


def moved(served: Served) -> tuple[int, int]:
    """Bytes that were copied, out and in."""
    worker = served.host.control.worker(served.worker.slot)
    assert worker is not None
    return worker.swapped_out_bytes, worker.swapped_in_bytes


def compared(served: Served) -> tuple[int, int]:
    """Bytes that were looked at twice, and what of them had changed."""
    worker = served.host.control.worker(served.worker.slot)
    assert worker is not None
    return worker.compared_bytes, worker.changed_bytes


def bring_out(served: Served, target: int = 0) -> None:
    set_target(served, target)
    wait_for(served, lambda each: each.resident_bytes <= target, "it has gone")


def allocate(guest: Guest, nbytes: int) -> int:
    return int(guest.ok("cuMemAlloc_v2", bytesize=nbytes).dptr)


def filled(guest: Guest, nr: int, each: int = STEP) -> list[int]:
    """Allocations of one extent each, whose words are their numbers."""
    addresses = [allocate(guest, each) for _ in range(nr)]
    for number, address in enumerate(addresses):
        guest.ok("cuMemsetD32Async", dstDevice=address, ui=number + 1, N=each // 4, hStream=0)
    guest.ok("cuCtxSynchronize")
    return addresses


def first_word(guest: Guest, address: int) -> int:
    return int(struct.unpack("<I", guest.from_device(address, 4))[0])


def words(guest: Guest, addresses: list[int], each: int = STEP) -> list[tuple[int, int]]:
    """The first and the last of each."""
    return [(first_word(guest, address), first_word(guest, address + each - 4)) for address in addresses]


def numbered(nr: int) -> list[tuple[int, int]]:
    return [(number + 1, number + 1) for number in range(nr)]


@contextlib.contextmanager
def two_full(served: Served) -> Iterator[tuple[Served, Served]]:
    """It, and one beside it: each may have seven steps of the device, and has them."""
    with make_region() as region:
        other = Served(served.host, region, memory="span")
        other.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
        for each in (served, other):
            set_target(each, 7 * STEP)
            filled(each.guest, 7)
        yield served, other
