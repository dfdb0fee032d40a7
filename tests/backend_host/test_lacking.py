"""What stays on the device, where the memory of another program fills it: that makes room."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend_host.device.pager import Pager
from tests.backend_host.swapping import (
    DEVICE,
    OUT_OF_MEMORY,
    PHYSICAL,
    SPAN,
    STEP,
    filled,
    numbered,
    room,
    serving,
    wait_for,
    words,
)
from tests.backend_host.worker_guest import STREAM, Guest, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

HAS = 30 * STEP
"""Of the device, for programs."""
LARGE = 10 * STEP
NOT_SUPPORTED = 801
ARRAY, MIPMAP, MODULE = 0x49_00000001_000001, 0x4A_00000001_000001, 0x44_00000001_000001
VARIABLE = f".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 8 .b8 much[{LARGE}];\n"


@pytest.fixture
def both() -> Iterator[tuple[Served, Served]]:
    """Two programs, of which the second one's memory takes two thirds of a device that has no more; a pager makes room."""
    host = Host(SOFTGPU, {"FAIRGV_SOFTGPU_MEMORY": "64M"})
    for served in serving(host):
        host.control.set_capacity(HAS, 3 * HAS)
        pager = Pager(host.control, HAS, HAS, 0.05)
        pager.start()
        try:
            with make_region() as region:
                other = Served(host, region, memory="span")
                other.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
                wait_for(other, lambda each: each.target_bytes != 0, "there is room for it")
                yield served, other
        finally:
            pager.stop()


def shape(nbytes: int) -> dict[str, Any]:
    return {"width": 1024, "height": nbytes // 1024, "depth": 0, "format": 1, "nr_channels": 1}


def array(guest: Guest, nbytes: int = LARGE) -> int:
    return guest.call("cuArray3DCreate_v2", handle=ARRAY, **shape(nbytes)).result


def mipmapped(guest: Guest) -> int:
    return guest.call("cuMipmappedArrayCreate", handle=MIPMAP, nr_levels=1, **shape(LARGE)).result


def physical(guest: Guest) -> int:
    return guest.call("cuMemCreate", handle=PHYSICAL, bytes=LARGE, rdma=1).result


def held(guest: Guest) -> int:
    """What was promised, and is to be mapped in part: that is the driver's to say, of memory that it has."""
    guest.ok("cuMemCreate", handle=PHYSICAL, bytes=LARGE)
    reserved = int(guest.ok("cuMemAddressReserve", bytes=LARGE).address)
    part = guest.call("cuMemMap", address=reserved, bytes=STEP, handle=PHYSICAL)
    return part.result - NOT_SUPPORTED


def captured(guest: Guest) -> int:
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.ok("capture_begin", stream=STREAM)
    result = guest.call("cuMemAllocFromPoolAsync", pool=0, stream=STREAM, bytes=LARGE).result
    guest.ok("capture_end", stream=STREAM)  # else all of its memory would stay
    return result


def node(guest: Guest) -> int:
    graph = guest.ok("graph_create").graph
    pool = struct.pack("<iiii8x8x56x", 1, 0, 1, 0)
    params = struct.pack("<I12x", 10) + pool + struct.pack("<QQQQ", 0, 0, LARGE, 0)
    return guest.call("graph_add_node", params.ljust(256, b"\0"), graph=graph).result


def module(guest: Guest) -> int:
    return guest.load(kernel_image(VARIABLE), MODULE).result


STAYS: list[Callable[[Guest], int]] = [array, mipmapped, physical, held, captured, node, module]


@pytest.mark.parametrize("kind", STAYS, ids=[each.__name__ for each in STAYS])
def test_what_stays_has_the_room_of_what_moves(both: tuple[Served, Served], kind: Callable[[Guest], int]) -> None:
    served, other = both
    addresses = filled(other.guest, 3, 6 * STEP)
    filled(served.guest, 2, STEP)
    assert room(other).resident_bytes == 18 * STEP
    filled(served.guest, 1, 10 * STEP)
    assert kind(served.guest) == 0
    assert room(served).other_bytes >= LARGE
    assert sum(room(each).resident_bytes for each in both) < 30 * STEP, "of one, or of the other"
    assert words(other.guest, addresses, 6 * STEP) == numbered(3)


def captures(guest: Guest) -> None:
    """What it has stays until it ends that."""
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.ok("capture_begin", stream=STREAM)


@pytest.fixture
def keeping(both: tuple[Served, Served]) -> tuple[Served, Served, list[int]]:
    """Both have memory that cannot leave now; and the second one's."""
    served, other = both
    addresses = filled(other.guest, 3, 6 * STEP)
    filled(served.guest, 1, 6 * STEP)
    for each in both:
        captures(each.guest)
    return served, other, addresses


def test_others_requests_go_on_meanwhile(keeping: tuple[Served, Served, list[int]]) -> None:
    """What is waited for counts as if it were there, and then counts once."""
    served, other, addresses = keeping
    before = room(served).other_bytes
    slots = [
        served.guest.begin("cuArray3DCreate_v2", handle=ARRAY + number, **shape(nbytes))
        for number, nbytes in enumerate([LARGE, STEP])
    ]
    assert served.guest.finish("cuArray3DCreate_v2", slots[1]).result == 0, "there is room for that"
    wait_for(served, lambda each: each.other_bytes == before + LARGE + STEP, "it is waited for")
    assert not served.guest.is_answered(slots[0])
    other.guest.ok("capture_end", stream=STREAM)
    assert served.guest.finish("cuArray3DCreate_v2", slots[0]).result == 0
    wait_for(served, lambda each: each.other_bytes == before + LARGE + STEP, "it counts once")
    served.guest.ok("capture_end", stream=STREAM)
    assert words(other.guest, addresses, 6 * STEP) == numbered(3)


def test_who_cannot_leave_is_not_waited_for_for_ever(keeping: tuple[Served, Served, list[int]]) -> None:
    served, other, addresses = keeping
    before = room(served).other_bytes
    assert array(served.guest) == OUT_OF_MEMORY
    assert room(served).other_bytes == before
    assert words(other.guest, addresses, 6 * STEP) == numbered(3)


def test_who_ends_while_it_lacks_room_leaves_nothing(keeping: tuple[Served, Served, list[int]]) -> None:
    served, other, _ = keeping
    before = room(served).other_bytes
    served.guest.begin("cuArray3DCreate_v2", handle=ARRAY, **shape(LARGE))
    wait_for(served, lambda each: each.other_bytes == before + LARGE, "it is waited for")
    served.guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}
    assert array(other.guest) == 0, "the room is another's"


def test_nothing_stays_that_leaves_another_no_room(both: tuple[Served, Served]) -> None:
    """It would never run again."""
    served, other = both
    addresses = filled(other.guest, 3, 7 * STEP)
    filled(served.guest, 1, 4 * STEP)
    before = room(served).other_bytes
    assert array(served.guest) == OUT_OF_MEMORY
    assert room(served).other_bytes == before
    assert words(other.guest, addresses, 7 * STEP) == numbered(3)
    assert array(served.guest, HAS - 21 * STEP) == 0
    reading = served.host.control.worker(served.worker.slot)
    assert reading is not None
    assert reading.allocated_bytes == 4 * STEP + HAS - 21 * STEP
