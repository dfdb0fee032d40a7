"""A suspended vGPU's programs: their memory leaves the device, and comes back with their next call, or when they are told to."""

from collections.abc import Iterator

import pytest

from backend_host.device.readings import Keeps, WorkerReading
from ivshmem.region import ClientState
from tests.backend_host.swapping import (
    DEVICE,
    OUT_OF_MEMORY,
    SPAN,
    STEP,
    allocate,
    filled,
    first_word,
    numbered,
    words,
)
from tests.backend_host.worker_guest import PRIMARY, Guest, make_region, wait_for_state
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until


@pytest.fixture
def roomy() -> Iterator[Served]:
    """Its device has room for all that may be allocated."""
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            served = Served(host, region, memory="span")
            served.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
            yield served
    finally:
        host.close()


def suspend(served: Served, *, is_suspended: bool = True) -> None:
    served.host.control.set_suspended(served.vgpu, is_suspended=is_suspended)


def reading(served: Served) -> WorkerReading:
    found = served.host.control.worker(served.worker.slot)
    assert found is not None
    return found


def wait_until_out(served: Served) -> None:
    wait_until(lambda: reading(served).resident_bytes == 0, "it has gone")


def test_a_suspended_program_comes_back_with_its_next_call(roomy: Served) -> None:
    guest = roomy.guest
    addresses = filled(guest, 3)
    suspend(roomy)
    wait_until_out(roomy)
    assert reading(roomy).is_suspended
    assert words(guest, addresses) == numbered(3)
    assert not reading(roomy).is_suspended
    assert reading(roomy).resident_bytes == 3 * STEP
    suspend(roomy)
    wait_until_out(roomy)
    assert reading(roomy).is_suspended, "once more"
    assert words(guest, addresses) == numbered(3)


def test_a_suspended_program_is_brought_back(roomy: Served) -> None:
    guest = roomy.guest
    addresses = filled(guest, 3)
    suspend(roomy)
    wait_until_out(roomy)
    suspend(roomy, is_suspended=False)
    wait_until(lambda: reading(roomy).resident_bytes == 3 * STEP, "it is back")
    assert not reading(roomy).is_suspended
    assert words(guest, addresses) == numbered(3)


def test_memory_that_a_suspended_program_asks_for_is_there(roomy: Served) -> None:
    """And what the device has not is refused."""
    guest = roomy.guest
    [address] = filled(guest, 1)
    suspend(roomy)
    wait_until_out(roomy)
    other = allocate(guest, STEP)
    assert reading(roomy).resident_bytes >= STEP
    suspend(roomy)
    wait_until_out(roomy)
    assert guest.call("cuMemAlloc_v2", bytesize=2 * DEVICE).result == OUT_OF_MEMORY
    guest.ok("cuMemsetD32Async", dstDevice=other, ui=1, N=STEP // 4, hStream=0)
    assert words(guest, [address, other]) == [(1, 1)] * 2


def test_a_program_that_begins_in_a_suspended_vgpu_is_not(roomy: Served) -> None:
    filled(roomy.guest, 1)
    suspend(roomy)
    wait_until_out(roomy)
    with make_region() as region:
        guest = Guest(region)
        worker = roomy.host.start(region, 0, roomy.vgpu, memory="span")
        assert wait_for_state(region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        guest.ok("span_open", address=SPAN, bytes=4 * DEVICE)
        filled(guest, 2)
        began = roomy.host.control.worker(worker.slot)
        assert began is not None
        assert (began.is_suspended, began.resident_bytes) == (False, 2 * STEP)
    assert reading(roomy).is_suspended


def test_a_program_that_works_all_the_time_comes_back_at_once(roomy: Served) -> None:
    guest = roomy.guest
    addresses = filled(guest, 3)
    for turn in range(40):
        suspend(roomy)
        guest.ok("cuMemsetD32Async", dstDevice=addresses[turn % 3] + 8, ui=turn, N=1, hStream=0)
    assert words(guest, addresses) == numbered(3)
    assert [first_word(guest, address + 8) for address in addresses] == [39, 37, 38]


def test_a_suspended_program_that_shares_memory_goes_on(roomy: Served) -> None:
    guest = roomy.guest
    addresses = filled(guest, 2)
    guest.ok("ipc_export", address=addresses[0])
    suspend(roomy)
    wait_until(lambda: reading(roomy).keeps is Keeps.SHARED, "it says why it stays")
    assert words(guest, addresses) == numbered(2)
    assert reading(roomy).resident_bytes == 2 * STEP


def test_a_suspended_program_that_ends(roomy: Served) -> None:
    filled(roomy.guest, 3)
    suspend(roomy)
    wait_until_out(roomy)
    roomy.guest.close()
    assert "closed" in str(roomy.worker.ended()["ended"])
