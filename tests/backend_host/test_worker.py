"""A worker process on the software device: what an honest guest asks for, and how a client ends."""

import os
import struct
from collections.abc import Iterator

import pytest

from backend_host.device.control import MAX_WORKERS
from cuda_api.generated.values import Place
from ivshmem.region import ClientState, Region, Wake
from tests.backend_host.worker_guest import (
    EVENT,
    FUNCTION,
    MODULE,
    PRIMARY,
    STREAM,
    Guest,
    kernel_image,
    make_region,
    wait_for_state,
)
from tests.backend_host.worker_harness import Host, Served

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r1;
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
NOT_FOUND, INVALID_VALUE, INVALID_IMAGE, INVALID_HANDLE, OUT_OF_MEMORY = 500, 1, 200, 400, 2


@pytest.fixture(params=[Wake.FUTEX, Wake.POLL], ids=["futex", "poll"])
def region(request: pytest.FixtureRequest) -> Iterator[Region]:
    with make_region(wake=request.param) as region:
        yield region


def test_a_kernel_computes(served: Served) -> None:
    guest = served.primary()
    assert guest.load(kernel_image(PTX)).result == 0
    info = guest.ok("cuModuleGetFunction", b"store", module=MODULE, handle=FUNCTION, name_bytes=5, chunk=1)
    assert (info.nr_parameters, info.parameter_bytes) == (2, 12)
    assert struct.unpack("<IIII", guest.read(guest.chunk_offset(1), 16)) == (0, 8, 8, 4)
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.to_device(address, bytes(256))
    guest.launch(FUNCTION, struct.pack("<QI", address, 42), block=32)
    assert guest.from_device(address, 256) == struct.pack("<I", 42) * 32 + bytes(128)
    assert guest.call("cuCtxSynchronize").result == 0  # counters are right once somebody was told that the work is done
    worker = served.host.control.worker(served.worker.slot)
    assert worker is not None
    assert (worker.nr_launches, worker.to_device_bytes, worker.from_device_bytes) == (1, 256, 256)
    assert worker.nr_refused == 0
    assert worker.memory_bytes == 4096 + worker.modules_bytes
    assert worker.gpu_ns > 0


def test_a_fetched_copy_is_one_round_trip(served: Served) -> None:
    """The program waits for it, by its last chunk."""
    guest = served.primary()
    address = guest.ok("cuMemAlloc_v2", bytesize=guest.CHUNK_BYTES).dptr

    def nr_round_trips() -> int:
        assert guest.call("cuCtxSynchronize").result == 0
        worker = served.host.control.worker(served.worker.slot)
        assert worker is not None
        return worker.nr_round_trips

    before = nr_round_trips()
    assert nr_round_trips() - before == 1, "the call itself"
    guest.from_device(address, guest.CHUNK_BYTES)
    assert nr_round_trips() - before == 2, "more chunks follow"
    guest.from_device(address, 4)
    assert nr_round_trips() - before == 4


def test_a_call_is_waited_for_or_only_sent(served: Served) -> None:
    guest = served.primary()
    address = guest.ok("cuMemAlloc_v2", bytesize=256).dptr

    def counted() -> tuple[int, int, int]:
        worker = served.host.control.worker(served.worker.slot)
        assert worker is not None
        return worker.nr_calls, worker.nr_sent, worker.nr_round_trips

    before = counted()
    guest.to_device(address, bytes(256))
    assert guest.call("cuCtxSynchronize").result == 0
    nr_calls, nr_sent, nr_waited = (after - earlier for after, earlier in zip(counted(), before, strict=True))
    assert nr_waited >= 1
    assert nr_calls == nr_sent + nr_waited


def test_a_record_that_was_given_up_is_passed_over(served: Served) -> None:
    """Whatever was written into it before."""
    guest = served.primary()
    for left_over in (b"", bytes(8), b"\xff" * 4000):
        guest.cast_off("given_up", left_over, context=0)
    assert guest.call("cuCtxSynchronize").result == 0
    worker = served.host.control.worker(served.worker.slot)
    assert worker is not None
    assert worker.nr_refused == 0


def test_streams_events_and_synchronisations(served: Served) -> None:
    guest = served.primary()
    address = guest.ok("cuMemAlloc_v2", bytesize=1 << 20).dptr
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=0)
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=7, N=1 << 20, hStream=STREAM)
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
    assert guest.call("cuEventSynchronize", hEvent=EVENT).result == 0
    assert guest.call("cuEventQuery", hEvent=EVENT).result == 0
    assert guest.call("cuStreamSynchronize", hStream=STREAM).result == 0
    assert guest.call("cuStreamSynchronize", hStream=0).result == 0
    assert guest.call("cuCtxSynchronize").result == 0
    assert guest.from_device(address, 4096, STREAM) == bytes([7]) * 4096
    guest.cast_off("cuStreamDestroy_v2", hStream=STREAM)
    assert guest.call("cuStreamSynchronize", hStream=STREAM).result == INVALID_HANDLE
    assert guest.take_error() == 0


