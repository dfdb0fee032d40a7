"""What waits for what, and who is blamed and charged: contexts, streams, events and errors of one worker, and turns between two."""

import contextlib
import struct
import threading
from typing import Any

import pytest

from cuda_api.generated.values import Place
from ivshmem.region import Region
from tests.backend_host.worker_guest import (
    EVENT,
    FUNCTION,
    MODULE,
    NO_CHUNK,
    PRIMARY,
    STREAM,
    Guest,
    kernel_image,
    make_region,
)
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry late(.param .u64 out, .param .u64 ns, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [ns];
    ld.param.u32 %r1, [value];
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra again;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry broken()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 64;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
LATE, BROKEN = FUNCTION, FUNCTION + 1
SECOND = PRIMARY + (1 << 24)
ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_CONTEXT, OUT_OF_MEMORY = 700, 400, 201, 2
LONG_NS = 100_000_000
NS_PER_S = 1_000_000_000
NR_PARTS = 64


class Kernels:
    """A guest with the module loaded in its current context, and four bytes of device memory."""

    def __init__(self, guest: Guest, first_handle: int = 0) -> None:
        self.guest, self.first = guest, first_handle
        assert guest.load(kernel_image(PTX), handle=MODULE + first_handle, blob=7 + first_handle).result == 0
        for handle, name in ((LATE, b"late"), (BROKEN, b"broken")):
            fields: dict[str, Any] = {
                "module": MODULE + first_handle,
                "handle": handle + first_handle,
                "name_bytes": len(name),
            }
            guest.ok("cuModuleGetFunction", name, chunk=NO_CHUNK, **fields)
        self.address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
        self.write(0)

    def write(self, value: int) -> None:
        self.guest.to_device(self.address, struct.pack("<I", value))
        assert self.guest.call("cuCtxSynchronize").result == 0

    def late(self, value: int, ns: int = LONG_NS, stream: int = 0) -> None:
        """Stores the value once the time is over."""
        self.guest.launch(LATE + self.first, struct.pack("<QQI", self.address, ns, value), stream=stream)

    def broken(self) -> None:
        """Writes where nothing is."""
        self.guest.launch(BROKEN + self.first, b"")

    def value(self, stream: int = 0) -> int:
        return int(struct.unpack("<I", self.guest.from_device(self.address, 4, stream=stream))[0])


@pytest.fixture
def kernels(served: Served) -> Kernels:
    return Kernels(served.primary())


def test_a_fault_is_that_of_all_contexts(served: Served) -> None:
    """Whoever waits for a broken context while another is current: nothing of the other one runs any more either."""
    guest = served.primary()
    first = Kernels(guest)
    guest.ok("context_create", context=0, handle=SECOND)
    guest.context = SECOND
    second = Kernels(guest, first_handle=8)
    guest.context = PRIMARY
    first.broken()
    guest.context = SECOND
    assert guest.call("cuCtxSynchronize_v2", ctx=PRIMARY).result == ILLEGAL_ADDRESS
    before = served.gpu_ns()
    second.late(5)
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    assert served.gpu_ns() - before < LONG_NS // 2
    guest.context = PRIMARY
    before = served.gpu_ns()
    first.late(6)
    assert guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    guest.lend_chunk(1)
    guest.cast_off(
        "cuMemcpyDtoHAsync_v2", source=first.address, bytes=4, place=Place.ARENA, destination=guest.CHUNK_BYTES, chunk=1
    )
    assert guest.await_chunk(1) == ILLEGAL_ADDRESS
    assert served.gpu_ns() - before < LONG_NS // 2, "nothing was submitted"


def test_who_is_alone_queues_few_long_kernels_of_a_stream(served: Served, kernels: Kernels) -> None:
    """So a newcomer waits for two of them, not for all."""

    def nr_launches() -> int:
        reading = served.host.control.worker(served.worker.slot)
        assert reading is not None
        return reading.nr_launches

    before = served.gpu_ns()
    kernels.late(1, ns=12 * LONG_NS)
    wait_until(lambda: served.gpu_ns() - before > LONG_NS, "it is seen to be long")
    for value in range(2, 12):
        kernels.late(value, ns=1)
    kernels.guest.ok("cuMemGetInfo_v2")  # goes by what waits
    assert nr_launches() <= 2, f"seen {served.gpu_ns() - before} ns after the first one began"
    kernels.guest.ok("cuCtxSynchronize")
    assert nr_launches() == 11
    assert kernels.value() == 11


def test_a_context_that_is_unknown(served: Served) -> None:
    guest = served.primary()
    for unknown in (SECOND, STREAM, 1, 2**64 - 1):
        assert guest.call("cuCtxSynchronize_v2", ctx=unknown).result == INVALID_CONTEXT
    assert guest.call("cuCtxSynchronize_v2", ctx=PRIMARY).result == 0


@pytest.mark.parametrize("attempt", range(3))
def test_no_chunk_is_lost_when_a_fault_comes_to_light_with_its_copy(kernels: Kernels, attempt: int) -> None:
    guest = kernels.guest
    kernels.broken()
    for chunk in range(guest.NR_CHUNKS):
        guest.lend_chunk(chunk)
        place: dict[str, Any] = {"place": Place.ARENA, "destination": chunk * guest.CHUNK_BYTES, "chunk": chunk}
        guest.cast_off("cuMemcpyDtoHAsync_v2", source=kernels.address, bytes=4, **place)
    for chunk in range(guest.NR_CHUNKS):
        assert guest.await_chunk(chunk) == ILLEGAL_ADDRESS


def test_the_legacy_stream_waits_for_blocking_streams(kernels: Kernels) -> None:
    guest = kernels.guest
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=0)
    guest.cast_off("cuStreamCreate", phStream=STREAM + 1, Flags=1)
    for value in range(1, 6):
        kernels.late(100 + value, ns=1_000_000)
        slot = guest.begin("cuStreamSynchronize", hStream=0)
        kernels.late(value, ns=20_000_000, stream=STREAM)
        assert guest.finish("cuStreamSynchronize", slot).result == 0
        assert guest.call("cuStreamSynchronize", hStream=0).result == 0
        assert kernels.value(stream=STREAM + 1) == value


