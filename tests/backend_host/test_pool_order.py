"""What was freed is nobody else's while work that comes before its free may use it: also by the order of the legacy default stream."""

from collections.abc import Iterator

import pytest

from tests.backend_host.test_host_functions import MAILBOX, open_mailbox, posted, rearm
from tests.backend_host.test_worker_memory import (
    OUT_OF_MEMORY,
    PAGE,
    POOL_STEP,
    RESERVED_CURRENT,
    SPAN,
    keep_everything,
    pooled,
)
from tests.backend_host.worker_guest import EVENT, STREAM, Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

DEVICE = 4 << 30
"""Memory of softgpu's."""
LEGACY, PER_THREAD = 0, 2
BLOCKING, FREE = STREAM, STREAM + 1
"""With the legacy stream, and without."""


@pytest.fixture
def guest() -> Iterator[Guest]:
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            guest = Served(host, region, memory="span").primary()
            guest.ok("span_open", address=SPAN, bytes=1 << 34)
            guest.cast_off("cuStreamCreate", phStream=BLOCKING, Flags=0)
            guest.cast_off("cuStreamCreate", phStream=FREE, Flags=1)
            guest._free.remove(MAILBOX)
            open_mailbox(guest)
            yield guest
    finally:
        host.close()


def use(guest: Guest, addresses: list[int], stream: int) -> None:
    """By work that begins when the function's end is told."""
    guest.cast_off("cuLaunchHostFunc", stream=stream, function=1)
    assert posted(guest) == (1, 0)
    for address in addresses:
        guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=7, N=PAGE // 4, hStream=stream)


def reserved_bytes(guest: Guest) -> int:
    return int(guest.ok("cuMemPoolGetAttribute", attribute=RESERVED_CURRENT).value)


@pytest.mark.parametrize(
    ("used_in", "freed_in"), [(BLOCKING, LEGACY), (LEGACY, BLOCKING), (PER_THREAD, LEGACY), (LEGACY, PER_THREAD)]
)
def test_what_may_be_used_is_nobody_elses(guest: Guest, used_in: int, freed_in: int) -> None:
    keep_everything(guest)
    freed = [pooled(guest, PAGE) for _ in range(2)]
    use(guest, freed, used_in)
    for address in freed:
        guest.cast_off("cuMemFreeAsync", address=address, stream=freed_in)
    assert guest.call("cuMemAlloc_v2", bytesize=2 * DEVICE).result == OUT_OF_MEMORY
    assert reserved_bytes(guest) == POOL_STEP, "it was asked for all that is free, and has that still"
    assert not {pooled(guest, PAGE, stream=FREE) for _ in range(2)} & set(freed)
    assert {pooled(guest, PAGE, stream=freed_in) for _ in range(2)} == set(freed), "what comes there comes behind"
    rearm(guest)
    guest.ok("cuCtxSynchronize")


@pytest.mark.parametrize(("used_in", "freed_in"), [(BLOCKING, LEGACY), (LEGACY, BLOCKING)])
def test_what_was_used_goes_back_when_the_work_is_over(guest: Guest, used_in: int, freed_in: int) -> None:
    """Though nobody waits for it, and no more work comes."""
    freed = [pooled(guest, PAGE) for _ in range(3)]
    use(guest, freed, used_in)
    for address in freed:
        guest.cast_off("cuMemFreeAsync", address=address, stream=freed_in)
    rearm(guest)
    wait_until(lambda: reserved_bytes(guest) == 0, "all of it is free")


def test_what_is_freed_behind_an_event_goes_back_when_that_has_come(guest: Guest) -> None:
    """In a stream without work of its own."""
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    keep_everything(guest)
    freed = [pooled(guest, PAGE) for _ in range(2)]
    use(guest, freed, FREE)
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=FREE)
    guest.cast_off("cuStreamWaitEvent", hStream=BLOCKING, hEvent=EVENT)
    for address in freed:
        guest.cast_off("cuMemFreeAsync", address=address, stream=BLOCKING)
    assert pooled(guest, PAGE, stream=FREE) not in freed
    rearm(guest)
    wait_until(lambda: pooled(guest, PAGE, stream=FREE) in freed, "its use is over")


def test_streams_without_order_do_not_wait_for_each_other(guest: Guest) -> None:
    keep_everything(guest)
    address = pooled(guest, PAGE)
    use(guest, [], LEGACY)
    guest.cast_off("cuMemFreeAsync", address=address, stream=FREE)
    assert pooled(guest, PAGE, stream=BLOCKING) == address
    rearm(guest)
    guest.ok("cuCtxSynchronize")