def test_a_stream_that_waits_for_another_is_waited_for(served: Served) -> None:
    guest = served.primary()
    other = STREAM + 1
    address = guest.ok("cuMemAlloc_v2", bytesize=1 << 24).dptr
    for stream in (STREAM, other):
        guest.cast_off("cuStreamCreate", phStream=stream, Flags=1)
    guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=9, N=1 << 24, hStream=STREAM)
    guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
    guest.cast_off("cuStreamWaitEvent", hStream=other, hEvent=EVENT)
    waiting = [guest.begin("cuStreamSynchronize", hStream=other), guest.begin("cuCtxSynchronize")]
    assert guest.finish("cuStreamSynchronize", waiting[0]).result == 0
    assert guest.call("cuStreamQuery", hStream=STREAM).result == 0
    assert guest.finish("cuCtxSynchronize", waiting[1]).result == 0
    assert guest.take_error() == 0


def test_heap_memory_is_copied_in_place(served: Served) -> None:
    guest = served.primary()
    offset = guest.allocate(1 << 16)
    there = guest.address + offset
    assert guest.call("host_register", address=there, bytes=1 << 16, flags=3).result == 0
    guest.write(offset, os.urandom(1 << 16))
    before = guest.read(offset, 1 << 16)
    address = guest.ok("cuMemAlloc_v2", bytesize=1 << 16).dptr
    guest.cast_off("cuMemcpyHtoDAsync_v2", destination=address, source=there, bytes=1 << 16, place=Place.HEAP)
    guest.cast_off("cuMemsetD8Async", dstDevice=address, uc=0, N=16)
    guest.cast_off("cuMemcpyDtoHAsync_v2", destination=there, source=address, bytes=1 << 16, place=Place.HEAP)
    assert guest.call("cuStreamSynchronize", hStream=0).result == 0
    assert guest.read(offset, 1 << 16) == bytes(16) + before[16:]
    assert guest.call("host_unregister", address=there).result == 0
    assert guest.take_error() == 0


def test_memory_of_others_is_out_of_reach(served: Served) -> None:
    guest = served.primary()
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    not_mine = guest.address + guest.parts["arena"] + (32 << 20)
    for source in (0x1000, guest.address, not_mine, 2**64 - 4096):
        assert guest.call("host_register", address=source, bytes=4096, flags=3).result == INVALID_VALUE
        guest.cast_off("cuMemcpyHtoDAsync_v2", destination=address, source=source, bytes=4096, place=Place.HEAP)
        assert guest.call("cuStreamSynchronize", hStream=0).result == INVALID_VALUE
        assert guest.take_error() == 0


def test_a_fault_is_sticky_and_hangs_nobody(served: Served) -> None:
    guest = served.primary()
    assert guest.load(kernel_image(PTX)).result == 0
    guest.ok("cuModuleGetFunction", b"broken", module=MODULE, handle=FUNCTION, name_bytes=6, chunk=0xFFFFFFFF)
    guest.launch(FUNCTION, b"")
    result = guest.call("cuCtxSynchronize").result
    assert result == 700
    assert guest.region.client(0).sticky_error == 700
    guest.lend_chunk(0)
    guest.cast_off("cuMemcpyDtoHAsync_v2", source=1 << 40, bytes=4, place=Place.ARENA, chunk=0)
    assert guest.await_chunk(0) != 0
    assert guest.call("context_destroy", handle=PRIMARY).result in (0, 700)


def test_names_images_and_parameters_that_are_wrong(served: Served) -> None:
    guest = served.primary()
    assert guest.load(b"no image at all").result == INVALID_IMAGE
    assert guest.load(b"\xb1\x43\x62\x46" + bytes(60)).result == INVALID_IMAGE
    assert guest.load(kernel_image(PTX)).result == 0
    assert guest.load(kernel_image(PTX)).result == INVALID_HANDLE
    assert (
        guest.call("cuModuleGetFunction", b"absent", module=MODULE, handle=FUNCTION, name_bytes=6).result == NOT_FOUND
    )
    assert (
        guest.call("cuModuleGetFunction", b"sto\0e", module=MODULE, handle=FUNCTION, name_bytes=5).result
        == INVALID_VALUE
    )
    guest.ok("cuModuleGetFunction", b"store", module=MODULE, handle=FUNCTION, name_bytes=5, chunk=0)
    guest.launch(FUNCTION, b"short")
    assert guest.call("cuCtxSynchronize").result == INVALID_VALUE
    assert guest.take_error() == 0
    guest.launch(FUNCTION + 1, bytes(12))
    assert guest.call("cuCtxSynchronize").result == INVALID_HANDLE
    assert guest.take_error() == 0


