"""A worker whose vGPU changes its Gpu: it makes ready, stands with its memory off the device, and goes on here, or by another page."""

import contextlib
import dataclasses
import enum
import re
import time
from collections.abc import Callable, Iterator

import pytest
from cffi import FFI

from backend_host.device.control import ControlPage
from backend_host.device.readings import Bound, Keeps, Motion, Sleep, Stage, WorkerReading, WorkerState
from backend_host.shelf import Message
from backend_host.worker.build_ffi import HERE
from ivshmem.passing import send_with
from ivshmem.region import ClientState
from tests.backend_host.swapping import DEVICE, SPAN, STEP, filled, first_word, numbered, words
from tests.backend_host.test_host_functions import posted, rearm, set_behind_function, take_mailbox
from tests.backend_host.worker_guest import STREAM, make_region, wait_for_state
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

PAGE = 5
"""enum fgw_shelf_word."""
NOT_READY = 600


@contextlib.contextmanager
def with_span() -> Iterator[Served]:
    """A worker whose device has room for all, and whose span is open."""
    host = Host(SOFTGPU)
    try:
        with make_region() as region:
            served = Served(host, region, quota_bytes=1 << 30, memory="span")
            served.primary().ok("span_open", address=SPAN, bytes=4 * DEVICE)
            yield served
    finally:
        host.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with with_span() as served:
        yield served


@pytest.fixture
def other() -> Iterator[ControlPage]:
    """That of another Gpu."""
    with ControlPage.create(6_000_000) as page:
        yield page


def reading(page: ControlPage, slot: int) -> WorkerReading:
    found = page.worker(slot)
    assert found is not None
    return found


def move_to(served: Served, motion: Motion) -> None:
    served.host.control.set_motion(served.vgpu, motion)


def wait_for(served: Served, is_so: Callable[[WorkerReading], bool], what: str) -> None:
    wait_until(lambda: is_so(reading(served.host.control, served.worker.slot)), what)


def wait_for_stage(served: Served, stage: Stage) -> None:
    wait_for(served, lambda each: each.stage is stage, f"it is at {stage.name}")


def stand(served: Served) -> None:
    move_to(served, Motion.PREPARE)
    wait_for_stage(served, Stage.PREPARED)
    move_to(served, Motion.STAND)
    wait_for_stage(served, Stage.STANDS)


def change_page(served: Served, page: ControlPage) -> tuple[int, int]:
    """Its vGPU and its slot there."""
    page.vgpu_take()  # so that the number is another one
    vgpu, slot = page.vgpu_take(1 << 30), page.worker_take()
    page.worker_assign(slot, served.worker.process.pid, vgpu, 0)
    with page.for_worker(vgpu, slot) as objects:
        send_with(served.worker.socket, Message(PAGE, (vgpu, slot), 0).packed(), objects)
    wait_until(lambda: reading(page, slot).state is WorkerState.SERVING, "it goes by the other page")
    return vgpu, slot


@pytest.mark.parametrize("words", [Motion, Stage, Sleep, Bound, Keeps])
def test_what_the_page_says_has_the_same_words_here(words: type[enum.IntEnum | enum.IntFlag]) -> None:
    name = f"fgw_{words.__name__.lower()}"
    body = (HERE / "page/layout.h").read_text().partition(f"enum {name} {{")[2].partition("}")[0]
    parsed = FFI()
    parsed.cdef(f"enum {name} {{{re.sub(r'/[*].*?[*]/', '', body)}}};")
    found = {
        key.removeprefix(f"{name.upper()}_"): value for key, value in parsed.typeof(f"enum {name}").relements.items()
    }
    assert {key: value for key, value in found.items() if key != "LAST"} == {each.name: each.value for each in words}


