"""Memory at addresses that the client proposed: where it lies, what of it is had again, and what a client that lies about them gets."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backend_host.worker_guest import PRIMARY, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

SPAN = 0x3000_0000_0000
STEP = 2 << 20
BYTES = 64 * STEP
EXTENT_MOST = 1 << 30
POOL = 0x50_00000001_000001
MEMORY = 4 << 30
"""Of softgpu's device."""
OUT_OF_MEMORY, INVALID_VALUE, MAP_FAILED, NOT_SUPPORTED = 2, 1, 205, 801


@pytest.fixture
def served() -> Iterator[Served]:
    yield from serving(memory="span")


@pytest.fixture
def without() -> Iterator[Served]:
    yield from serving(memory="driver")


def serving(memory: str) -> Iterator[Served]:
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            yield Served(host, region, memory=memory)
    finally:
        host.close()


def allocate(served: Served, nbytes: int) -> int:
    return int(served.guest.ok("cuMemAlloc_v2", bytesize=nbytes).dptr)


def free_bytes(served: Served) -> int:
    return int(served.guest.ok("cuMemGetInfo_v2").free)


def test_memory_lies_in_the_span(served: Served) -> None:
    guest = served.primary()
    before = free_bytes(served)
    guest.ok("span_open", address=SPAN, bytes=BYTES)
    assert free_bytes(served) == before, "addresses cost no memory"
    first, second, third = (allocate(served, nbytes) for nbytes in (1, 3 * STEP + 1, STEP))
    assert (first, second, third) == (SPAN, SPAN + STEP, SPAN + 5 * STEP)
    assert free_bytes(served) == before - 6 * STEP
    guest.ok("cuMemFree_v2", dptr=second)
    assert free_bytes(served) == before - 2 * STEP
    assert allocate(served, 5 * STEP) == SPAN + 6 * STEP, "it does not fit where the second was"
    assert allocate(served, 4 * STEP) == second


def test_kernels_and_copies_reach_all_of_it(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=2 << 30)
    address = allocate(served, EXTENT_MOST + STEP)
    for place in (0, EXTENT_MOST - 4, EXTENT_MOST + STEP - 8):  # the middle one lies across two extents
        guest.ok("cuMemsetD8Async", dstDevice=address + place, uc=7, N=8, hStream=0)
    guest.ok("cuCtxSynchronize")


def test_what_a_context_had_goes_with_it(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=BYTES)
    before = free_bytes(served)
    addresses = [allocate(served, 2 * STEP) for _ in range(3)]
    guest.ok("context_destroy", handle=PRIMARY)
    served.primary()
    assert free_bytes(served) == before
    assert [allocate(served, 2 * STEP) for _ in range(3)] == addresses
    assert guest.call("cuMemFree_v2", dptr=addresses[0] + STEP).result == INVALID_VALUE


def test_where_there_is_no_span_the_driver_chooses(without: Served) -> None:
    guest = without.primary()
    assert guest.call("span_open", address=SPAN, bytes=BYTES).result == NOT_SUPPORTED
    address = allocate(without, STEP)
    assert not SPAN <= address < SPAN + BYTES
    guest.ok("cuMemFree_v2", dptr=address)


def test_addresses_that_are_taken_are_not_a_span(served: Served) -> None:
    guest = served.primary()
    taken = guest.ok("cuMemAddressReserve", bytes=BYTES).address
    assert guest.call("span_open", address=taken, bytes=BYTES).result == MAP_FAILED
    guest.ok("span_open", address=SPAN, bytes=BYTES)


@pytest.mark.parametrize(
    "fields",
    [
        {"address": 0, "bytes": BYTES},
        {"address": SPAN, "bytes": 0},
        {"address": SPAN + 4096, "bytes": BYTES},
        {"address": SPAN, "bytes": BYTES + 4096},
        {"address": SPAN, "bytes": (1 << 40) + STEP},
        {"address": (1 << 64) - STEP, "bytes": 2 * STEP},
    ],
)
def test_lies_about_the_span_are_refused(served: Served, fields: dict[str, Any]) -> None:
    guest = served.primary()
    assert guest.call("span_open", **fields).result == INVALID_VALUE
    assert not SPAN <= allocate(served, STEP) < SPAN + BYTES


def test_there_is_one_span(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=BYTES)
    assert guest.call("span_open", address=SPAN + BYTES, bytes=BYTES).result == INVALID_VALUE


@pytest.mark.parametrize("is_pooled", [False, True])
def test_after_memory_outside_of_it_there_is_none(served: Served, is_pooled: bool) -> None:
    """Memory that a pool keeps would be taken for the span's, and counted as given back."""
    guest = served.primary()
    if is_pooled:
        guest.ok("cuMemPoolCreate", handle=POOL, is_shareable=1)
        guest.ok("cuMemPoolSetAttribute", pool=POOL, attribute=4, value=1 << 40)
        address = int(guest.ok("cuMemAllocFromPoolAsync", pool=POOL, bytes=STEP).address)
    else:
        address = allocate(served, STEP)
    assert guest.call("span_open", address=SPAN, bytes=BYTES).result == NOT_SUPPORTED
    guest.ok("cuMemFree_v2", dptr=address)
    assert guest.call("span_open", address=SPAN, bytes=BYTES).result == NOT_SUPPORTED


def test_a_span_that_is_full_has_no_memory(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=BYTES)
    whole = allocate(served, BYTES)
    assert guest.call("cuMemAlloc_v2", bytesize=1).result == OUT_OF_MEMORY
    for nbytes in (0, BYTES + 1, (1 << 64) - 1):
        assert guest.call("cuMemAlloc_v2", bytesize=nbytes).result in {OUT_OF_MEMORY, INVALID_VALUE}
    guest.ok("cuMemFree_v2", dptr=whole)
    assert allocate(served, BYTES) == whole


def test_a_device_that_is_full_leaves_nothing_half(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=4 * MEMORY)
    before = free_bytes(served)
    assert guest.call("cuMemAlloc_v2", bytesize=before + STEP).result == OUT_OF_MEMORY
    assert free_bytes(served) == before
    assert allocate(served, before) == SPAN


def test_random_allocations_do_not_meet(served: Served) -> None:
    guest = served.primary()
    guest.ok("span_open", address=SPAN, bytes=BYTES)
    before = free_bytes(served)
    dice = random.Random(33)
    held: dict[int, int] = {}
    for _ in range(400):
        if held and dice.random() < 0.45:
            address = dice.choice(list(held))
            guest.ok("cuMemFree_v2", dptr=address)
            del held[address]
            continue
        nbytes = dice.randrange(1, 9 * STEP)
        answer = guest.call("cuMemAlloc_v2", bytesize=nbytes)
        steps = -(-nbytes // STEP)
        if answer.result == OUT_OF_MEMORY:
            assert not fits(held, steps)
            continue
        start = (answer.dptr - SPAN) // STEP
        assert answer.dptr % STEP == 0
        assert 0 <= start <= 64 - steps
        taken = range(start, start + steps)
        others = [range((at - SPAN) // STEP, (at - SPAN) // STEP + nr) for at, nr in held.items()]
        assert not any(step in other for other in others for step in taken)
        held[answer.dptr] = steps
        assert free_bytes(served) == before - STEP * sum(held.values())
    for address in held:
        guest.ok("cuMemFree_v2", dptr=address)
    assert free_bytes(served) == before


def fits(held: dict[int, int], steps: int) -> bool:
    end, holes = 0, []
    for address in sorted(held):
        start = (address - SPAN) // STEP
        holes.append(start - end)
        end = start + held[address]
    return steps <= max([*holes, 64 - end])
