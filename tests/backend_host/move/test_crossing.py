"""Programs that move by replay in real workers while they launch, allocate and give up contexts: nothing is done twice, or had for nothing."""

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend_host.device.readings import Bound, Motion, Stage
from backend_host.devices import Device
from backend_host.entitlement import Entitlement
from backend_host.move import by_replay
from backend_host.move.journey import called
from backend_host.move.words import REPLAY
from backend_host.vgpu import VGpu
from ivshmem.region import BEAT_LOST_SECONDS
from tests.backend_host.between import build_between
from tests.backend_host.move.travel import Travel, reading, travelling
from tests.backend_host.swapping import DEVICE, STEP, allocate, filled, numbered, words
from tests.backend_host.test_worker_parts import BOXES, LARGE, PERSISTENT
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, PRIMARY, Guest, kernel_image
from tests.end_to_end.host import wait_until

PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 out, .param .u64 ns)
{
    .reg .b32 %r<2>;
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
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd7, %rd1, %rd6;
    red.global.add.u32 [%rd7], 1;
    ret;
}
"""
LARGE_VARIABLE = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b8 large[268435456];
"""
BLOCK = 64 << 20
OTHER = 0x41_00000001_000005
LONG_NS = 5_000_000
NR_LAUNCHES = 2
LOOK_S = 0.05
"""So often a worker looks after its client."""


@pytest.fixture(scope="module")
def held_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_between("held_calls", tmp_path_factory.mktemp("held_calls"))


@pytest.fixture
def fast(two_devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Travel]:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    with travelling(two_devices, tmp_path, is_fast=True) as made:
        yield made


def counter(guest: Guest) -> int:
    """The kernel is loaded; the address of a word for each block."""
    assert guest.load(kernel_image(PTX)).result == 0
    guest.ok("cuModuleGetFunction", b"count", module=MODULE, handle=FUNCTION, name_bytes=5, chunk=NO_CHUNK)
    address = allocate(guest, 4 * LARGE)
    guest.ok("cuMemsetD32_v2", dstDevice=address, ui=0, N=LARGE)
    return address


def in_parts(travel: Travel, settings: dict[str, int]) -> tuple[VGpu, Guest, int]:
    """A program with launches of which the first is half out."""
    for gpu in travel.gpus:
        gpu.workers._slicing.update(settings)
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    address = counter(guest)
    for _ in range(NR_LAUNCHES):
        guest.launch(FUNCTION, struct.pack("<QQ", address, LONG_NS), grid=LARGE)
    wait_until(lambda: reading(vgpu).nr_parts > 3, "it goes in parts")
    return vgpu, guest, address


def counts(guest: Guest, address: int) -> list[int]:
    """How often each block ran."""
    return list(struct.unpack(f"<{LARGE}I", guest.from_device(address, 4 * LARGE)))


@pytest.mark.parametrize("settings", [BOXES, PERSISTENT], ids=["boxes", "persistent"])
def test_a_launch_that_is_half_out_ends_first_and_alone(fast: Travel, settings: dict[str, int]) -> None:
    vgpu, guest, address = in_parts(fast, settings)
    move = fast.move(vgpu, 1, "replay")
    assert (move.stage, move.reason) == ("done", "")
    assert counts(guest, address) == [NR_LAUNCHES] * LARGE
    assert reading(vgpu).nr_variants == 2, "one on each device"


def test_a_launch_that_does_not_come_to_its_end_keeps_it(fast: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_replay, "STAND_S", 0.1)
    vgpu, guest, address = in_parts(fast, BOXES)
    move = fast.move(vgpu, 1)
    said = f"{called(reading(vgpu))} does not stand still within 0.1 s: its work on the GPU does not end"
    assert (move.stage, move.reason) == ("aborted", said)
    assert counts(guest, address) == [NR_LAUNCHES] * LARGE


@pytest.fixture
def held(
    two_devices: list[Device], held_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Travel]:
    """As `fast`, and its folder holds calls up: held_calls.c."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    monkeypatch.setenv("FAIRGV_HELD_CALLS", str(tmp_path))
    devices = [replace(device, path=str(held_library)) for device in two_devices]
    with travelling(devices, tmp_path, is_fast=True) as made:
        yield made


def test_what_takes_prints_is_compiled_where_no_call_of_the_program_waits(held: Travel, tmp_path: Path) -> None:
    """In the context on the other device: NVIDIA's driver holds one for as long as it compiles there."""
    vgpu = held.opened()
    guest = held.program(vgpu)
    addresses = filled(guest, 2)
    assert not held.move(vgpu, mover=REPLAY).reason
    assert (tmp_path / "linked").read_text() == "0 on 1\n"
    assert words(guest, addresses) == numbered(2)


@contextlib.contextmanager
def holding(file: Path, begin: Callable[[], object]) -> Iterator[None]:
    """The call that this holds up, from when it is made."""
    file.touch()
    begin()
    wait_until(file.with_name(f"{file.name}.held").exists, "the call is held up")
    yield
    file.unlink()


def let_pass(seconds: float) -> None:
    """So long a call takes."""
    begun_s = time.monotonic()
    wait_until(lambda: time.monotonic() - begun_s > seconds, "the time has passed")


def ready_to_cross(travel: Travel) -> tuple[VGpu, Guest, list[int]]:
    """A program with two blocks that are copied, of which one has changed since."""
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)
    page, [worker] = vgpu.gpu.page, vgpu.caretaker.workers()
    page.set_motion_device(worker.slot, 1)
    page.set_motion(vgpu.index, Motion.COPY)
    wait_until(lambda: reading(vgpu).stage is Stage.PREPARED, "it is ready")
    guest.ok("cuMemsetD32_v2", dstDevice=addresses[0], ui=0, N=1)
    return vgpu, guest, addresses


