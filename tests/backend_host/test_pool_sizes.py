"""How much a pool keeps, gives back, and may hold."""

import pytest

from tests.backend_host.test_worker_memory import (
    INVALID_VALUE,
    OUT_OF_MEMORY,
    PAGE,
    POOL,
    POOL_STEP,
    QUOTA,
    RELEASE_THRESHOLD,
    RESERVED_CURRENT,
    RESERVED_HIGH,
    USED_CURRENT,
    USED_HIGH,
    Spanned,
    host,
    keep_everything,
    pooled,
    served,
    used_bytes,
)
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import Host, Served

__all__ = ["host", "served"]  # fixtures


def test_what_a_pool_keeps_goes_when_the_work_is_over(served: Served) -> None:
    guest = served.primary()
    before = guest.ok("cuMemGetInfo_v2").free
    guest.cast_off("cuMemFreeAsync", address=pooled(guest, 3 * PAGE))
    guest.ok("cuCtxSynchronize")
    assert guest.ok("cuMemPoolGetAttribute", attribute=RESERVED_CURRENT).value == 0
    assert guest.ok("cuMemPoolGetAttribute", attribute=RESERVED_HIGH).value == POOL_STEP
    assert guest.ok("cuMemPoolGetAttribute", attribute=USED_HIGH).value == 3 * PAGE
    assert guest.ok("cuMemGetInfo_v2").free == before
    for attribute, value in ((RESERVED_HIGH, 1), (USED_CURRENT, 0), (RESERVED_CURRENT, 0)):
        assert guest.call("cuMemPoolSetAttribute", attribute=attribute, value=value).result == INVALID_VALUE
    guest.ok("cuMemPoolSetAttribute", attribute=RESERVED_HIGH, value=0)
    assert guest.ok("cuMemPoolGetAttribute", attribute=RESERVED_HIGH).value == 0


@pytest.mark.parametrize("is_shareable", [0, 1])
def test_a_pool_that_is_trimmed_keeps_as_much_as_it_is_told_to(served: Served, is_shareable: int) -> None:
    guest = served.primary()
    guest.ok("cuMemPoolCreate", handle=POOL, is_shareable=is_shareable)
    keep_everything(guest, POOL)
    guest.cast_off("cuMemFreeAsync", address=pooled(guest, 3 * PAGE, POOL))
    guest.ok("cuCtxSynchronize")
    for keep, kept in ((1 << 64) - 1, POOL_STEP), (POOL_STEP, POOL_STEP), (POOL_STEP - 1, POOL_STEP), (0, 0):
        guest.ok("cuMemPoolTrimTo", pool=POOL, keep_bytes=keep)
        assert guest.ok("cuMemPoolGetAttribute", pool=POOL, attribute=RESERVED_CURRENT).value == kept


@pytest.mark.parametrize("is_shareable", [0, 1])
def test_a_pool_that_grew_at_once_goes_back_in_steps(host: Host, is_shareable: int) -> None:
    """But for pieces, which go whole."""
    is_in_pieces = host.memory == "driver" or is_shareable
    with make_region() as region:
        guest = Spanned(host, region, memory=host.memory).primary()
        guest.ok("cuMemPoolCreate", handle=POOL, is_shareable=is_shareable)
        keep_everything(guest, POOL)
        guest.cast_off("cuMemFreeAsync", address=pooled(guest, 4 * POOL_STEP, POOL))
        guest.ok("cuCtxSynchronize")
        for keep, steps in (3 * POOL_STEP + 1, 4), (3 * POOL_STEP, 3), (POOL_STEP + 1, 2), (1, 1):
            guest.ok("cuMemPoolSetAttribute", pool=POOL, attribute=RELEASE_THRESHOLD, value=keep)
            kept = guest.ok("cuMemPoolGetAttribute", pool=POOL, attribute=RESERVED_CURRENT).value
            assert kept == (4 if is_in_pieces else steps) * POOL_STEP
        first, second = pooled(guest, POOL_STEP, POOL), pooled(guest, POOL_STEP, POOL)
        for address in (first, second):
            guest.ok("cuMemsetD8_v2", dstDevice=address, uc=1, N=POOL_STEP)
            guest.cast_off("cuMemFreeAsync", address=address)
        guest.ok("cuCtxSynchronize")
        guest.ok("cuMemPoolTrimTo", pool=POOL, keep_bytes=0)
        assert guest.ok("cuMemPoolGetAttribute", pool=POOL, attribute=RESERVED_CURRENT).value == 0


def test_a_pool_has_a_size_of_its_own(served: Served) -> None:
    guest = served.primary()
    guest.ok("cuMemPoolCreate", handle=POOL, max_bytes=POOL_STEP)
    pooled(guest, 3 * PAGE, POOL)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=POOL_STEP, pool=POOL).result == OUT_OF_MEMORY
    pooled(guest, 3 * PAGE, POOL)


@pytest.mark.parametrize("most", [600, PAGE])
def test_no_more_is_allocated_of_a_pool_than_its_size(served: Served, most: int) -> None:
    """However much it holds for that."""
    guest = served.primary()
    guest.ok("cuMemPoolCreate", handle=POOL, max_bytes=most)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=most + 1, pool=POOL).result == OUT_OF_MEMORY
    first = pooled(guest, most - 100, POOL)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=101, pool=POOL).result == OUT_OF_MEMORY
    pooled(guest, 100, POOL)
    guest.cast_off("cuMemFreeAsync", address=first)
    guest.ok("cuCtxSynchronize")
    pooled(guest, most - 100, POOL)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=1, pool=POOL).result == OUT_OF_MEMORY


@pytest.mark.parametrize("most", [0, (1 << 64) - 1])
def test_a_pool_may_have_all_that_there_is(served: Served, most: int) -> None:
    guest = served.primary()
    guest.ok("cuMemPoolCreate", handle=POOL, max_bytes=most)
    pooled(guest, QUOTA, POOL)


def test_a_pool_allocates_what_it_is_still_freeing(served: Served) -> None:
    guest = served.primary()
    keep_everything(guest)
    for _ in range(10):
        answer = guest.call("cuMemAllocFromPoolAsync", bytes=6 * PAGE)
        if answer.result == OUT_OF_MEMORY:  # the device is not done with what was freed: as the guest's library does
            answer = guest.ok("pool_allocate_in_order", bytes=6 * PAGE)
        assert used_bytes(served) <= QUOTA
        guest.cast_off("cuMemFreeAsync", address=answer.address)
    guest.ok("cuCtxSynchronize")
    guest.ok("cuMemAlloc_v2", bytesize=QUOTA)
    assert used_bytes(served) == QUOTA
