"""Streams that wait for a value: they keep nobody else from the GPU, are charged nothing, and go on when it comes."""

import struct
from typing import Any

import pytest

from ivshmem.region import Region
from tests.backend_host.worker_guest import EVENT, PRIMARY, STREAM, Guest, make_region
from tests.backend_host.worker_harness import Host, Served
from tests.end_to_end.host import wait_until

NOT_READY, INVALID_VALUE = 600, 1
GEQ, EQ = 0, 1
WORDS = 1 << 22
"""That take the device longer to set than any latency that is taken off."""


def begin(host: Host, region: Region) -> tuple[Served, Guest, int]:
    """A client with two streams beside the default one, and 64 zeroed bytes before `WORDS`."""
    served = Served(host, region)
    guest = served.primary()
    for i in range(2):
        guest.cast_off("cuStreamCreate", phStream=STREAM + i, Flags=1)
    flags = int(guest.ok("cuMemAlloc_v2", bytesize=64 + 4 * WORDS).dptr)
    guest.cast_off("cuMemsetD32_v2", dstDevice=flags, ui=0, N=16)
    guest.ok("cuCtxSynchronize")
    return served, guest, flags


def word(guest: Guest, address: int, stream: int = STREAM + 1) -> int:
    return int(struct.unpack("<I", guest.from_device(address, 4, stream))[0])


def test_a_waiting_stream_keeps_no_grant(host: Host) -> None:
    with make_region() as region, make_region() as other_region:
        served, guest, flags = begin(host, region)
        guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=flags, value=1, flags=GEQ)
        for i in range(40):
            guest.cast_off("cuMemsetD32Async", dstDevice=flags + 4, ui=i, N=1, hStream=STREAM)
        guest.cast_off("cuMemsetD32Async", dstDevice=flags + 64, ui=1, N=WORDS, hStream=STREAM)
        assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
        wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
        charged = served.gpu_ns()
        other, neighbour, its = begin(host, other_region)
        for i in range(100):
            neighbour.cast_off("cuMemsetD32_v2", dstDevice=its, ui=i, N=16)
        neighbour.ok("cuCtxSynchronize")
        assert word(neighbour, its, 0) == 99
        assert other.gpu_ns() > 0
        assert served.gpu_ns() == charged
        assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
        guest.cast_off("cuStreamWriteValue32_v2", stream=STREAM + 1, addr=flags, value=1)
        guest.ok("cuStreamSynchronize", hStream=STREAM)
        assert word(guest, flags + 4) == 39
        assert served.gpu_ns() > charged
        wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")


def test_streams_that_wait_for_a_waiting_stream(host: Host) -> None:
    with make_region() as region:
        served, guest, flags = begin(host, region)
        guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
        guest.cast_off("cuStreamWaitValue64_v2", stream=STREAM, addr=flags, value=1 << 40, flags=EQ)
        guest.cast_off("cuEventRecord", hEvent=EVENT, hStream=STREAM)
        guest.cast_off("cuStreamWaitEvent", hStream=STREAM + 1, hEvent=EVENT)
        guest.cast_off("cuMemsetD32Async", dstDevice=flags + 8, ui=5, N=1, hStream=STREAM + 1)
        guest.cast_off("cuMemsetD32Async", dstDevice=flags + 8, ui=6, N=1, hStream=STREAM + 1)
        slot = guest.begin("cuStreamSynchronize", hStream=STREAM + 1)
        wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
        assert not guest.is_answered(slot)
        charged = served.gpu_ns()
        guest.cast_off("cuMemsetD32Async", dstDevice=flags + 64, ui=7, N=WORDS, hStream=0)
        guest.ok("cuStreamSynchronize", hStream=0)
        assert word(guest, flags + 64, 0) == 7
        assert served.gpu_ns() > charged
        assert not guest.is_answered(slot)
        guest.cast_off("cuStreamWriteValue64_v2", stream=0, addr=flags, value=1 << 40)
        assert guest.finish("cuStreamSynchronize", slot).result == 0
        assert word(guest, flags + 8) == 6
        assert guest.take_error() == 0


