"""Large launches in parts: what they leave, what comes between the parts, and what a guest may do meanwhile."""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from backend_host.device.readings import WorkerReading
from ivshmem.region import Region
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, PRIMARY, STREAM, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 total;
.visible .const .align 4 .u32 factor = 1;
.visible .entry count(.param .u64 out, .param .u64 ns)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [ns];
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra again;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    ld.const.u32 %r3, [factor];
    mad.lo.u32 %r4, %r1, %r3, %r2;
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd7, %rd1, %rd6;
    st.global.u32 [%rd7], %r4;
    red.global.add.u32 [total], 1;
    ret;
}
.visible .entry broken(.param .u64 out)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .reg .pred %p<2>;
    mov.u32 %r1, %ctaid.x;
    setp.lt.u32 %p1, %r1, 20;
    @%p1 ret;
    mov.u64 %rd1, 64;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry lasting(.param .u64 begun, .param .u64 ns)
{
    .reg .b64 %rd<6>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [begun];
    ld.param.u64 %rd2, [ns];
    st.volatile.global.u32 [%rd1], 1;
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra again;
    ret;
}
"""
OTHER_STREAM = STREAM + 1
COUNT, BROKEN, LASTING = FUNCTION, FUNCTION + 1, FUNCTION + 2
NR_BLOCKS = 50
ILLEGAL_ADDRESS, INVALID_VALUE, NOT_READY, INVALID_CONTEXT = 700, 1, 600, 201
BOXES = {"mode": 1, "waits_for_variant": 1, "threshold_blocks": 10, "least_blocks": 4, "part_ns": 0, "run_blocks": 0}
PERSISTENT = BOXES | {"mode": 2, "run_blocks": 7}
COOPERATIVE = 1
LONG_NS = 2_000_000
ENDLESS_NS = 600_000_000_000
LARGE = 600
LONG_SLICE_NS = 5_000_000_000


class Kernels:
    """A guest with the module, and room for a word for each block."""

    def __init__(self, served: Served) -> None:
        self.served, self.guest = served, served.primary()
        self.load()
        self.address = self.guest.ok("cuMemAlloc_v2", bytesize=4 * LARGE).dptr
        self.clear()

    def load(self) -> None:
        assert self.guest.load(kernel_image(PTX)).result == 0
        for handle, name in ((COUNT, b"count"), (BROKEN, b"broken"), (LASTING, b"lasting")):
            fields: dict[str, Any] = {"module": MODULE, "handle": handle, "name_bytes": len(name)}
            self.guest.ok("cuModuleGetFunction", name, chunk=NO_CHUNK, **fields)

    def clear(self) -> None:
        self.guest.ok("cuMemsetD32_v2", dstDevice=self.address, ui=0, N=LARGE)

    def variable(self, name: bytes) -> int:
        fields: dict[str, Any] = {"module": MODULE, "name_bytes": len(name)}
        return int(self.guest.ok("cuModuleGetGlobal_v2", name, **fields).address)

    def count(self, nr_blocks: int = NR_BLOCKS, ns: int = 0, stream: int = 0) -> None:
        self.guest.launch(COUNT, struct.pack("<QQ", self.address, ns), grid=nr_blocks, stream=stream)

    def words(self, nr_words: int = NR_BLOCKS, address: int = 0, stream: int = 0) -> list[int]:
        content = self.guest.from_device(address or self.address, 4 * nr_words, stream=stream)
        return list(struct.unpack(f"<{nr_words}I", content))

    def nr_grants(self) -> int:
        return self.served.account().nr_grants

    def reading(self) -> WorkerReading:
        found = self.served.host.control.worker(self.served.worker.slot)
        assert found is not None
        return found


def expected(factor: int = 1, nr_blocks: int = NR_BLOCKS) -> list[int]:
    return [block * factor + nr_blocks for block in range(nr_blocks)]


@pytest.fixture(params=[BOXES, PERSISTENT], ids=["boxes", "persistent"])
def kernels(request: pytest.FixtureRequest, host: Host, region: Region) -> Kernels:
    return Kernels(Served(host, region, slicing=request.param))


def test_a_persistent_kernel_that_does_not_stop_is_not_waited_for_where_the_device_preempts() -> None:
    """Its blocks last: the grant goes on beside it."""
    with (
        contextlib.closing(Host(SOFTGPU, is_preemptive=True)) as host,
        make_region() as first,
        make_region() as second,
    ):
        slicing = PERSISTENT | {"run_blocks": 0}
        long, other = (Kernels(Served(host, region, slicing=slicing)) for region in (first, second))
        for vgpu, per_ns in ((0, 1.0), (1, 0.0)):
            host.control.set_standing(vgpu, 0.0, per_ns=per_ns, charged_ns=0)
        begun = long.guest.allocate(4096)
        long.guest.ok("host_register", address=long.guest.address + begun, bytes=4096)
        long.guest.launch(LASTING, struct.pack("<QQ", long.guest.address + begun, ENDLESS_NS), grid=NR_BLOCKS)
        wait_until(
            lambda: long.guest.read(begun, 4) != bytes(4),
            "its blocks run: one that is only submitted stops before its first",
        )
        other.count(nr_blocks=1, ns=ENDLESS_NS)
        wait_until(lambda: host.control.holder().vgpu == 1, "the other vGPU has the grant")
        reading = long.reading()
        assert (reading.nr_parts, reading.nr_sliced, reading.whole) == (1, 0, {}), "it goes on"
        assert reading.stalled_since_ns != 0


def test_every_block_runs_once(kernels: Kernels) -> None:
    kernels.count()
    assert kernels.words() == expected()
    assert kernels.words(1, kernels.variable(b"total")) == [NR_BLOCKS], "the variable is the module's own"
    reading = kernels.reading()
    assert (reading.nr_sliced, reading.nr_variants, reading.nr_launches) == (1, 1, 1)
    assert reading.nr_parts > 5
    assert reading.variant_ns > 0
    assert reading.whole == {}


def test_small_launches_go_whole(kernels: Kernels) -> None:
    kernels.count(BOXES["threshold_blocks"])
    assert kernels.words(10) == expected(nr_blocks=10)
    assert kernels.reading().nr_sliced == kernels.reading().nr_variants == 0


def test_constants_are_those_of_the_launch(kernels: Kernels) -> None:
    factor = kernels.variable(b"factor")
    for value in (3, 4):
        kernels.guest.to_device(factor, struct.pack("<I", value))
        kernels.count()
        kernels.guest.to_device(factor, struct.pack("<I", 99))
        assert kernels.words() == expected(value)
    assert kernels.reading().nr_variants == 1


def test_what_comes_later_waits(kernels: Kernels) -> None:
    kernels.count(ns=100_000)
    kernels.guest.cast_off("cuMemsetD32Async", dstDevice=kernels.address, ui=7, N=25, hStream=0)
    assert kernels.words() == [7] * 25 + expected()[25:]


def test_its_stream_says_at_once_that_it_is_busy(kernels: Kernels) -> None:
    kernels.guest.ok("cuStreamCreate", phStream=STREAM, Flags=1)
    kernels.count(LARGE, LONG_NS, STREAM)
    assert kernels.guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    assert kernels.reading().nr_launches == 0, "not all of it is out"
    kernels.guest.ok("cuStreamSynchronize", hStream=STREAM)
    kernels.guest.ok("cuStreamQuery", hStream=STREAM)
    assert kernels.words(LARGE, stream=STREAM) == expected(nr_blocks=LARGE)


def beside_a_long_one(kernels: Kernels, ns: int) -> None:
    """A small kernel that runs for so long on one stream, and a large launch on another: the kernel's first."""
    for stream in (STREAM, OTHER_STREAM):
        kernels.guest.ok("cuStreamCreate", phStream=stream, Flags=1)
    kernels.count(1)
    kernels.guest.ok("cuCtxSynchronize")  # compiled, which takes longer than what follows
    kernels.guest.launch(COUNT, struct.pack("<QQ", kernels.address, ns), grid=1, stream=STREAM)
    kernels.count(stream=OTHER_STREAM)