def test_an_event_behind_a_kernel_is_waited_for_with_its_stream(kernels: Kernels) -> None:
    guest = kernels.guest
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    for value in range(200):
        kernels.late(value, ns=10_000, stream=STREAM)
        guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
        assert guest.call("cuStreamSynchronize", hStream=STREAM).result == 0
        assert guest.call("cuEventQuery", hEvent=EVENT).result == 0
    assert guest.take_error() == 0


@pytest.mark.parametrize("stream", ["idle", "busy", "new"])
def test_who_waits_for_all_work_waits_for_no_event_that_is_recorded_since(kernels: Kernels, stream: str) -> None:
    """Nobody waits for that, and nothing follows it in its stream. Another thread of the program may wait for who waits here."""
    guest = kernels.guest
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    if stream != "new":
        guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    if stream == "busy":
        kernels.late(1, stream=STREAM)
        synchronised = guest.begin("cuStreamSynchronize", hStream=STREAM)
    kernels.late(2)
    freed = guest.begin("cuMemFree_v2", dptr=address)
    if stream == "new":
        guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
    assert guest.finish("cuMemFree_v2", freed).result == 0
    if stream == "busy":
        assert guest.finish("cuStreamSynchronize", synchronised).result == 0


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("cuCtxSynchronize", {}),
        ("cuCtxSynchronize_v2", {"ctx": PRIMARY}),
        ("cuStreamSynchronize", {"hStream": 0}),
        ("cuEventSynchronize", {"hEvent": EVENT}),
    ],
)
def test_an_error_of_a_launch_is_told_by_the_next_synchronisation(
    kernels: Kernels, call: str, fields: dict[str, Any]
) -> None:
    guest = kernels.guest
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=0)
    guest.launch(FUNCTION + 99, b"")
    guest.ok("cuMemGetInfo_v2")
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.ok("cuMemFree_v2", dptr=address)
    assert guest.call(call, **fields).result == INVALID_HANDLE
    assert guest.call(call, **fields).result == 0


def test_a_client_that_closes_pays_for_what_it_started(host: Host, region: Region) -> None:
    served = Served(host, region)
    kernels = Kernels(served.primary())
    before = served.gpu_ns()
    kernels.late(1, ns=3 * LONG_NS)
    wait_until(lambda: served.gpu_ns() > before, "the kernel runs")
    kernels.guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}
    reading = host.control.vgpu(served.vgpu)
    assert reading is not None
    assert reading.used_ns >= 2 * LONG_NS, "it closed at the kernel's beginning"


def test_a_flooded_ring_keeps_the_grant_from_nobody(host: Host) -> None:
    """One guest launches a kernel and then sends requests that cost the GPU nothing, without a pause; the other gets its turns."""
    with make_region() as first, make_region() as second:
        hostile, other = (Kernels(Served(host, region).primary()) for region in (first, second))
        is_over = threading.Event()

        def flood() -> None:
            guest = hostile.guest
            part: dict[str, Any] = {
                "blob": 1,
                "source": 0,
                "bytes": guest.CHUNK_BYTES,
                "place": Place.ARENA,
                "chunk": NO_CHUNK,
            }
            image = [guest.record("blob_begin", blob=1, bytes=NR_PARTS * guest.CHUNK_BYTES)]
            image += [guest.record("blob_append", offset=nr * guest.CHUNK_BYTES, **part) for nr in range(NR_PARTS)]
            hostile.late(1, ns=1_000_000)
            while not is_over.is_set():
                for record in image:  # slow to carry out and quick to send: the ring is never empty
                    guest.send_raw(record)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for value in range(1, 6):
                other.late(value, ns=1_000_000)
                assert other.guest.call("cuCtxSynchronize").result == 0
                assert other.value() == value
        finally:
            is_over.set()
            flooding.join()
        for kernels in (hostile, other):
            kernels.guest.close()


def test_a_kernel_that_outlives_its_slice_is_not_waited_for_where_the_device_preempts() -> None:
    """The grant goes on beside it; its vGPU is charged while it runs, and for half of the time, as two have work on the device."""
    with (
        contextlib.closing(Host(SOFTGPU, is_preemptive=True)) as host,
        make_region() as first,
        make_region() as second,
    ):
        served = [Served(host, region) for region in (first, second)]
        long, other = (Kernels(each.primary()) for each in served)
        for vgpu in (0, 1):  # as a policy would: who has used less is next
            host.control.set_standing(vgpu, 0.0, per_ns=1.0, charged_ns=0)
        before = served[0].gpu_ns()
        long.late(1, ns=60 * NS_PER_S)
        wait_until(lambda: served[0].gpu_ns() > before, "the long kernel runs")
        other.late(2, ns=1000)
        wait_until(lambda: host.control.holder().vgpu == 1, "the other vGPU has the grant")
        charged = [host.control.vgpu(vgpu) for vgpu in (0, 1)]
        wait_until(
            lambda: all(
                now is not None and before is not None and now.used_ns > before.used_ns
                for now, before in zip([host.control.vgpu(vgpu) for vgpu in (0, 1)], charged, strict=True)
            ),
            "both are charged while both wait for the device",
        )
        assert not host.workers[0].process.has_ended()