def test_a_pause_longer_than_a_lost_beat_ends_nobody(held: Travel, tmp_path: Path) -> None:
    """The worker looks after its client right behind that pause, as it did before for long."""
    vgpu, guest, addresses = ready_to_cross(held)
    page = vgpu.gpu.page
    wait_until(lambda: reading(vgpu).phase == "out", "it has no turn")
    slots: list[int] = []
    with holding(tmp_path / "limit", lambda: slots.append(guest.begin("cuCtxGetLimit", limit=0))):
        (tmp_path / "copy").touch()
        page.set_motion(vgpu.index, Motion.CHANGE)
        let_pass(LOOK_S)
    with holding(tmp_path / "copy", lambda: None):
        let_pass(BEAT_LOST_SECONDS)
    wait_until(lambda: reading(vgpu).stage is Stage.STANDS, "it is on the other device")
    page.set_motion(vgpu.index, Motion.NONE)
    guest.finish("cuCtxGetLimit", slots[0])
    assert words(guest, addresses) == [(0, 1), (2, 2)]


def test_who_is_called_back_while_it_crosses_is_where_it_was(held: Travel, tmp_path: Path) -> None:
    """As another program of its vGPU is refused just then."""
    vgpu, guest, addresses = ready_to_cross(held)
    page = vgpu.gpu.page
    with holding(tmp_path / "copy", lambda: page.set_motion(vgpu.index, Motion.CHANGE)):
        page.set_motion(vgpu.index, Motion.NONE)
    wait_until(lambda: reading(vgpu).stage is Stage.RUNS, "nothing is left of it")
    assert words(guest, addresses) == [(0, 1), (2, 2)]
    page.set_motion(vgpu.index, Motion.COPY)
    wait_until(lambda: reading(vgpu).stage is Stage.PREPARED, "it is ready once more")
    page.set_motion(vgpu.index, Motion.NONE)


@pytest.mark.parametrize("nr_blocks", [1, 6], ids=["copied", "copying"])
def test_a_context_that_goes_meanwhile_leaves_nothing_that_is_not_counted(fast: Travel, nr_blocks: int) -> None:
    """The driver frees nothing of it as long as somebody has a reference."""
    vgpu = fast.opened()
    looker, guest = fast.program(fast.opened("looker", Entitlement(gpu="0"))), fast.program(vgpu)
    guest.ok("context_create", context=0, handle=OTHER, is_primary=0)
    guest.context = OTHER
    addresses = filled(guest, nr_blocks, BLOCK)

    def used() -> int:
        """By the driver, of what is not counted."""
        taken = DEVICE - int(looker.ok("cuMemGetInfo_v2").free)
        return taken - sum(each.memory_bytes for each in fast.gpus[0].page.vgpus())

    before = used()
    page, [worker] = vgpu.gpu.page, vgpu.caretaker.workers()
    page.set_motion_device(worker.slot, 1)
    page.set_motion(vgpu.index, Motion.COPY)
    wait_until(lambda: reading(vgpu).ahead_bytes > 0, "it copies")
    if nr_blocks == 1:
        wait_until(lambda: reading(vgpu).stage is Stage.PREPARED, "it is ready")
    for _ in range(3):
        guest.context = PRIMARY
        assert guest.load(kernel_image(LARGE_VARIABLE)).result == 0
        guest.ok("context_destroy", context=0, handle=PRIMARY, is_released=1)
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        assert used() <= before
    wait_until(lambda: bool(reading(vgpu).bound & Bound.OBJECTS), "the change has come to nothing")
    page.set_motion(vgpu.index, Motion.NONE)
    wait_until(lambda: reading(vgpu).stage is Stage.RUNS, "nothing is left of it")
    guest.context = OTHER
    assert words(guest, addresses, BLOCK) == numbered(nr_blocks)


def test_what_was_freed_meanwhile_takes_nothing_on_the_other_device(fast: Travel) -> None:
    """What comes in its place fits none of the holes, and so has other addresses."""
    vgpu = fast.opened(entitlement=Entitlement(gpu="0"))
    looker, guest = fast.program(fast.opened("looker", Entitlement(gpu="1"), gpu=1)), fast.program(vgpu)
    before = int(looker.ok("cuMemGetInfo_v2").free)
    page, [worker] = vgpu.gpu.page, vgpu.caretaker.workers()
    addresses = filled(guest, 2, BLOCK)
    page.set_motion_device(worker.slot, 1)
    page.set_motion(vgpu.index, Motion.COPY)
    wait_until(lambda: reading(vgpu).stage is Stage.PREPARED, "it is ready")
    pin = allocate(guest, STEP)
    for address in addresses:
        guest.ok("cuMemFree_v2", dptr=address)
    addresses = filled(guest, 2, 2 * BLOCK + STEP)
    page.set_motion(vgpu.index, Motion.CHANGE)
    wait_until(lambda: reading(vgpu).stage is Stage.STANDS, "it is on the other device")
    assert before - int(looker.ok("cuMemGetInfo_v2").free) <= reading(vgpu).resident_bytes
    page.set_motion(vgpu.index, Motion.NONE)
    assert words(guest, addresses, 2 * BLOCK + STEP) == numbered(2)
    guest.ok("cuMemFree_v2", dptr=pin)