def test_a_launch_that_stood_back_goes_in_parts_when_what_ran_has_ended(kernels: Kernels) -> None:
    beside_a_long_one(kernels, 300_000_000)
    assert kernels.words(stream=OTHER_STREAM) == expected()
    reading = kernels.reading()
    assert (reading.nr_variants, reading.nr_sliced, reading.whole) == (1, 1, {})
    kernels.guest.ok("cuStreamQuery", hStream=STREAM)


def test_what_runs_for_long_is_not_waited_for(kernels: Kernels) -> None:
    """Nor is a variant made beside it: the driver might wait for what runs, and that for the guest."""
    beside_a_long_one(kernels, ENDLESS_NS)
    wait_until(lambda: kernels.reading().nr_launches == 3, "both are out")
    assert (kernels.reading().nr_variants, kernels.reading().whole) == (0, {"held up stream": 1})


def test_a_module_that_is_loaded_again(kernels: Kernels) -> None:
    kernels.count()
    kernels.guest.ok("cuModuleUnload", hmod=MODULE)
    kernels.clear()
    kernels.load()
    kernels.count()
    assert kernels.words() == expected()
    assert kernels.reading().nr_variants == 2


def test_a_fault_in_a_part_is_the_launchs(kernels: Kernels) -> None:
    kernels.guest.launch(BROKEN, struct.pack("<Q", kernels.address), grid=NR_BLOCKS)
    assert kernels.guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS
    kernels.count()
    assert kernels.guest.call("cuCtxSynchronize").result == ILLEGAL_ADDRESS


