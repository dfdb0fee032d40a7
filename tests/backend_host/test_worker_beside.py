"""Copies that need no turn: beside another vGPU's kernels, and not charged; what still has to wait, and who hands the grant on for them.

softgpu copies with the cores that its kernels use. That copies cost kernels nothing is for a GPU; here it is who waits for whom.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from backend_host.device.readings import WorkerReading
from cuda_api.generated.values import Place
from ivshmem.region import Region
from tests.backend_host.test_worker_order import NS_PER_S, Kernels
from tests.backend_host.worker_guest import NO_CHUNK, Guest, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

BULK_BYTES, LARGE_BYTES = 1 << 16, 16 << 20
SLICE_NS = 60 * NS_PER_S
KERNEL_NS, LONG_NS = 3 * NS_PER_S // 2, 10 * NS_PER_S
NR_SMALL, NR_LARGE, NR_STAGED = 50, 300, 500
SEEN_NS = 25_000_000


class Copies:
    """A guest with heap memory, and `nr_bytes` of the device's."""

    nr_bytes = LARGE_BYTES

    def __init__(self, served: Served) -> None:
        self.served = served
        self.guest = served.primary()
        self.kernels = Kernels(self.guest)
        self.host_offset = self.guest.allocate(LARGE_BYTES)
        self.guest.ok("host_register", address=self.guest.address + self.host_offset, bytes=LARGE_BYTES)
        self.address = int(self.guest.ok("cuMemAlloc_v2", bytesize=self.nr_bytes).dptr)
        self.fill(0)
        self.guest.ok("cuCtxSynchronize")

    def fill(self, byte: int, nbytes: int = LARGE_BYTES) -> None:
        """By a kernel, or what counts as one."""
        self.guest.cast_off("cuMemsetD8Async", dstDevice=self.address, uc=byte, N=nbytes, hStream=0)

    def fetch(self, nbytes: int) -> None:
        """Into its heap, pinned memory."""
        fields: dict[str, Any] = {"source": self.address, "destination": self.guest.address + self.host_offset}
        self.guest.cast_off("cuMemcpyDtoHAsync_v2", bytes=nbytes, place=Place.HEAP, chunk=NO_CHUNK, stream=0, **fields)

    def fetch_staged(self) -> None:
        """Into all of its arena. No chunk is lent for it, so nothing says when it is done."""
        fields: dict[str, Any] = {"source": self.address, "destination": 0, "chunk": NO_CHUNK, "stream": 0}
        nbytes = self.guest.NR_CHUNKS * self.guest.CHUNK_BYTES
        self.guest.cast_off("cuMemcpyDtoHAsync_v2", bytes=nbytes, place=Place.ARENA, **fields)

    def send(self, nbytes: int) -> None:
        fields: dict[str, Any] = {"destination": self.address, "source": self.guest.address + self.host_offset}
        self.guest.cast_off("cuMemcpyHtoDAsync_v2", bytes=nbytes, place=Place.HEAP, chunk=NO_CHUNK, stream=0, **fields)

    def begin_wait(self) -> int:
        return self.guest.begin("cuStreamSynchronize", hStream=0)

    def end_wait(self, slot: int) -> None:
        assert self.guest.finish("cuStreamSynchronize", slot).result == 0

    def wait(self) -> None:
        self.end_wait(self.begin_wait())

    def fetched(self, nbytes: int) -> set[int]:
        return set(self.guest.read(self.host_offset, nbytes))

    def reading(self) -> WorkerReading:
        reading = self.served.host.control.worker(self.served.worker.slot)
        assert reading is not None
        return reading

    def has_gpu(self) -> bool:
        return self.served.host.control.holder().vgpu == self.served.vgpu


def served_by(host: Host, region: Region) -> Copies:
    return Copies(Served(host, region))


@contextlib.contextmanager
def two_on(*, is_preemptive: bool, region_bytes: int = 64 << 20) -> Iterator[tuple[Copies, Copies]]:
    """One that copies, and a neighbour. Slices are so long that none ends."""
    with (
        contextlib.closing(Host(SOFTGPU, slice_ns=SLICE_NS, is_preemptive=is_preemptive)) as host,
        make_region(region_bytes) as first,
        make_region(region_bytes) as second,
    ):
        pair = served_by(host, first), served_by(host, second)
        wait_until(lambda: host.control.holder().vgpu is None, "nobody has the device")
        yield pair


@pytest.fixture
def two() -> Iterator[tuple[Copies, Copies]]:
    with two_on(is_preemptive=True) as pair:
        yield pair


def begin_kernel(neighbour: Copies, ns: int = LONG_NS) -> None:
    neighbour.kernels.late(7, ns=ns)
    wait_until(lambda: neighbour.reading().stalled_since_ns != 0, "its kernel is on the device")


def is_at_it(neighbour: Copies) -> bool:
    return neighbour.has_gpu() and neighbour.reading().stalled_since_ns != 0


