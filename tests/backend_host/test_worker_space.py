"""Critical work beside the turns of its space, and in turns where its space does not have the device."""

import contextlib
import os
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from backend_host.worker._worker import lib

from backend_host.device.readings import WorkerReading
from backend_host.space.own_client import OwnClient
from tests.backend_host.between import build_between
from tests.backend_host.grantees import attach
from tests.backend_host.test_space_page import BEST_EFFORT, CRITICAL, FAIR, split
from tests.backend_host.test_worker_order import LATE, NS_PER_S, PTX, Kernels
from tests.backend_host.worker_guest import MODULE, PRIMARY, STREAM, kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served, tenant_of
from tests.end_to_end.host import wait_until

ENDLESS_NS = 3600 * NS_PER_S
LONG_NS = 6_000_000
NR = 60
"""Kernels that are launched in a row."""
ALONE_NS = 100_000_000
"""As FGW_ALONE_NS (turn/queue.c), what keeps a device busy."""
NOT_READY = 600
WHOLE = 0xFFFFFFFF
BOXES = {"mode": 1, "waits_for_variant": 1, "threshold_blocks": 360_000, "least_blocks": 1500, "part_ns": 200_000}
"""Large launches in boxes, as the daemon has it unless told otherwise."""


@dataclass
class One:
    """A vGPU with a program that launches kernels of one block."""

    served: Served
    kernels: Kernels

    def reading(self) -> WorkerReading:
        found = self.served.host.control.worker(self.served.worker.slot)
        assert found is not None
        return found

    def begin_endless(self) -> None:
        wait_until(lambda: self.reading().stalled_since_ns == 0, "nothing else of it is on the device")
        self.kernels.late(9, ns=ENDLESS_NS)
        wait_until(lambda: self.reading().stalled_since_ns != 0, "it is on the device")

    def nr_rounds(self) -> int:
        """Once what it has begun by now has ended."""
        wait_until(lambda: self.reading().phase == "out", "its turn is over")
        return self.served.host.control.rounds(self.served.worker.slot)[0]

    def is_at_work(self) -> bool:
        return self.served.guest.call("cuStreamQuery", hStream=0).result == NOT_READY

    def runs(self, value: int) -> None:
        """A kernel to its end."""
        self.kernels.late(value, ns=1)
        assert self.kernels.value() == value


Make = Callable[[int, int], One]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """A vGPU of this class in the space with this number. Their workers are of one of the device's, and share its page if told so, also with a
    library in between."""
    way = getattr(request, "param", "")
    tmp_path.chmod(0o755)  # what the device's own process opens it as
    library = build_between(way, tmp_path) if way == "gone_streams" else SOFTGPU
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(contextlib.closing(Host(library, {"FAIRGV_SOFTGPU_SPACE": "tests"})))
        changes: dict[str, Any] = {}
        if way in ("page", "gone_streams"):
            client = OwnClient(replace(host.worker_start, tenant=tenant_of(0)))
            stack.callback(client.end)
            page = client.make()
            stack.callback(os.close, page)
            changes = {"bells": [page], "space": {}, "slicing": BOXES}

        def one(class_number: int, space: int) -> One:
            served = Served(host, stack.enter_context(make_region()), prepare=prepare(class_number, space), **changes)
            return One(served, Kernels(served.primary()))

        def prepare(class_number: int, space: int) -> Callable[[int], None]:
            def decide(vgpu: int) -> None:
                host.control.set_class(vgpu, class_number, space)
                host.control.set_urgent(vgpu, is_urgent=class_number == CRITICAL)

            return decide

        yield one