def test_the_context_goes_while_parts_are_out(kernels: Kernels) -> None:
    kernels.count(LARGE, LONG_NS)
    kernels.guest.ok("context_destroy", handle=PRIMARY)
    again = Kernels.__new__(Kernels)
    again.served, again.guest = kernels.served, kernels.served.primary()
    again.load()
    again.address = again.guest.ok("cuMemAlloc_v2", bytesize=4 * LARGE).dptr
    again.clear()
    again.count()
    assert again.words() == expected()


def test_a_client_that_leaves_while_parts_are_out(kernels: Kernels) -> None:
    kernels.count(LARGE, LONG_NS)
    kernels.guest.close()
    assert kernels.served.worker.ended() == {"ended": "the client closed"}


def launch_fields(grid: list[int], **more: int) -> dict[str, Any]:
    return {"function": COUNT, "grid": grid, "block": [1, 1, 1], "nr_parameter_bytes": 16, **more}


@pytest.mark.parametrize("grid", [[1 << 31, 1, 1], [1, 1 << 16, 1], [2, 2, 1 << 16], [0xFFFFFFFF] * 3, [0, 99, 99]])
def test_a_grid_that_no_device_takes(kernels: Kernels, grid: list[int]) -> None:
    fields = launch_fields(grid)
    answer = kernels.guest.call("cuLaunchKernel", struct.pack("<QQ", kernels.address, 0), **fields)
    assert answer.result == INVALID_VALUE
    kernels.count()
    assert kernels.words() == expected()


def test_a_launch_of_another_length(kernels: Kernels) -> None:
    fields = launch_fields([NR_BLOCKS, 1, 1], nr_attributes=1)
    for payload in (b"", bytes(16), bytes(16 + 71)):
        assert kernels.guest.call("cuLaunchKernel", payload, **fields).result == INVALID_VALUE
    assert kernels.reading().nr_sliced == 0