def test_copies_go_beside_anothers_kernel_and_are_not_charged(two: tuple[Copies, Copies]) -> None:
    mine, neighbour = two
    mine.fill(5)
    mine.wait()
    wait_until(lambda: not mine.has_gpu(), "it has given the device back")
    charged_ns = mine.served.gpu_ns()
    begin_kernel(neighbour)
    mine.guest.write(mine.host_offset, b"\x09" * BULK_BYTES)
    mine.send(BULK_BYTES)
    mine.fetch(2 * BULK_BYTES)
    mine.wait()
    assert is_at_it(neighbour)
    assert mine.fetched(BULK_BYTES) == {9}
    assert mine.fetched(2 * BULK_BYTES) == {5, 9}
    assert mine.reading().nr_copies_beside == 2
    for _ in range(NR_SMALL):
        mine.fetch(BULK_BYTES)
    mine.wait()
    assert is_at_it(neighbour)
    assert mine.reading().nr_copies_beside == 2 + NR_SMALL
    assert mine.served.gpu_ns() == charged_ns
    assert not mine.reading().is_user


def test_small_copies_wait_for_their_turn(two: tuple[Copies, Copies]) -> None:
    """They take the engine for kernels."""
    mine, neighbour = two
    begin_kernel(neighbour, KERNEL_NS)
    mine.fetch(BULK_BYTES - 1)
    slot = mine.begin_wait()
    wait_until(lambda: mine.reading().is_waiting, "it waits")
    mine.end_wait(slot)
    assert neighbour.kernels.value() == 7
    assert mine.reading().nr_copies_beside == 0


def test_where_the_device_does_not_preempt_copies_take_turns() -> None:
    with two_on(is_preemptive=False) as (mine, neighbour):
        begin_kernel(neighbour, KERNEL_NS)
        mine.fetch(BULK_BYTES)
        mine.wait()
        assert mine.reading().nr_copies_beside == 0


def test_a_copy_stays_behind_its_own_kernels(two: tuple[Copies, Copies]) -> None:
    mine, neighbour = two
    begin_kernel(neighbour, KERNEL_NS)
    mine.fill(3)
    mine.fetch(LARGE_BYTES)
    slot = mine.begin_wait()
    wait_until(lambda: mine.reading().is_waiting, "its kernel waits")
    assert not mine.guest.is_answered(slot) or not is_at_it(neighbour)
    mine.end_wait(slot)
    assert mine.fetched(LARGE_BYTES) == {3}


def test_kernels_behind_a_copy_wait_for_their_turn(two: tuple[Copies, Copies]) -> None:
    mine, neighbour = two
    begin_kernel(neighbour, KERNEL_NS)
    mine.guest.write(mine.host_offset, b"\x04" * BULK_BYTES)
    mine.send(BULK_BYTES)
    mine.fill(6, 1)
    mine.fetch(BULK_BYTES)
    slot = mine.begin_wait()
    wait_until(lambda: mine.reading().is_waiting, "its kernel waits")
    assert mine.reading().nr_copies_beside == 1
    mine.end_wait(slot)
    assert mine.guest.read(mine.host_offset, 2) == b"\x06\x04"
    assert neighbour.kernels.value() == 7


def test_who_has_only_copies_left_hands_the_device_on(two: tuple[Copies, Copies]) -> None:
    """They go on beside the next one's kernel, in its turn."""
    mine, neighbour = two
    for _ in range(NR_STAGED):
        mine.fetch_staged()
    slot = mine.begin_wait()
    wait_until(lambda: mine.has_gpu() or mine.guest.is_answered(slot), "it copies in its turn")
    begin_kernel(neighbour)
    is_over = mine.guest.is_answered(slot)  # on a machine with much else to do, before there was a neighbour
    mine.end_wait(slot)
    assert is_at_it(neighbour)
    assert is_over or mine.reading().nr_copies_beside > 0


def test_who_copies_pinned_memory_all_the_time_takes_turns(two: tuple[Copies, Copies]) -> None:
    """Copies that a CPU stages go beside those. Where its worker gets no CPU for a while, some credit comes back."""
    mine, neighbour = two
    before_ns = mine.served.gpu_ns()
    for _ in range(NR_LARGE):
        mine.fetch(LARGE_BYTES)
    slot = mine.begin_wait()
    wait_until(lambda: mine.served.gpu_ns() - before_ns > SEEN_NS, "it is seen to copy all the time")
    neighbour.fetch_staged()
    neighbour.wait()
    is_over = mine.guest.is_answered(slot)
    assert is_over or neighbour.reading().nr_copies_beside == 1
    neighbour.kernels.late(7, ns=1)
    assert neighbour.kernels.value() == 7
    mine.end_wait(slot)
    assert mine.reading().nr_copies_beside < NR_LARGE // 8


def test_more_than_a_cpu_can_stage_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest may say so of what it did not stage."""
    monkeypatch.setattr(Guest, "NR_CHUNKS", 72)
    monkeypatch.setattr(Copies, "nr_bytes", 72 << 20)
    with two_on(is_preemptive=True, region_bytes=192 << 20) as (mine, neighbour):
        begin_kernel(neighbour, KERNEL_NS)
        mine.fetch_staged()
        slot = mine.begin_wait()
        wait_until(lambda: mine.reading().is_waiting, "it waits")
        mine.end_wait(slot)
        assert neighbour.kernels.value() == 7
        assert mine.reading().nr_copies_beside == 0
