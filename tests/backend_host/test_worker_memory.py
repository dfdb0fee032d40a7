"""Every way to allocate device memory against the quota, and what a guest that lies about its memory gets."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backend_host.worker_guest import STREAM, Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

PAGE = 2 << 20
QUOTA = 8 * PAGE
POOL_STEP = 32 << 20  # of what pools keep, this much is not charged
OUT_OF_MEMORY, INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED = 2, 1, 400, 801
POOL = 0x48_00000001_000001
ALLOCATION = 0x49_00000001_000001
EXEC = 0x4A_00000001_000001
ARRAY = 0x4B_00000001_000001
FLOAT = 0x20
READWRITE = 3
RELEASE_THRESHOLD, RESERVED_CURRENT, RESERVED_HIGH, USED_CURRENT, USED_HIGH = 4, 5, 6, 7, 8
SPAN = 0x3000_0000_0000


@pytest.fixture(params=["span", "driver"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    host = Host(SOFTGPU)
    host.memory = request.param
    try:
        yield host
    finally:
        host.close()


class Spanned(Served):
    """Its guest opens a span, where there is one."""

    is_opened = False

    def primary(self) -> Guest:
        guest = super().primary()
        if not self.is_opened:
            result = guest.call("span_open", address=SPAN, bytes=1 << 34).result
            assert result == (0 if self.host.memory == "span" else NOT_SUPPORTED)
        self.is_opened = True
        return guest


@pytest.fixture
def served(host: Host) -> Iterator[Served]:
    with make_region() as region:
        yield Spanned(host, region, QUOTA, memory=host.memory)


def used_bytes(served: Served) -> int:
    reading = served.host.control.vgpu(served.vgpu)
    assert reading is not None
    return reading.memory_bytes


def pooled(guest: Guest, nbytes: int, pool: int = 0, stream: int = 0) -> int:
    return int(guest.ok("cuMemAllocFromPoolAsync", bytes=nbytes, pool=pool, stream=stream).address)


def keep_everything(guest: Guest, pool: int = 0) -> None:
    guest.ok("cuMemPoolSetAttribute", pool=pool, attribute=RELEASE_THRESHOLD, value=(1 << 64) - 1)


def reserve(guest: Guest, nbytes: int) -> int:
    return int(guest.ok("cuMemAddressReserve", bytes=nbytes).address)


def test_an_allocation_counts_what_it_takes(served: Served) -> None:
    """Of the span that is whole steps, however little was asked for."""
    guest = served.primary()
    is_span = served.host.memory == "span"
    addresses = [int(guest.ok("cuMemAlloc_v2", bytesize=1).dptr) for _ in range(8)]
    assert used_bytes(served) == (8 * PAGE if is_span else 8)
    assert guest.call("cuMemAlloc_v2", bytesize=1).result == (OUT_OF_MEMORY if is_span else 0)
    guest.ok("cuMemFree_v2", dptr=addresses[0])
    guest.ok("cuMemAlloc_v2", bytesize=PAGE if is_span else 2)
    if is_span:
        guest.ok("cuMemFree_v2", dptr=addresses[1])
        assert guest.call("cuMemAlloc_v2", bytesize=PAGE + 1).result == OUT_OF_MEMORY, "that is two steps"
        guest.ok("cuMemAlloc_v2", bytesize=PAGE - 1)
        assert used_bytes(served) == QUOTA


@pytest.mark.parametrize("nbytes", [(1 << 64) - 1, (1 << 64) - PAGE, 1 << 63, (1 << 34) + 1])
def test_more_than_there_are_addresses_is_not_rounded_to_nothing(served: Served, nbytes: int) -> None:
    guest = served.primary()
    assert guest.call("cuMemAlloc_v2", bytesize=nbytes).result == OUT_OF_MEMORY
    assert used_bytes(served) == 0


def test_physical_memory_counts_until_nothing_holds_it(served: Served) -> None:
    guest = served.primary()
    guest.ok("cuMemCreate", handle=ALLOCATION, bytes=6 * PAGE)
    assert used_bytes(served) == 6 * PAGE
    assert guest.call("cuMemCreate", handle=ALLOCATION + 1, bytes=4 * PAGE).result == OUT_OF_MEMORY
    assert guest.call("cuMemAlloc_v2", bytesize=4 * PAGE).result == OUT_OF_MEMORY
    assert guest.call("cuMemAllocFromPoolAsync", bytes=4 * PAGE).result == OUT_OF_MEMORY
    address = reserve(guest, 64 * PAGE)
    assert used_bytes(served) == 6 * PAGE, "addresses cost no memory"
    guest.ok("cuMemMap", address=address, bytes=6 * PAGE, handle=ALLOCATION)
    guest.ok("cuMemRelease", handle=ALLOCATION)
    assert used_bytes(served) == 6 * PAGE, "it is mapped"
    guest.ok("cuMemUnmap", address=address, bytes=6 * PAGE)
    assert used_bytes(served) == 0
    guest.ok("cuMemCreate", handle=ALLOCATION, bytes=QUOTA)
    guest.ok("cuMemRelease", handle=ALLOCATION)
    assert used_bytes(served) == 0


def test_a_pool_counts_for_what_it_holds(served: Served) -> None:
    guest = served.primary()
    first, second = pooled(guest, 3 * PAGE), pooled(guest, 3 * PAGE)
    assert used_bytes(served) == 6 * PAGE
    assert guest.call("cuMemAllocFromPoolAsync", bytes=3 * PAGE).result == OUT_OF_MEMORY
    assert guest.call("pool_allocate_in_order", bytes=3 * PAGE).result == OUT_OF_MEMORY
    guest.cast_off("cuMemFreeAsync", address=first)
    guest.ok("cuMemFree_v2", dptr=second)
    guest.ok("cuCtxSynchronize")
    assert used_bytes(served) == 0
    assert guest.ok("cuMemPoolGetAttribute", attribute=USED_CURRENT).value == 0


def test_what_a_pool_keeps_makes_room_for_others(host: Host) -> None:
    quota = 48 * PAGE
    with make_region() as region:
        served = Spanned(host, region, quota, memory=host.memory)
        guest = served.primary()
        keep_everything(guest)
        guest.cast_off("cuMemFreeAsync", address=pooled(guest, 36 * PAGE))
        guest.ok("cuCtxSynchronize")
        assert used_bytes(served) == 48 * PAGE - POOL_STEP, "nothing is allocated: it counts for what it keeps"
        address = guest.ok("cuMemAlloc_v2", bytesize=40 * PAGE).dptr
        assert used_bytes(served) == 40 * PAGE
        guest.ok("cuMemFree_v2", dptr=address)
        guest.ok("cuMemCreate", handle=ALLOCATION, bytes=quota)
        assert used_bytes(served) == quota


def test_of_what_pools_keep_one_step_is_not_seen_in_all(host: Host) -> None:
    with make_region() as region:
        served = Spanned(host, region, 3 * POOL_STEP, memory=host.memory)
        guest = served.primary()
        for pool in range(POOL, POOL + 3):
            guest.ok("cuMemPoolCreate", handle=pool)
            keep_everything(guest, pool)
            guest.cast_off("cuMemFreeAsync", address=pooled(guest, POOL_STEP, pool))
            guest.ok("cuCtxSynchronize")
        assert used_bytes(served) == 2 * POOL_STEP
        kept = [pooled(guest, POOL_STEP, pool) for pool in range(POOL, POOL + 3)]
        assert used_bytes(served) == 3 * POOL_STEP
        guest.cast_off("cuMemFreeAsync", address=kept[0])
        guest.ok("cuMemPoolDestroy", pool=POOL)
        guest.ok("cuCtxSynchronize")
        assert used_bytes(served) == 2 * POOL_STEP
        guest.ok("cuMemAlloc_v2", bytesize=POOL_STEP)


def graph_of_memory(guest: Guest, nbytes: int, is_freed: bool = True) -> tuple[int, int]:
    """A graph that allocates and, if so, frees: its number and the address."""
    graph = guest.ok("graph_create").graph
    node = guest.ok("graph_add_node", memory_node(nbytes), graph=graph)
    if is_freed:
        after = node.node.to_bytes(8, "little")
        guest.ok("graph_add_node", after + free_node(node.address), graph=graph, nr_nodes=1)
    return graph, node.address


def memory_node(nbytes: int, location: tuple[int, int] = (1, 0), kind: int = 1, handle_types: int = 0) -> bytes:
    properties = struct.pack("<IIII", kind, handle_types, *location).ljust(88, b"\0")
    return struct.pack("<I12x", 10) + (properties + struct.pack("<QQQQ", 0, 0, nbytes, 0)).ljust(240, b"\0")


def free_node(address: int) -> bytes:
    return struct.pack("<I12x", 11) + address.to_bytes(8, "little").ljust(240, b"\0")


def test_memory_of_graphs_counts(served: Served) -> None:
    guest = served.primary()
    graph, _address = graph_of_memory(guest, 6 * PAGE)
    assert guest.call("graph_add_node", memory_node(4 * PAGE), graph=graph).result == OUT_OF_MEMORY
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).is_doubtful == 0
    for _ in range(3):
        guest.ok("cuGraphLaunch", hGraphExec=EXEC)
        assert used_bytes(served) == 6 * PAGE
    assert guest.call("cuMemAlloc_v2", bytesize=4 * PAGE).result == OUT_OF_MEMORY
    guest.ok("cuCtxSynchronize")
    guest.ok("cuGraphExecDestroy", hGraphExec=EXEC)
    guest.ok("cuGraphDestroy", hGraph=graph)
    assert used_bytes(served) == 0
    guest.ok("cuMemAlloc_v2", bytesize=6 * PAGE)


def test_memory_that_a_graph_leaves_is_the_programs(served: Served) -> None:
    guest = served.primary()
    graph, address = graph_of_memory(guest, 4 * PAGE, is_freed=False)
    assert guest.ok("graph_instantiate", exec=EXEC, graph=graph).is_doubtful == 1
    guest.ok("cuGraphLaunch", hGraphExec=EXEC)
    assert guest.call("cuGraphLaunch", hGraphExec=EXEC).result == INVALID_VALUE
    guest.ok("cuMemFreeAsync", address=address)
    assert guest.call("cuMemFreeAsync", address=address).result == INVALID_VALUE
    guest.ok("cuGraphLaunch", hGraphExec=EXEC)
    guest.ok("cuMemFree_v2", dptr=address)
    assert guest.call("cuMemFree_v2", dptr=address).result == INVALID_VALUE


def test_captured_allocations_count(served: Served) -> None:
    guest = served.primary()
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.ok("capture_begin", stream=STREAM)
    address = pooled(guest, 6 * PAGE, stream=STREAM)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=4 * PAGE, stream=STREAM).result == OUT_OF_MEMORY
    guest.ok("cuMemFreeAsync", address=address, stream=STREAM)
    ended = guest.ok("capture_end", stream=STREAM)
    assert ended.error == 0
    assert guest.ok("graph_instantiate", exec=EXEC, graph=ended.graph).is_doubtful == 0
    guest.ok("cuGraphLaunch", hGraphExec=EXEC, hStream=STREAM)
    assert used_bytes(served) == 6 * PAGE
    guest.ok("cuCtxSynchronize")
    guest.ok("cuDeviceGraphMemTrim")


def test_lies_about_memory_of_graphs(served: Served) -> None:
    guest = served.primary()
    graph = guest.ok("graph_create").graph
    own = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    for params in (
        memory_node(0),
        memory_node(PAGE, location=(1, 1)),
        memory_node(PAGE, location=(2, 0)),
        memory_node(PAGE, location=(0, 0)),
        memory_node(PAGE, kind=2),
        free_node(own),
        free_node(0),
        free_node(0x400000),
    ):
        assert guest.call("graph_add_node", params, graph=graph).result == INVALID_VALUE
    for nbytes in (1 << 40, (1 << 64) - 1):
        assert guest.call("graph_add_node", memory_node(nbytes), graph=graph).result == OUT_OF_MEMORY
    assert guest.call("graph_add_node", memory_node(PAGE, handle_types=1), graph=graph).result == NOT_SUPPORTED
    node = guest.ok("graph_add_node", memory_node(PAGE), graph=graph)
    assert guest.call("graph_set_node", memory_node(PAGE), node=node.node).result == NOT_SUPPORTED
    assert guest.call("graph_set_node", free_node(node.address), node=node.node).result == NOT_SUPPORTED
    for address in (own, node.address, 0, 0x400000):
        assert guest.call("cuMemFreeAsync", address=address).result == INVALID_VALUE


def array(guest: Guest, number: int, nbytes: int) -> int:
    height = nbytes // (1024 * 4)
    return guest.call(
        "cuArray3DCreate_v2", handle=number, width=1024, height=height, format=FLOAT, nr_channels=1
    ).result


def allocate(guest: Guest, how: str, nbytes: int, number: int) -> int:
    """In one of the ways that CUDA has. What comes of it."""
    match how:
        case "linear":
            return guest.call("cuMemAlloc_v2", bytesize=nbytes).result
        case "physical":
            return guest.call("cuMemCreate", handle=ALLOCATION + number, bytes=nbytes).result
        case "array":
            return array(guest, ARRAY + number, nbytes)
        case "pool":
            return guest.call("cuMemAllocFromPoolAsync", bytes=nbytes).result
        case _:
            graph = guest.ok("graph_create").graph
            return guest.call("graph_add_node", memory_node(nbytes), graph=graph).result


WAYS = ("linear", "physical", "array", "pool", "graph")


@pytest.mark.parametrize("how", WAYS)
def test_whatever_programs_allocate_they_share_what_they_get_of_the_device(host: Host, how: str) -> None:
    host.control.set_capacity(2 * POOL_STEP, 2 * POOL_STEP)
    with make_region() as region, make_region() as other_region:
        guest = Spanned(host, region, memory=host.memory).primary()
        other = Spanned(host, other_region, memory=host.memory).primary()
        assert allocate(guest, how, 2 * POOL_STEP + PAGE, 0) == OUT_OF_MEMORY
        assert other.ok("cuMemGetInfo_v2").free == 2 * POOL_STEP, "what was refused is not counted"
        assert allocate(guest, how, POOL_STEP, 1) == 0
        assert other.ok("cuMemGetInfo_v2").free == POOL_STEP
        assert allocate(other, "linear", POOL_STEP + PAGE, 2) == OUT_OF_MEMORY
        assert allocate(other, "linear", POOL_STEP, 2) == 0
        for each in (guest, other):
            assert {allocate(each, way, PAGE, 3 + i) for i, way in enumerate(WAYS)} == {OUT_OF_MEMORY}
            assert each.ok("cuMemGetInfo_v2").free == 0


def test_what_goes_makes_room_for_others(host: Host) -> None:
    host.control.set_capacity(2 * POOL_STEP, 2 * POOL_STEP)
    with make_region() as region:
        guest = Spanned(host, region, memory=host.memory).primary()
        keep_everything(guest)
        for number in range(3):
            guest.cast_off("cuMemFreeAsync", address=pooled(guest, 2 * POOL_STEP))
            guest.ok("cuCtxSynchronize")
            assert array(guest, ARRAY + number, 2 * POOL_STEP) == 0, "pools give back what they keep"
            guest.ok("cuArrayDestroy", handle=ARRAY + number)
            guest.ok("cuMemCreate", handle=ALLOCATION + number, bytes=2 * POOL_STEP)
            guest.ok("cuMemRelease", handle=ALLOCATION + number)
            guest.ok("cuMemFree_v2", dptr=guest.ok("cuMemAlloc_v2", bytesize=2 * POOL_STEP).dptr)
        assert guest.ok("cuMemGetInfo_v2").free == 2 * POOL_STEP


def test_pools_of_its_own_are_one_quota(served: Served) -> None:
    guest = served.primary()
    guest.ok("cuMemPoolCreate", handle=POOL)
    guest.ok("cuMemPoolCreate", handle=POOL + 1)
    kept = pooled(guest, 5 * PAGE, POOL)
    assert guest.call("cuMemAllocFromPoolAsync", bytes=5 * PAGE, pool=POOL + 1).result == OUT_OF_MEMORY
    guest.ok("cuMemPoolDestroy", pool=POOL)
    assert used_bytes(served) == 5 * PAGE, "what is allocated stays"
    assert guest.call("cuMemAllocFromPoolAsync", bytes=4096, pool=POOL).result == INVALID_VALUE
    guest.cast_off("cuMemFreeAsync", address=kept)
    pooled(guest, 5 * PAGE, POOL + 1)
    assert guest.take_error() == 0


def test_pools_have_a_bound(served: Served) -> None:
    guest = served.primary()
    results = [guest.call("cuMemPoolCreate", handle=POOL + i).result for i in range(40)]
    assert results.index(OUT_OF_MEMORY) == 32
    assert guest.call("cuMemPoolCreate", handle=POOL).result == INVALID_HANDLE


def test_memory_goes_with_its_context(served: Served) -> None:
    guest = served.primary()
    pooled(guest, 4 * PAGE)
    guest.ok("cuMemAlloc_v2", bytesize=PAGE)
    guest.ok("context_destroy", handle=guest.context)
    assert used_bytes(served) == 0
    served.primary()
    pooled(guest, QUOTA)


def test_memory_goes_with_the_client(host: Host) -> None:
    with make_region() as region:
        served = Spanned(host, region, 2 * POOL_STEP, memory=host.memory)
        guest = served.primary()
        pooled(guest, PAGE)
        guest.ok("cuMemPoolCreate", handle=POOL)
        pooled(guest, PAGE, POOL)
        guest.ok("cuMemCreate", handle=ALLOCATION, bytes=PAGE)
        guest.ok("cuMemCreate", handle=ALLOCATION + 1, bytes=PAGE)
        guest.ok("cuMemMap", address=reserve(guest, PAGE), bytes=PAGE, handle=ALLOCATION)
        guest.ok("cuMemRelease", handle=ALLOCATION)
        assert used_bytes(served) == POOL_STEP + 2 * PAGE
        guest.close()
        served.worker.ended()
        assert used_bytes(served) == 0


def test_addresses_that_are_not_the_guests(served: Served) -> None:
    guest = served.primary()
    guest.ok("cuMemCreate", handle=ALLOCATION, bytes=2 * PAGE)
    own = reserve(guest, 4 * PAGE)
    device = int(guest.ok("cuMemAlloc_v2", bytesize=4 * PAGE).dptr)
    wrong = [0, PAGE, own - PAGE, own + 3 * PAGE, device, guest.address, (1 << 47) - PAGE, (1 << 64) - PAGE]
    for address in wrong:
        answer = guest.call("cuMemMap", address=address, bytes=2 * PAGE, handle=ALLOCATION)
        assert answer.result == INVALID_VALUE, hex(address)
    for nbytes, offset in [(0, 0), (3 * PAGE, 0), (2 * PAGE, PAGE), (PAGE, 1 << 63), ((1 << 64) - PAGE, PAGE)]:
        answer = guest.call("cuMemMap", address=own, bytes=nbytes, offset=offset, handle=ALLOCATION)
        assert answer.result == INVALID_VALUE
    guest.ok("cuMemMap", address=own, bytes=2 * PAGE, handle=ALLOCATION)
    assert guest.call("cuMemMap", address=own + PAGE, bytes=PAGE, handle=ALLOCATION).result == INVALID_VALUE
    for call in ("cuMemUnmap", "cuMemSetAccess"):
        for address, nbytes in [(own, PAGE), (own, 4 * PAGE), (own + PAGE, PAGE), (device, PAGE), (own, 0)]:
            fields: dict[str, Any] = {"access": READWRITE} if call == "cuMemSetAccess" else {}
            assert guest.call(call, address=address, bytes=nbytes, **fields).result == INVALID_VALUE
    assert guest.call("cuMemSetAccess", address=own, bytes=2 * PAGE, access=2).result == INVALID_VALUE
    for address, nbytes in [(own, 4 * PAGE), (own, 2 * PAGE), (device, 4 * PAGE), (guest.address, PAGE)]:
        assert guest.call("cuMemAddressFree", address=address, bytes=nbytes).result == INVALID_VALUE
    for handle in (0, 1, ALLOCATION + 1, POOL, STREAM):
        assert guest.call("cuMemRelease", handle=handle).result == INVALID_VALUE
        assert guest.call("cuMemMap", address=own + 2 * PAGE, bytes=PAGE, handle=handle).result == INVALID_VALUE
    guest.ok("cuMemRelease", handle=ALLOCATION)
    assert guest.call("cuMemRelease", handle=ALLOCATION).result == INVALID_VALUE
    assert guest.call("cuMemMap", address=own + 2 * PAGE, bytes=PAGE, handle=ALLOCATION).result == INVALID_VALUE
    assert guest.ok("cuMemRetainAllocationHandle", address=own + PAGE + 1).handle == ALLOCATION
    assert guest.call("cuMemCreate", handle=ALLOCATION, bytes=PAGE).result == INVALID_HANDLE


def test_addresses_have_a_bound(served: Served) -> None:
    guest = served.primary()
    assert guest.call("cuMemAddressReserve", bytes=1 << 47).result == OUT_OF_MEMORY
    assert guest.call("cuMemAddressReserve", bytes=(1 << 64) - PAGE).result == OUT_OF_MEMORY
    reserve(guest, 1 << 40)
    nr = next(i for i in range(5000) if guest.call("cuMemAddressReserve", bytes=PAGE).result != 0)
    assert nr <= 4096


def test_pools_and_lies(served: Served) -> None:
    guest = served.primary()
    address = pooled(guest, PAGE)
    for wrong in (0, address + 1, address - PAGE, guest.address, (1 << 64) - 1):
        assert guest.call("cuMemFreeAsync", address=wrong).result == INVALID_VALUE
    plain = int(guest.ok("cuMemAlloc_v2", bytesize=PAGE).dptr)
    assert guest.call("cuMemFreeAsync", address=plain).result == INVALID_VALUE, "no pool tells when it is free"
    assert guest.call("cuMemFreeAsync", address=address, stream=STREAM).result == INVALID_HANDLE
    assert guest.call("cuMemAllocFromPoolAsync", bytes=PAGE, stream=STREAM).result == INVALID_HANDLE
    assert guest.call("cuMemAllocFromPoolAsync", bytes=0).result == INVALID_VALUE
    for nbytes in ((1 << 64) - 1, 1 << 63, 1 << 40):
        assert guest.call("cuMemAllocFromPoolAsync", bytes=nbytes).result == OUT_OF_MEMORY
    for pool in (1, 2, POOL, ALLOCATION, STREAM):
        assert guest.call("cuMemAllocFromPoolAsync", bytes=PAGE, pool=pool).result == INVALID_VALUE
        assert guest.call("cuMemPoolDestroy", pool=pool).result == INVALID_VALUE
        assert guest.call("cuMemPoolTrimTo", pool=pool).result == INVALID_VALUE
    assert guest.call("cuMemPoolDestroy", pool=0).result == INVALID_VALUE
    for attribute in (0, 9, 0xFFFFFFFF):
        assert guest.call("cuMemPoolGetAttribute", attribute=attribute).result == INVALID_VALUE
        assert guest.call("cuMemPoolSetAttribute", attribute=attribute).result == INVALID_VALUE
    guest.ok("cuMemFreeAsync", address=address)
    assert guest.call("cuMemFreeAsync", address=address).result == INVALID_VALUE
    assert used_bytes(served) == PAGE


def test_tensor_maps_and_lies(served: Served) -> None:
    guest = served.primary()
    for rank in (0, 6, 0xFFFFFFFF):
        assert guest.call("cuTensorMapEncodeTiled", rank=rank).result == INVALID_VALUE
    assert guest.call("cuTensorMapEncodeIm2col", rank=2).result == INVALID_VALUE
    assert guest.call("cuTensorMapEncodeTiled", rank=5).result == NOT_SUPPORTED, "softgpu has none"