def test_cooperative_launches_go_whole(kernels: Kernels) -> None:
    fields = launch_fields([12, 1, 1], flags=COOPERATIVE)
    kernels.guest.ok("cuLaunchKernel", struct.pack("<QQ", kernels.address, 0), **fields)
    assert kernels.words(12) == expected(nr_blocks=12)
    assert kernels.reading().whole == {"cooperative": 1}


@contextlib.contextmanager
def beside(host: Host, region: Region, settings: dict[str, int]) -> Iterator[tuple[Kernels, Kernels]]:
    """One whose launches go in parts, its variant made, and one of another vGPU; both have done something."""
    kernels = Kernels(Served(host, region, slicing=settings))
    kernels.count()
    kernels.guest.ok("cuCtxSynchronize")
    with another(host) as other:
        yield kernels, other


@contextlib.contextmanager
def another(host: Host) -> Iterator[Kernels]:
    """One of another vGPU, which has done something."""
    with make_region() as region:
        other = Kernels(Served(host, region))
        other.count(1)
        other.guest.ok("cuCtxSynchronize")
        yield other
        other.guest.stop_beating()


def check_handed_over(host: Host, kernels: Kernels, other: Kernels, ns: int) -> None:
    """In the midst of a large launch, with blocks of this length, one that stands before has the GPU, and the launch goes on."""
    host.control.set_standing(kernels.served.vgpu, 2.0, 0.0, charged_ns=0)
    host.control.set_standing(other.served.vgpu, 1.0, 0.0, charged_ns=0)
    nr_parts = kernels.reading().nr_parts
    kernels.count(LARGE, ns)
    long = kernels.guest.begin("cuCtxSynchronize")
    wait_until(lambda: kernels.reading().nr_parts > nr_parts, "it has begun")
    other.count(1)
    assert other.words(1) == expected(nr_blocks=1)
    assert not kernels.guest.is_answered(long)
    assert kernels.guest.finish("cuCtxSynchronize", long).result == 0
    assert kernels.words(LARGE) == expected(nr_blocks=LARGE)


@pytest.mark.parametrize("stands_before", [True, False])
@pytest.mark.parametrize("settings", [BOXES, {**PERSISTENT, "run_blocks": 0}], ids=["boxes", "persistent"])
def test_who_wakes_beside_a_launch_in_parts_need_not_wait_for_the_slice(
    host: Host, region: Region, settings: dict[str, int], stands_before: bool
) -> None:
    with beside(host, region, settings) as (kernels, other):
        host.control.set_slice_ns(LONG_SLICE_NS)
        host.control.set_standing(kernels.served.vgpu, 2.0, 0.0, charged_ns=0)
        host.control.set_standing(other.served.vgpu, 1.0 if stands_before else 3.0, 0.0, charged_ns=0)
        nr_parts = kernels.reading().nr_parts
        kernels.count(LARGE, 4 * LONG_NS)
        long = kernels.guest.begin("cuCtxSynchronize")
        wait_until(lambda: kernels.reading().nr_parts > nr_parts, "it has begun")
        nr_grants = other.nr_grants()
        other.count(1)
        short = other.guest.begin("cuCtxSynchronize")
        if stands_before:  # on a host that does not run it in time, its turn is over before it has used it
            wait_until(lambda: other.nr_grants() > nr_grants, "it has been granted the GPU")
            assert not kernels.guest.is_answered(long)
        assert other.guest.finish("cuCtxSynchronize", short).result == 0
        assert stands_before or kernels.guest.is_answered(long)
        assert kernels.guest.finish("cuCtxSynchronize", long).result == 0
        assert kernels.words(LARGE) == expected(nr_blocks=LARGE)


@pytest.mark.parametrize("settings", [BOXES, {**PERSISTENT, "run_blocks": 0}], ids=["boxes", "persistent"])
def test_the_gpu_is_handed_over_within_a_launch(host: Host, region: Region, settings: dict[str, int]) -> None:
    with beside(host, region, settings) as (kernels, other):
        check_handed_over(host, kernels, other, 4 * LONG_NS)