@pytest.mark.parametrize("call", ["cuMemsetD32Async", "cuEventRecord", "cuStreamWaitValue32_v2"])
def test_much_behind_a_wait_asks_for_no_grant(host: Host, call: str) -> None:
    with make_region() as region, make_region() as other_region:
        _, guest, memory = begin(host, region)
        page = guest.allocate(4096)
        value = guest.address + page
        guest.ok("host_register", address=value, bytes=4096)
        guest.cast_off("cuEventCreate", phEvent=EVENT, Flags=2)
        guest.cast_off("cuMemsetD32Async", dstDevice=memory + 8, ui=3, N=1, hStream=STREAM + 1)
        guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=value, value=1, flags=GEQ)
        fields: dict[str, Any] = {
            "cuMemsetD32Async": {"dstDevice": memory + 4, "ui": 7, "N": 1, "hStream": STREAM},
            "cuEventRecord": {"hEvent": EVENT, "hStream": STREAM},
            "cuStreamWaitValue32_v2": {"stream": STREAM, "addr": value, "value": 1, "flags": GEQ},
        }[call]
        for _ in range(1000):
            guest.cast_off(call, **fields)
        guest.ok("cuMemGetInfo_v2")  # in the ring behind them
        wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
        _, neighbour, its = begin(host, other_region)
        neighbour.cast_off("cuMemsetD32_v2", dstDevice=its, ui=5, N=1)
        assert word(neighbour, its, 0) == 5
        slot = guest.begin("cuStreamSynchronize", hStream=STREAM)
        guest.ok("cuMemGetInfo_v2")
        assert not guest.is_answered(slot)
        guest.write(page, struct.pack("<I", 1))
        assert guest.finish("cuStreamSynchronize", slot).result == 0
        assert word(guest, memory + 4, 0) == (7 if call == "cuMemsetD32Async" else 0)
        assert guest.take_error() == 0


def test_a_client_that_waits_for_ever_ends(host: Host) -> None:
    with make_region() as region:
        served, guest, flags = begin(host, region)
        guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=flags, value=1, flags=EQ)
        guest.cast_off("cuMemsetD32Async", dstDevice=flags, ui=1, N=1, hStream=STREAM)
        guest.begin("cuStreamSynchronize", hStream=STREAM)
        wait_until(lambda: host.control.holder().vgpu is None, "nobody holds the grant")
        guest.close()
        assert served.worker.process.has_ended(60)
        assert served.worker.process.wait() == 70
        host.control.repair(served.worker.slot)
        reading = host.control.vgpu(served.vgpu)
        assert reading is not None
        assert (reading.memory_bytes, reading.nr_workers, reading.nr_waiting) == (0, 0, 0)


def test_lies_about_operations(host: Host) -> None:
    with make_region() as region:
        _, guest, flags = begin(host, region)

        def batch(count: int, *operations: bytes) -> int:
            return guest.call("cuStreamBatchMemOp_v2", b"".join(operations), stream=STREAM, count=count).result

        def operation(kind: int, address: int, value: int = 1, how: int = 0) -> bytes:
            return struct.pack("<IIQQIIQQ", kind, 0, address, value, how, 0, 0, 0)[:48]

        write = operation(2, flags + 16, 9)
        assert batch(1, write) == 0
        assert word(guest, flags + 16, STREAM) == 9
        assert batch(0) == 0  # the driver takes it too
        assert batch(2, write) == INVALID_VALUE
        assert batch(1, write, write) == INVALID_VALUE
        assert batch(0xFFFFFFFF, write) == INVALID_VALUE
        assert batch(257, *[write] * 257) == INVALID_VALUE
        for bad in (operation(0, flags), operation(3, flags), operation(7, flags), operation(1, flags, 1, 4)):
            assert batch(1, bad) == INVALID_VALUE
        for address in (0, flags + 2, 4096, (1 << 64) - 4, guest.address):
            assert batch(1, operation(2, address)) != 0
        assert guest.call("cuStreamWaitValue32_v2", stream=STREAM, addr=flags, value=0, flags=4).result == INVALID_VALUE
        assert guest.call("cuStreamWriteValue32_v2", stream=STREAM, addr=flags, flags=1).result == INVALID_VALUE
        assert guest.call("cuStreamWriteValue32_v2", stream=PRIMARY, addr=flags).result == 400
        guest.ok("cuCtxSynchronize")