def test_it_stands_with_its_memory_off_the_device_and_goes_on(served: Served) -> None:
    guest = served.guest
    addresses = filled(guest, 5)
    move_to(served, Motion.PREPARE)
    wait_for_stage(served, Stage.PREPARED)
    assert words(guest, addresses) == numbered(5), "it runs on"
    assert reading(served.host.control, served.worker.slot).resident_bytes == 5 * STEP
    move_to(served, Motion.STAND)
    wait_for_stage(served, Stage.STANDS)
    now = reading(served.host.control, served.worker.slot)
    assert (now.resident_bytes, now.is_user, now.is_waiting, now.phase) == (0, False, False, "out")
    move_to(served, Motion.NONE)
    assert words(guest, addresses) == numbered(5)
    wait_for(served, lambda each: each.resident_bytes == 5 * STEP and each.stage is Stage.RUNS, "all is back")


def test_while_it_stands_it_answers_nobody(served: Served) -> None:
    stand(served)
    before = reading(served.host.control, served.worker.slot)
    slot = served.guest.begin("cuCtxSynchronize")
    time.sleep(0.1)
    after = reading(served.host.control, served.worker.slot)
    assert after.nr_calls == before.nr_calls
    assert after.stage is Stage.STANDS
    move_to(served, Motion.NONE)
    assert served.guest.finish("cuCtxSynchronize", slot).result == 0


def test_with_no_memory_it_stands_too(served: Served) -> None:
    stand(served)
    move_to(served, Motion.NONE)
    wait_for_stage(served, Stage.RUNS)
    served.guest.ok("cuCtxSynchronize")


def test_it_goes_by_another_page_with_all_that_was_counted(served: Served, other: ControlPage) -> None:
    guest, control = served.guest, served.host.control
    addresses = filled(guest, 5)
    stand(served)
    before = reading(control, served.worker.slot)
    used_ns = served.gpu_ns()
    vgpu, slot = change_page(served, other)
    after = reading(other, slot)
    counted = {field.name for field in dataclasses.fields(WorkerReading)} - {
        *("slot", "vgpu", "nr_parks", "resident_bytes", "swapped_in_bytes", "stage", "keeps", "is_displaced", "phase")
    }
    assert {name: getattr(after, name) for name in counted} == {name: getattr(before, name) for name in counted}
    assert words(guest, addresses) == numbered(5)
    assert reading(other, slot).stage is Stage.RUNS
    wait_until(lambda: reading(other, slot).resident_bytes == 5 * STEP, "all is back")
    control.worker_free(served.worker.slot)
    assert served.gpu_ns() == used_ns, "what it does now the other one is charged"
    guest.ok("cuMemsetD32Async", dstDevice=addresses[0], ui=77, N=STEP // 4, hStream=0)
    assert first_word(guest, addresses[0]) == 77
    account = other.vgpu(vgpu)
    assert account is not None
    assert (account.memory_bytes, account.nr_workers) == (after.memory_bytes, 1)
    assert account.used_ns > 0
    assert control.holder().nr_users == 0


def test_its_quota_is_that_of_the_other_page(served: Served, other: ControlPage) -> None:
    guest = served.guest
    [address] = filled(guest, 1)
    stand(served)
    vgpu, _ = change_page(served, other)
    other.set_quota(vgpu, 8 * STEP)
    assert guest.call("cuMemAlloc_v2", bytesize=8 * STEP).result == 2
    guest.ok("cuMemFree_v2", dptr=address)
    guest.ok("cuMemAlloc_v2", bytesize=2 * STEP)


def test_who_was_suspended_stays_so(served: Served, other: ControlPage) -> None:
    guest = served.guest
    addresses = filled(guest, 3)
    served.host.control.set_suspended(served.vgpu, is_suspended=True)
    wait_for(served, lambda each: each.resident_bytes == 0, "it has gone")
    stand(served)
    other.vgpu_take()
    vgpu, slot = other.vgpu_take(1 << 30), other.worker_take()
    other.set_suspended(vgpu, is_suspended=True)
    other.worker_assign(slot, served.worker.process.pid, vgpu, 0)
    with other.for_worker(vgpu, slot) as objects:
        send_with(served.worker.socket, Message(PAGE, (vgpu, slot), 0).packed(), objects)
    wait_until(lambda: reading(other, slot).state is WorkerState.SERVING, "it goes by the other page")
    assert (reading(other, slot).is_suspended, reading(other, slot).resident_bytes) == (True, 0)
    assert words(guest, addresses) == numbered(3)
    assert not reading(other, slot).is_suspended


def test_there_and_back(served: Served, other: ControlPage) -> None:
    """Its place in the first page is another worker's by then."""
    guest, control = served.guest, served.host.control
    addresses = filled(guest, 2)
    stand(served)
    _, slot = change_page(served, other)
    control.worker_free(served.worker.slot)
    control.worker_take()
    assert words(guest, addresses) == numbered(2)
    other.set_motion(reading(other, slot).vgpu, Motion.STAND)
    wait_until(lambda: reading(other, slot).stage is Stage.STANDS, "it stands")
    _, again = change_page(served, control)
    assert words(guest, addresses) == numbered(2)
    assert reading(control, again).linear_bytes == 2 * STEP


def test_work_that_does_not_end_keeps_it(served: Served) -> None:
    """A stream waits for a value that its guest writes later."""
    guest = served.guest
    [address] = filled(guest, 1)
    word = guest.allocate(4096)
    guest.ok("host_register", address=guest.address + word, bytes=4096)
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=guest.address + word, value=1)
    guest.cast_off("cuMemsetD32Async", dstDevice=address, ui=5, N=1, hStream=STREAM)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    move_to(served, Motion.STAND)
    wait_for(served, lambda each: each.keeps is Keeps.FOR_WORK, "it says why not")
    assert reading(served.host.control, served.worker.slot).stage is not Stage.STANDS
    guest.write_word(word, 1)
    wait_for_stage(served, Stage.STANDS)
    move_to(served, Motion.NONE)
    assert first_word(guest, address) == 5