def test_a_critical_kernel_ends_while_an_endless_one_of_its_space_goes_on(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    wait_until(lambda: critical.reading().phase == "out", "its first turn is over, and charged")
    in_turns_ns = critical.served.gpu_ns()
    assert critical.reading().out_of_turn_ns == 0
    best.begin_endless()
    for value in range(1, 6):
        critical.runs(value)
    assert best.is_at_work()
    assert best.served.host.control.holder().vgpu == best.served.vgpu
    assert critical.reading().out_of_turn_ns == critical.served.gpu_ns() - in_turns_ns > 0, "beside another's turn"


def test_a_critical_one_beside_anothers_turn_queues_what_its_limit_leaves(make: Make) -> None:
    """And not what keeps a device busy: that could not be taken back, and its vGPU would pay for it for ten times as long. On a busy host
    kernels are taken for shorter than they are, so that some more go with the 6 ms that are left."""
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, vgpu = critical.served.host.control, critical.served.vgpu
    for value in range(4):
        critical.kernels.late(value, ns=LONG_NS)
        assert critical.kernels.value() == value
    wait_until(lambda: critical.reading().phase == "out", "its turn is over")
    best.begin_endless()
    control.set_limit(vgpu, 1)  # of a thousand: what it may have meanwhile is nothing
    nr_before = critical.reading().nr_launches
    for value in range(1, NR + 1):
        critical.kernels.late(value, ns=LONG_NS)
    wait_until(lambda: critical.reading().limited_ns > 0, "it is held back")
    assert 0 < critical.reading().nr_launches - nr_before < ALONE_NS // LONG_NS
    control.set_limit(vgpu, 0)
    assert critical.kernels.value() == NR
    assert best.is_at_work()


def test_a_critical_one_that_began_alone_counts_what_it_takes_before_whoever_comes(make: Make) -> None:
    """Else nobody else would ever have a turn."""
    critical, other = make(CRITICAL, 0), make(FAIR, 0)
    control = critical.served.host.control
    for each, standing in ((critical, 9.0), (other, 1.0)):
        control.set_standing(each.served.vgpu, standing, 0.0, 0)
    for value in range(NR):
        critical.kernels.late(value, ns=LONG_NS)
    wait_until(lambda: critical.reading().phase == "running", "it has its turn")
    assert critical.reading().out_of_turn_ns == 0
    other.kernels.late(1, ns=1)
    wait_until(lambda: critical.reading().out_of_turn_ns > 0, "another one waits, and stands before it")
    assert other.reading().is_waiting
    control.set_urgent(critical.served.vgpu, is_urgent=False)
    assert other.kernels.value() == 1


@pytest.mark.parametrize(
    "classes", [((BEST_EFFORT, 1), (CRITICAL, 2)), ((FAIR, 0), (CRITICAL, 1)), ((BEST_EFFORT, 1), (BEST_EFFORT, 1))]
)
def test_any_other_one_waits_for_its_turn(make: Make, classes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    one, other = (make(*each) for each in classes)
    one.begin_endless()
    other.kernels.late(1, ns=1)
    wait_until(lambda: other.reading().is_waiting, "it waits")
    assert one.is_at_work()
    assert other.reading().is_waiting


def test_beyond_its_bound_it_waits_for_its_turn_too(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_urgent(critical.served.vgpu, is_urgent=False)
    best.begin_endless()
    critical.kernels.late(1, ns=1)
    wait_until(lambda: critical.reading().is_waiting, "it waits")
    critical.served.host.control.set_urgent(critical.served.vgpu, is_urgent=True)
    assert critical.kernels.value() == 1, "below it again it does not"
    assert best.is_at_work()


def test_best_effort_gets_the_turn_of_its_critical_one_at_once(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.begin_endless()
    best.runs(1)
    assert critical.is_at_work()
    assert critical.reading().phase == "beside"
    best.runs(2)


def test_a_critical_one_with_more_to_submit_does_not_take_the_turn_that_it_gives_up(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.begin_endless()
    control, pid = critical.served.host.control, critical.served.worker.process.pid
    begun = control.hand_overs()[-1].sequence
    os.kill(pid, signal.SIGSTOP)
    critical.kernels.late(1, ns=1)
    best.kernels.late(2, ns=1)
    wait_until(lambda: best.reading().is_waiting, "it waits")
    os.kill(pid, signal.SIGCONT)
    assert best.kernels.value() == 2
    assert critical.is_at_work()
    first = control.hand_overs(begun)[0]
    assert (first.from_vgpu, first.to_vgpu) == (critical.served.vgpu, best.served.vgpu)


def test_rounds_are_told(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_split(critical.served.vgpu, split(4, 1))
    best.begin_endless()
    slot, control = critical.served.worker.slot, critical.served.host.control
    before = critical.nr_rounds()
    for value in range(1, 41):
        critical.kernels.late(value, ns=1)
        assert critical.served.guest.call("cuCtxSynchronize").result == 0
        wait_until(lambda nr=before + value: control.rounds(slot)[0] == nr, "its end is seen")  # type: ignore[misc]
    nr, rounds = control.rounds(slot)
    assert nr == critical.reading().nr_rounds
    assert len(rounds) == 32
    assert all(each.took_ns > 0 for each in rounds)
    assert len({each.signature for each in rounds}) == 1, "they did the same"
    assert {each.split for each in rounds} == {0}, "without the space's page nobody is asked for room"


def test_a_critical_one_that_is_killed_leaves_best_effort_as_it_was(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    best.begin_endless()
    critical.kernels.late(1, ns=ENDLESS_NS)
    wait_until(lambda: critical.reading().phase == "beside", "both are at work")
    critical.served.worker.process.kill()
    critical.served.worker.process.wait()
    critical.served.host.control.repair(critical.served.worker.slot)
    assert best.is_at_work()
    another = make(CRITICAL, 1)
    another.runs(3)
    assert best.is_at_work()


GRID, BLOCK_NS = 4096, 200_000
"""Eight times as many blocks as the device has places."""


@pytest.mark.parametrize("make", ["page"], indirect=True)
@pytest.mark.parametrize("asked", [split(3, 1), split(8, 32), split(16, 32)], ids=["a little", "half", "all"])
def test_best_effort_makes_room_for_rounds_and_takes_it_back(make: Make, asked: int) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, slot = critical.served.host.control, critical.served.worker.slot
    control.set_split(critical.served.vgpu, asked)
    best.served.guest.launch(LATE, struct.pack("<QQI", best.kernels.address, BLOCK_NS, 7), grid=GRID)
    wait_until(lambda: best.reading().nr_parts > 0, "it goes persistently")
    before = critical.nr_rounds()
    for value in range(1, 61):
        critical.kernels.late(value, ns=1)
        assert critical.served.guest.call("cuCtxSynchronize").result == 0
        wait_until(lambda nr=before + value: control.rounds(slot)[0] == nr, "its end is seen")  # type: ignore[misc]
    splits = {each.split for each in control.rounds(slot)[1]}
    assert splits == {asked, WHOLE}, "one in 53 has all of the device"
    assert best.kernels.value() == 7, "all of its blocks have run"
    assert best.reading().nr_sliced == 1


@pytest.mark.parametrize("make", ["page"], indirect=True)
@pytest.mark.parametrize("nr_kinds", [2, 5])
def test_rounds_of_each_kind_have_all_of_the_device_now_and_then(make: Make, nr_kinds: int) -> None:
    """Of a program that does one after another."""
    critical = make(CRITICAL, 1)
    control, slot = critical.served.host.control, critical.served.worker.slot
    control.set_split(critical.served.vgpu, split(3, 1))
    before = critical.nr_rounds()
    whole: set[int] = set()
    for number in range(1, 60 * nr_kinds):
        parameters = struct.pack("<QQI", critical.kernels.address, 1, number)
        critical.served.guest.launch(LATE, parameters, grid=1 + number % nr_kinds)
        assert critical.served.guest.call("cuCtxSynchronize").result == 0
        wait_until(lambda nr=before + number: control.rounds(slot)[0] == nr, "its end is seen")  # type: ignore[misc]
        [last] = control.rounds(slot)[1][-1:]
        whole |= {last.signature} if last.split == WHOLE else set()
    assert len(whole) == nr_kinds


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_room_is_given_back_before_the_last_context_goes(make: Make) -> None:
    """Nobody could do it afterwards, while the program goes on without one."""
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_split(critical.served.vgpu, WHOLE)
    critical.kernels.late(1)
    critical.served.guest.ok("context_destroy", handle=PRIMARY)  # waits for the round, and the room stands behind it
    best.served.guest.launch(LATE, struct.pack("<QQI", best.kernels.address, 1, 7), grid=GRID)
    assert best.kernels.value() == 7
    assert best.reading().nr_sliced == 1


@pytest.mark.parametrize("make", ["gone_streams"], indirect=True)
def test_no_stream_is_used_that_went_with_its_context(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    critical.served.host.control.set_split(critical.served.vgpu, split(4, 1))
    critical.runs(1)
    guest, control = critical.served.guest, critical.served.host.control
    _, grantee = attach(control, best.served.vgpu)
    wait_until(lambda: lib.fgw_space_asked_split(grantee) == 0, "the room was given back")
    guest.ok("context_destroy", handle=PRIMARY)
    guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
    Kernels(guest, first_handle=8).late(2, ns=1)
    assert guest.call("cuCtxSynchronize").result == 0, "its worker lives"


@pytest.mark.parametrize("make", ["page"], indirect=True)
@pytest.mark.parametrize("has_another", [False, True], ids=["alone", "as another program of it has ended"])
def test_beyond_its_bound_a_round_gives_its_room_back_in_the_midst(make: Make, has_another: bool) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control = critical.served.host.control
    control.set_split(critical.served.vgpu, WHOLE)
    best.runs(1)
    critical.begin_endless()
    best.served.guest.launch(LATE, struct.pack("<QQI", best.kernels.address, 1, 7), grid=GRID)
    _, grantee = attach(control, critical.served.vgpu)
    wait_until(lambda: lib.fgw_space_keeps_out(grantee), "it is kept out")
    if has_another:
        another, _ = attach(control, critical.served.vgpu)
        control.repair(another)
    control.set_urgent(critical.served.vgpu, is_urgent=False)
    assert best.kernels.value() == 7
    assert best.reading().nr_sliced == 1
    assert critical.is_at_work()


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_a_launch_that_is_let_go_is_kept_out_no_more(make: Make) -> None:
    """As other work of its program does not end."""
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, guest = critical.served.host.control, best.served.guest
    _, grantee = attach(control, critical.served.vgpu)
    control.set_split(critical.served.vgpu, WHOLE)
    for stream in (STREAM, STREAM + 1):
        guest.cast_off("cuStreamCreate", phStream=stream, Flags=1)

    def launch(value: int) -> None:
        parameters = struct.pack("<QQI", best.kernels.address, 1, value)
        guest.launch(LATE, parameters, grid=GRID, stream=STREAM)

    launch(7)
    assert best.kernels.value(stream=STREAM) == 7, "its kernel can give way"
    best.kernels.late(9, ns=ENDLESS_NS, stream=STREAM + 1)
    critical.begin_endless()
    launch(8)
    assert best.kernels.value(stream=STREAM) == 8
    assert best.reading().nr_sliced == 2
    assert not lib.fgw_space_keeps_out(grantee)
    assert critical.is_at_work()


def room_that_stands(make: Make) -> tuple[One, Any, Any]:
    """Behind a round: whose it was, a second program of that vGPU, until whose end it stands, and one of best effort."""
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, vgpu = critical.served.host.control, critical.served.vgpu
    control.set_split(vgpu, WHOLE)
    _, second = attach(control, vgpu)
    lib.fgw_grant_set_running(second, True)
    critical.runs(1)
    _, grantee = attach(control, best.served.vgpu)
    assert lib.fgw_space_asked_split(grantee) == WHOLE, "the room stands"
    return critical, second, grantee


@pytest.mark.parametrize("make", ["page"], indirect=True)
@pytest.mark.parametrize("by", ["another program", "the daemon"])
def test_a_round_asks_for_room_that_another_took_back(make: Make, by: str) -> None:
    critical, second, best = room_that_stands(make)
    control, vgpu = critical.served.host.control, critical.served.vgpu
    if by == "another program":
        lib.fgw_space_tell_split(second, 0)
    else:
        control.take_split_back(vgpu)
    assert lib.fgw_space_asked_split(best) == 0
    critical.begin_endless()
    assert lib.fgw_space_asked_split(best) == WHOLE


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_a_program_sleeps_while_its_room_stands_for_another(make: Make) -> None:
    critical, second, best = room_that_stands(make)
    before = critical.reading().nr_parks
    wait_until(lambda: critical.reading().nr_parks >= before + 10, "it sleeps, and looks now and then")
    assert lib.fgw_space_asked_split(best) == WHOLE
    lib.fgw_grant_set_running(second, False)
    wait_until(lambda: lib.fgw_space_asked_split(best) == 0, "the room is taken back")


def gate(critical: One) -> int:
    """Has what comes into the first stream of two wait, until the word at this address, which other work of the program may write, is one."""
    guest = critical.served.guest
    for stream in (STREAM, STREAM + 1):
        guest.cast_off("cuStreamCreate", phStream=stream, Flags=1)
    address = critical.kernels.address + 64
    guest.cast_off("cuMemsetD32_v2", dstDevice=address, ui=0, N=1)
    assert guest.call("cuCtxSynchronize").result == 0
    guest.cast_off("cuStreamWaitValue32_v2", stream=STREAM, addr=address, value=1, flags=0)
    return int(address)


def launch_many(best: One, value: int) -> None:
    """More blocks than the device has places."""
    best.served.guest.launch(LATE, struct.pack("<QQI", best.kernels.address, 1, value), grid=GRID)


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_room_that_work_behind_a_value_asks_for_does_not_come_after_it_was_given_back(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, guest = critical.served.host.control, critical.served.guest
    control.set_split(critical.served.vgpu, WHOLE)
    address = gate(critical)
    _, grantee = attach(control, best.served.vgpu)
    wait_until(lambda: lib.fgw_space_asked_split(grantee) == 0, "no room is asked for")
    critical.kernels.late(1, ns=1, stream=STREAM)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    wait_until(lambda: lib.fgw_space_asked_split(grantee) == 0, "nothing of it runs")
    guest.cast_off("cuStreamWriteValue32_v2", stream=STREAM + 1, addr=address, value=1)
    assert guest.call("cuStreamSynchronize", hStream=STREAM).result == 0
    launch_many(best, 7)
    assert best.kernels.value() == 7
    assert best.reading().nr_sliced == 1


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_a_round_has_its_room_while_earlier_work_waits_for_a_value(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, vgpu = critical.served.host.control, critical.served.vgpu
    best.runs(1)
    _, second = attach(control, vgpu)
    lib.fgw_grant_set_running(second, True)  # until its end the room stands that the first work asks for
    gate(critical)
    control.set_split(vgpu, WHOLE)
    critical.kernels.late(1, ns=1, stream=STREAM)
    critical.kernels.late(2, ns=ENDLESS_NS, stream=STREAM + 1)
    wait_until(lambda: critical.reading().stalled_since_ns != 0, "it is on the device")
    launch_many(best, 7)
    wait_until(lambda: lib.fgw_space_keeps_out(second), "best effort is kept out")
    assert critical.served.guest.call("cuStreamQuery", hStream=STREAM + 1).result == NOT_READY


@pytest.mark.parametrize("make", ["page"], indirect=True)
def test_work_that_waited_for_a_value_has_its_room_once_it_goes_on(make: Make) -> None:
    best, critical = make(BEST_EFFORT, 1), make(CRITICAL, 1)
    control, guest = critical.served.host.control, critical.served.guest
    control.set_split(critical.served.vgpu, WHOLE)
    address = gate(critical)
    _, grantee = attach(control, best.served.vgpu)
    critical.kernels.late(1, ns=ENDLESS_NS, stream=STREAM)
    assert guest.call("cuStreamQuery", hStream=STREAM).result == NOT_READY
    wait_until(lambda: lib.fgw_space_asked_split(grantee) == 0, "nothing of it runs")
    nr_rounds = control.rounds(critical.served.worker.slot)[0]
    guest.cast_off("cuStreamWriteValue32_v2", stream=STREAM + 1, addr=address, value=1)
    wait_until(lambda: lib.fgw_space_asked_split(grantee) == WHOLE, "it goes on, and asks for room")
    assert control.rounds(critical.served.worker.slot)[0] == nr_rounds


NESTING = (
    PTX
    + """
.extern .func (.param .b32 result) cudaLaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.visible .entry nests()
{
    .param .b64 none;
    .param .b32 result;
    call (result), cudaLaunchDeviceV2, (none, none);
    ret;
}
"""
)
NOT_SUPPORTED = 801


@pytest.mark.parametrize(("make", "is_told"), [("page", True), ("turns", False)], indirect=["make"])
def test_kernels_that_launch_kernels_are_refused_in_a_space(make: Make, is_told: bool) -> None:
    """In turns softgpu refuses them itself, and nothing is said of spaces."""
    best = make(BEST_EFFORT, 1)
    answers = [best.served.guest.load(kernel_image(NESTING), handle=MODULE + n, blob=20 + n).result for n in (2, 3)]
    assert answers == [NOT_SUPPORTED] * 2
    best.runs(4)
    best.served.worker.process.kill()
    said = best.served.worker.errors()
    assert said.count("run it without --space") == is_told, "once, however often it is tried"
