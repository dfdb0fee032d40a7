"""What a driver takes of the device beside what is allocated counts against the quota, is refused beyond it, and is given back to the byte."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend_host.device.readings import WorkerReading
from ivshmem.region import ClientState
from tests.backend_host.worker_guest import (
    FUNCTION,
    MODULE,
    PRIMARY,
    STREAM,
    Guest,
    container,
    kernel_image,
    make_region,
    wait_for_state,
)
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

MIB = 1 << 20
QUOTA = 256 * MIB
CONTEXT, STREAM_BYTES = 40 * MIB, MIB
COSTS = {"context_bytes": CONTEXT, "stream_bytes": STREAM_BYTES}
"""softgpu takes nothing of its device for these, so the worker is told what a driver takes."""
OUT_OF_MEMORY, INVALID_VALUE, UNSUPPORTED_LIMIT = 2, 1, 215
STACK, PRINTF, HEAP, SYNC_DEPTH, PENDING_LAUNCHES = range(5)
NR_THREADS = 16 * 2048  # of softgpu's device
STACK_AT_FIRST, HEAP_AT_FIRST = 1024, 8 * MIB
SECOND = 0x41_00000001_000001
LIBRARY = 0x46_00000001_000001
LINK = 0x48_00000001_000001

Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            yield lambda quota_bytes=QUOTA, **limits: limited(host, region, quota_bytes, **limits)
    finally:
        host.close()


def limited(host: Host, region: Any, quota_bytes: int, **limits: int) -> Served:
    served = Served(host, region, quota_bytes, costs=COSTS)
    host.control.set_limits(served.vgpu, **limits)
    return served


def ptx(body: str = "", entry: str = "ret;") -> bytes:
    return kernel_image(f".version 7.0\n.target sm_50\n.address_size 64\n{body}\n.visible .entry k() {{ {entry} }}\n")


def reading(served: Served) -> WorkerReading:
    found = served.host.control.worker(served.worker.slot)
    assert found is not None
    return found


def used_bytes(served: Served) -> int:
    return served.account().memory_bytes


def free_bytes(guest: Guest) -> int:
    return int(guest.ok("cuMemGetInfo_v2").free)


def make_context(guest: Guest, handle: int = SECOND) -> int:
    return guest.call("context_create", context=0, handle=handle).result


def set_limit(guest: Guest, limit: int, value: int) -> int:
    return guest.call("cuCtxSetLimit", limit=limit, value=value).result


def load_library(guest: Guest, image: bytes, handle: int = LIBRARY) -> int:
    guest.send_blob(image)
    return guest.call("cuLibraryLoadData", blob=7, handle=handle, chunk=0xFFFFFFFF).result


def test_contexts_count_and_the_warm_one_from_the_start(serve: Serve) -> None:
    served = serve()
    assert used_bytes(served) == CONTEXT, "the worker is warm, whatever its client does"
    guest = served.primary()
    assert used_bytes(served) == CONTEXT
    for nr in range(5):
        assert make_context(guest, SECOND + nr) == 0
        assert reading(served).contexts_bytes == (nr + 2) * CONTEXT
    assert make_context(guest, SECOND + 5) == OUT_OF_MEMORY
    guest.ok("context_destroy", handle=SECOND)
    assert make_context(guest, SECOND + 5) == 0
    guest.context = SECOND + 1
    guest.ok("context_destroy", handle=PRIMARY)
    assert used_bytes(served) == 5 * CONTEXT
    guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    assert used_bytes(served) == 6 * CONTEXT


def test_a_client_whose_context_does_not_fit_is_refused() -> None:
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            vgpu = host.control.vgpu_take(CONTEXT - 1)
            guest = Guest(region)
            host.start(region, 0, vgpu, costs=COSTS)
            assert wait_for_state(region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.REFUSED
            assert region.client(guest.index).refusal == OUT_OF_MEMORY
    finally:
        host.close()


def test_streams_count(serve: Serve) -> None:
    served = serve(CONTEXT + 3 * STREAM_BYTES)
    guest = served.primary()
    for nr in range(3):
        guest.ok("cuStreamCreate", phStream=STREAM + nr)
    assert reading(served).streams_bytes == 3 * STREAM_BYTES
    assert guest.call("cuStreamCreate", phStream=STREAM + 3).result == OUT_OF_MEMORY
    guest.ok("cuStreamDestroy_v2", hStream=STREAM)
    guest.ok("cuStreamCreateWithPriority", phStream=STREAM + 3)
    assert make_context(guest) == OUT_OF_MEMORY
    guest.ok("context_destroy", handle=PRIMARY)
    assert used_bytes(served) == 0


def test_many_modules_do_not_fit(serve: Serve) -> None:
    """2,120 modules of 1 MiB were charged nothing."""
    served = serve(CONTEXT + 8 * MIB)
    guest = served.primary()
    image = ptx("//" + "x" * MIB)
    results = [guest.load(image, MODULE + nr).result for nr in range(8)]
    assert results == [0] * 7 + [OUT_OF_MEMORY], "of eight there is room for seven"
    assert reading(served).modules_bytes == 7 * len(image)
    for nr in range(7):
        guest.ok("cuModuleUnload", hmod=MODULE + nr)
    assert used_bytes(served) == CONTEXT


@pytest.mark.parametrize(
    "declaration",
    [
        ".global .align 4 .b8 x[134217728];",
        ".global .b32 a, x[32768][1024];",
        ".visible .global .v4 .f32 x[1 << 23];",
        '.file 1 "//" .global .b8 x[0x8000000];',
        ".global .b8 x[18446744073709551615];",
    ],
)
def test_variables_count_before_the_driver_makes_them(serve: Serve, declaration: str) -> None:
    served = serve(CONTEXT + 64 * MIB)
    guest = served.primary()
    for image in (ptx(declaration), container(ptx(declaration)[:-1].decode())):
        assert guest.load(image).result == OUT_OF_MEMORY
        assert load_library(guest, image) == OUT_OF_MEMORY
    assert used_bytes(served) == CONTEXT
    assert guest.load(ptx(".global .align 4 .b8 x[33554432];")).result == 0
    assert used_bytes(served) >= CONTEXT + 32 * MIB


def test_an_image_that_the_driver_refuses_costs_nothing(serve: Serve) -> None:
    served = serve()
    guest = served.primary()
    assert guest.load(ptx(entry="no such instruction;")).result != 0
    assert used_bytes(served) == CONTEXT
    assert reading(served).nr_modules == 0


def test_a_library_counts_for_each_context(serve: Serve) -> None:
    served = serve()
    guest = served.primary()
    assert load_library(guest, ptx(".global .b8 x[67108864];")) == 0
    each_bytes = reading(served).modules_bytes
    assert each_bytes >= 64 * MIB
    assert make_context(guest) == 0
    assert reading(served).modules_bytes == 2 * each_bytes
    assert make_context(guest, SECOND + 1) == OUT_OF_MEMORY, "the library may be loaded into it"
    assert used_bytes(served) == 2 * (CONTEXT + each_bytes)
    guest.ok("cuLibraryUnload", library=LIBRARY)
    assert used_bytes(served) == 2 * CONTEXT
    assert make_context(guest, SECOND + 1) == 0


def test_limits_of_a_context_count(serve: Serve) -> None:
    """64 KiB of stack took 16.6 GiB of an H100 at once."""
    served = serve()
    guest = served.primary()
    assert set_limit(guest, STACK, 64 << 10) == OUT_OF_MEMORY
    assert guest.ok("cuCtxGetLimit", limit=STACK).pvalue == STACK_AT_FIRST
    assert set_limit(guest, STACK, 4096) == 0
    assert reading(served).limits_bytes == (4096 - STACK_AT_FIRST) * NR_THREADS
    assert set_limit(guest, HEAP, QUOTA) == OUT_OF_MEMORY
    assert set_limit(guest, HEAP, HEAP_AT_FIRST + 16 * MIB) == 0
    assert reading(served).limits_bytes == (4096 - STACK_AT_FIRST) * NR_THREADS + 16 * MIB
    assert set_limit(guest, STACK, STACK_AT_FIRST) == 0
    assert set_limit(guest, HEAP, 0) == 0
    assert reading(served).limits_bytes == 0, "what is below what a context had at first gives nothing back"
    assert set_limit(guest, STACK, (1 << 64) - 1) == INVALID_VALUE
    assert set_limit(guest, PRINTF, (1 << 64) - 1) == INVALID_VALUE
    assert set_limit(guest, STACK, 4096) == 0
    guest.ok("context_destroy", handle=PRIMARY)
    assert used_bytes(served) == 0


def test_a_limit_that_the_driver_refuses_costs_nothing(serve: Serve) -> None:
    served = serve(0)
    guest = served.primary()
    assert set_limit(guest, STACK, 1 << 30) == INVALID_VALUE
    assert reading(served).limits_bytes == 0


def test_limits_of_nested_launches_do_not_grow_under_a_quota(serve: Serve) -> None:
    guest = serve().primary()
    for limit in (SYNC_DEPTH, PENDING_LAUNCHES):
        now = guest.ok("cuCtxGetLimit", limit=limit).pvalue
        assert set_limit(guest, limit, now + 1) == UNSUPPORTED_LIMIT
        assert set_limit(guest, limit, now) == 0


def load_kernel(guest: Guest, local_bytes: int) -> None:
    body = (
        f".local .align 4 .b8 l[{local_bytes}]; .reg .b64 %a; .reg .b32 %x; "
        "mov.u64 %a, l; ld.local.u32 %x, [%a]; st.local.u32 [%a+4], %x; ret;"
    )
    assert guest.load(ptx(entry=body)).result == 0
    guest.ok("cuModuleGetFunction", b"k", module=MODULE, handle=FUNCTION, name_bytes=1, chunk=0xFFFFFFFF)


def launch(guest: Guest) -> int:
    guest.launch(FUNCTION, b"")
    return guest.call("cuCtxSynchronize").result


def test_local_memory_of_a_kernel_counts_when_it_runs(serve: Serve) -> None:
    served = serve()
    guest = served.primary()
    load_kernel(guest, 32 << 10)
    assert reading(served).limits_bytes == 0, "nothing runs yet"
    assert launch(guest) == OUT_OF_MEMORY
    guest.ok("cuModuleUnload", hmod=MODULE)
    load_kernel(guest, 4096)
    for _ in range(2):
        assert launch(guest) == 0
        assert reading(served).limits_bytes == (4096 - STACK_AT_FIRST) * NR_THREADS
    guest.ok("context_destroy", handle=PRIMARY)
    assert used_bytes(served) == 0


def test_a_graph_takes_the_local_memory_of_its_kernels(serve: Serve) -> None:
    guest = serve().primary()
    load_kernel(guest, 32 << 10)
    graph = guest.ok("graph_create").graph
    node = struct.pack("<I12x", 0) + struct.pack("<Q7I", FUNCTION, 1, 1, 1, 1, 1, 1, 0).ljust(240, b"\0")
    assert guest.call("graph_add_node", node, graph=graph).result == OUT_OF_MEMORY


def test_free_memory_is_what_the_charges_leave(serve: Serve) -> None:
    served = serve()
    guest = served.primary()
    assert free_bytes(guest) == QUOTA - CONTEXT
    guest.ok("cuStreamCreate", phStream=STREAM)
    assert guest.load(ptx(".global .b8 x[1048576];")).result == 0
    assert set_limit(guest, STACK, 2048) == 0
    assert free_bytes(guest) == QUOTA - used_bytes(served) < QUOTA - CONTEXT - STREAM_BYTES - MIB
    assert guest.call("cuMemAlloc_v2", bytesize=free_bytes(guest) + 1).result == OUT_OF_MEMORY
    assert guest.call("cuMemAlloc_v2", bytesize=free_bytes(guest)).result == 0


def test_without_a_quota_all_is_counted_and_nothing_refused(serve: Serve) -> None:
    served = serve(0)
    guest = served.primary()
    assert make_context(guest) == 0
    assert guest.load(ptx(".global .b8 x[268435456];")).result == 0
    assert set_limit(guest, STACK, 64 << 10) == 0
    for nr in range(20):
        guest.ok("cuStreamCreate", phStream=STREAM + nr)
    told = reading(served)
    assert told.contexts_bytes == 2 * CONTEXT
    assert told.streams_bytes == 20 * STREAM_BYTES
    assert told.modules_bytes > 256 * MIB
    assert told.limits_bytes == 63 * 1024 * NR_THREADS
    assert used_bytes(served) == told.contexts_bytes + told.streams_bytes + told.modules_bytes + told.limits_bytes


def test_nothing_is_left_of_a_client_that_ended(serve: Serve) -> None:
    served = serve()
    guest = served.primary()
    assert make_context(guest) == 0
    assert load_library(guest, ptx(".global .b8 x[1048576];")) == 0
    assert guest.load(ptx(".global .b8 x[1048576];")).result == 0
    guest.ok("cuStreamCreate", phStream=STREAM)
    assert set_limit(guest, STACK, 2048) == 0
    guest.ok("cuMemAlloc_v2", bytesize=MIB)
    guest.close()
    served.worker.ended()
    told = reading(served)
    assert used_bytes(served) == 0
    assert (told.contexts_bytes, told.streams_bytes, told.modules_bytes, told.limits_bytes) == (0, 0, 0, 0)
    assert (told.nr_contexts, told.nr_streams, told.nr_modules) == (0, 0, 0)


def test_as_many_as_a_vgpu_may_have(serve: Serve) -> None:
    served = serve(0, contexts=2, streams=3, modules=2)
    guest = served.primary()
    for nr in range(3):
        guest.ok("cuStreamCreate", phStream=STREAM + nr)
    assert guest.call("cuStreamCreate", phStream=STREAM + 3).result == OUT_OF_MEMORY
    assert guest.load(ptx()).result == 0
    assert load_library(guest, ptx()) == 0
    assert guest.load(ptx(), MODULE + 1).result == OUT_OF_MEMORY
    assert load_library(guest, ptx(), LIBRARY + 1) == OUT_OF_MEMORY
    assert make_context(guest) == 0
    assert make_context(guest, SECOND + 1) == OUT_OF_MEMORY
    guest.ok("cuStreamDestroy_v2", hStream=STREAM)
    guest.ok("cuLibraryUnload", library=LIBRARY)
    guest.ok("context_destroy", handle=SECOND)
    guest.ok("cuStreamCreate", phStream=STREAM + 3)
    assert guest.load(ptx(), MODULE + 1).result == 0
    assert make_context(guest, SECOND + 1) == 0


def test_programs_of_a_vgpu_share_its_limits(serve: Serve) -> None:
    served = serve(CONTEXT * 2 + 4 * STREAM_BYTES, streams=3)
    first = served.primary()
    second = Guest(served.region, 1, address=0x3000_0000_0000)
    served.host.start(served.region, 1, served.vgpu, costs=COSTS)
    assert wait_for_state(served.region, 1, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
    second.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    results = [
        guest.call("cuStreamCreate", phStream=STREAM + nr).result for nr in range(2) for guest in (first, second)
    ]
    assert results == [0, 0, 0, OUT_OF_MEMORY]
    assert used_bytes(served) == 2 * CONTEXT + 3 * STREAM_BYTES


def begin_blob(guest: Guest, blob: int, nr_bytes: int) -> int:
    return guest.call("blob_begin", context=0, blob=blob, bytes=nr_bytes).result


def test_images_on_their_way_count_for_all_programs_of_a_vgpu(serve: Serve) -> None:
    served = serve(0, image_bytes=8 * MIB)
    first = served.guest
    second = Guest(served.region, 1, address=0x3000_0000_0000)
    worker = served.host.start(served.region, 1, served.vgpu)
    assert wait_for_state(served.region, 1, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
    assert begin_blob(first, 1, 5 * MIB) == 0
    assert begin_blob(second, 1, 4 * MIB) == OUT_OF_MEMORY
    assert begin_blob(second, 1, 3 * MIB) == 0
    assert begin_blob(first, 2, 1) == OUT_OF_MEMORY
    assert begin_blob(first, 1, 5 * MIB) == 0, "it takes the place of the one of its number"
    assert reading(served).images_bytes == 5 * MIB
    second.close()
    worker.ended()
    assert begin_blob(first, 2, 3 * MIB) == 0


def test_what_is_linked_counts_until_the_link_goes(serve: Serve) -> None:
    served = serve(0, image_bytes=3 * MIB)
    guest = served.primary()
    image = ptx("//" + "x" * MIB)
    guest.ok("cuLinkCreate_v2", link=LINK)

    def add() -> int:
        return guest.call("cuLinkAddData_v2", blob=guest.send_blob(image), type=1, link=LINK, chunk=0xFFFFFFFF).result

    assert add() == 0
    assert reading(served).images_bytes == len(image)
    assert add() == OUT_OF_MEMORY, "the driver has one, and one is on its way"
    guest.ok("cuLinkDestroy", state=LINK)
    assert reading(served).images_bytes == 0