def test_what_stands_behind_a_host_function_ends_before_it_stands(served: Served) -> None:
    """The function returns only once the vGPU is to stand, and what is behind it has begun nowhere but there."""
    guest = served.guest
    [address] = filled(guest, 1)
    take_mailbox(guest)
    set_behind_function(guest, address, 5)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    move_to(served, Motion.STAND)
    wait_for(served, lambda each: each.keeps is Keeps.FOR_WORK, "it says why not")
    assert posted(guest) == (1, 0)
    rearm(guest)
    wait_for_stage(served, Stage.STANDS)
    move_to(served, Motion.NONE)
    assert first_word(guest, address) == 5


def test_who_makes_a_graph_does_not_stand(served: Served) -> None:
    guest = served.guest
    filled(guest, 1)
    guest.cast_off("cuStreamCreate", phStream=STREAM, Flags=1)
    guest.ok("capture_begin", stream=STREAM)
    move_to(served, Motion.STAND)
    wait_for(served, lambda each: each.keeps is Keeps.FOR_CAPTURE, "it says why not")
    assert reading(served.host.control, served.worker.slot).stage is not Stage.STANDS


@pytest.mark.parametrize("change", ["no page", "too few objects", "a place that is nobody's", "beyond the page"])
def test_a_page_that_it_cannot_go_by_ends_it(served: Served, other: ControlPage, change: str) -> None:
    stand(served)
    vgpu, slot = other.vgpu_take(), other.worker_take()
    if change != "a place that is nobody's":
        other.worker_assign(slot, served.worker.process.pid, vgpu, 0)
    named = (1 << 40, slot) if change == "beyond the page" else (vgpu, slot)
    with other.for_worker(vgpu, slot) as objects:
        sent = {"no page": (), "too few objects": objects[:-1]}.get(change, objects)
        send_with(served.worker.socket, Message(PAGE, named, 0).packed(), sent)
    assert served.worker.ended()["ended"] == "its vGPU moved, and it could not"
    assert wait_for_state(served.region, 0, {ClientState.DEAD}) is ClientState.DEAD


def test_a_client_that_closes_while_it_stands_is_let_go(served: Served) -> None:
    filled(served.guest, 1)
    stand(served)
    assert served.region.step(0, ClientState.READY, ClientState.CLOSING)
    assert served.worker.ended()["ended"] == "the client closed"