def test_quota(host: Host) -> None:
    with make_region() as region:
        served = Served(host, region, quota_bytes=1 << 20)
        guest = served.primary()
        info = guest.ok("cuMemGetInfo_v2")
        assert (info.free, info.total) == (1 << 20, 1 << 20)
        address = guest.ok("cuMemAlloc_v2", bytesize=600_000).dptr
        assert guest.call("cuMemAlloc_v2", bytesize=600_000).result == OUT_OF_MEMORY
        assert guest.ok("cuMemGetInfo_v2").free == (1 << 20) - 600_000
        guest.ok("cuMemFree_v2", dptr=address)
        guest.ok("cuMemAlloc_v2", bytesize=600_000)
        guest.close()
        assert served.worker.ended() == {"ended": "the client closed"}
        reading = host.control.vgpu(served.vgpu)
        assert reading is not None
        assert reading.memory_bytes == 0
        assert reading.nr_workers == 0


def test_the_end_by_closing_leaves_nothing(host: Host, region: Region) -> None:
    served = Served(host, region)
    guest = served.primary()
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.to_device(address, bytes(4096))
    guest.close()
    assert served.worker.ended() == {"ended": "the client closed"}
    assert served.worker.process.returncode == 0
    assert host.control.holder().vgpu is None
    assert host.control.backlogged() == []


def test_the_daemons_death_is_no_end(served: Served) -> None:
    served.worker.socket.close()
    guest = served.primary()
    assert guest.call("cuCtxSynchronize").result == 0


def test_a_hostile_ring_ends_the_client(host: Host, region: Region) -> None:
    served = Served(host, region)
    served.guest.send_raw(bytes(8), kind=77)
    assert served.worker.ended() == {"ended": "the client's ring holds what no honest client writes"}
    assert region.client(0).state == ClientState.DEAD
    served.guest.close()


def test_refusals(host: Host) -> None:
    with make_region() as region:
        vgpu = host.control.vgpu_take()
        Guest(region).stop_beating()
        worker = host.start(region, 0, vgpu, table_hash=1)
        assert worker.ended()["refused"] == 803


def test_who_lost_its_place_refuses_nobody(host: Host) -> None:
    """The daemon that started it has died; the next one took its place back, and gives the client another worker."""
    with make_region() as region:
        guest = Guest(region)
        vgpu = host.control.vgpu_take()
        worker = host.start(region, 0, vgpu, slot=MAX_WORKERS - 1)
        assert worker.ended()["refused"] == 1
        assert region.client(0).state == ClientState.HELLO
        host.start(region, 0, vgpu)
        assert wait_for_state(region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
        guest.stop_beating()


def test_a_killed_worker_is_repaired(served: Served) -> None:
    guest = served.primary()
    guest.ok("cuMemAlloc_v2", bytesize=1 << 20)
    served.worker.process.kill()
    served.worker.process.wait()
    control = served.host.control
    control.repair(served.worker.slot)
    reading = control.vgpu(served.vgpu)
    assert reading is not None
    assert (reading.memory_bytes, reading.nr_workers, reading.nr_waiting) == (0, 0, 0)
    assert control.holder().vgpu is None
    control.worker_free(served.worker.slot)
    assert control.worker(served.worker.slot) is None


def test_a_lost_beat_ends_the_client_unless_its_vm_is_paused(host: Host) -> None:
    with make_region() as region:
        served = Served(host, region)
        host.control.set_patient(served.worker.slot, True)
        served.guest.stop_beating()
        host.control.set_patient(served.worker.slot, False)
        assert served.worker.ended() == {"ended": "the client's beat was lost"}


def test_two_vgpus_take_turns(host: Host) -> None:
    """Both keep more work queued than a slice holds; each gets the device again and again, and all of the work is done."""
    with make_region() as first, make_region() as second:
        guests = [Served(host, region).primary() for region in (first, second)]
        addresses = []
        for guest in guests:
            assert guest.load(kernel_image(PTX)).result == 0
            guest.ok("cuModuleGetFunction", b"store", module=MODULE, handle=FUNCTION, name_bytes=5, chunk=0xFFFFFFFF)
            addresses.append(guest.ok("cuMemAlloc_v2", bytesize=1 << 20).dptr)
        host.control.set_slice_ns(500_000)
        waiting = []
        for number in range(40):
            for guest, address in zip(guests, addresses, strict=True):
                for value in range(20):
                    guest.launch(FUNCTION, struct.pack("<QI", address, 20 * number + value), grid=64, block=256)
                waiting.append((guest, guest.begin("cuCtxSynchronize")))
            while len(waiting) > 4:
                guest, slot = waiting.pop(0)
                assert guest.finish("cuCtxSynchronize", slot).result == 0
        for guest, slot in waiting:
            assert guest.finish("cuCtxSynchronize", slot).result == 0
        for guest, address in zip(guests, addresses, strict=True):
            assert guest.from_device(address, 1024) == struct.pack("<I", 799) * 256
            assert guest.take_error() == 0
        readings = host.control.vgpus()
        assert all(reading.nr_grants > 1 and reading.used_ns > 0 for reading in readings)
        assert [worker.nr_launches for worker in host.control.workers()] == [800, 800]
        for guest in guests:
            guest.close()
        assert [worker.ended() for worker in host.workers] == [{"ended": "the client closed"}] * 2
        assert host.control.holder().vgpu is None
