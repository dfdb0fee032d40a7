"""vGPUs apart: each goes by a grant of its own and the daemon hands over. Steps are made by hand, as are most workers."""

from __future__ import annotations

import contextlib
import mmap
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.apart import QUIET_NS, Apart
from backend_host.device.control import MAX_VGPUS, ControlPage
from tests.backend_host.claims import PHASES
from tests.backend_host.test_control_processes import LOST, VIOLATIONS, Play
from tests.backend_host.test_worker_order import Kernels
from tests.backend_host.worker_guest import make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

MS = 1_000_000
GRANT = 1
OWN = 3
LONG_NS = 60_000_000_000
"""Longer than anybody loses its CPU."""


class Worker:
    """One of a vGPU of its own, with its own view of the page, as a process has it."""

    def __init__(self, control: ControlPage, vgpu: int | None = None) -> None:
        self.vgpu = control.vgpu_take() if vgpu is None else vgpu
        self.slot = control.worker_take()
        control.worker_assign(self.slot, 1, self.vgpu, 0)
        with control.for_worker(self.vgpu, self.slot) as lent:
            self.page = ControlPage.open(lent, self.vgpu)
            self.shared, self.own = mmap.mmap(lent[GRANT], 0), mmap.mmap(lent[OWN + self.vgpu], 0)
        self.grantee = ffi.new("struct fgw_grantee *")
        assert lib.fgw_grantee_attach(self.grantee, self.page.page, self.vgpu, self.slot)

    def follow(self) -> None:
        lib.fgw_grant_follow(self.grantee)

    def enter(self, *, says_phase: bool = True) -> bool:
        self.follow()
        is_in = bool(lib.fgw_grant_enter(self.grantee, lib.fgw_clock_ns()))
        if says_phase:
            lib.fgw_grant_show_phase(self.grantee, PHASES["ready" if is_in else "waiting"])
        return is_in

    def leave(self, *, wants_more: bool = False) -> None:
        if wants_more:
            lib.fgw_grant_close(self.grantee)
        lib.fgw_grant_leave(self.grantee, wants_more, lib.fgw_clock_ns())
        lib.fgw_grant_show_phase(self.grantee, PHASES["waiting" if wants_more else "out"])

    def close(self) -> None:
        self.page.close()
        self.shared.close()
        self.own.close()


class Scene:
    """Three workers and the daemon's relay."""

    def __init__(self, control: ControlPage) -> None:
        self.control = control
        self.workers = [Worker(control) for _ in range(3)]
        self.apart = lib.fgw_apart_new(control.page, QUIET_NS)
        for worker in self.workers:
            control.set_standing(worker.vgpu, 0.0, 1.0, charged_ns=0)

    def begin(self) -> None:
        lib.fgw_apart_begin(self.apart, ffi.new(f"uint32_t[{MAX_VGPUS}]"))

    def step(self) -> int:
        liars: int = lib.fgw_apart_serve(self.apart, 0)
        return liars

    def end(self) -> None:
        lib.fgw_apart_end(self.apart)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        lib.fgw_apart_free(self.apart)


@pytest.fixture
def scene(control: ControlPage) -> Iterator[Scene]:
    with contextlib.closing(Scene(control)) as scene:
        yield scene


def test_the_daemon_hands_over_among_those_that_are_apart(scene: Scene) -> None:
    one, two, three = scene.workers
    scene.begin()
    assert not any(worker.enter() for worker in scene.workers), "nobody takes a free one"
    assert scene.step() == 0
    assert scene.control.holder().vgpu == one.vgpu, "who has waited longest"
    assert one.enter()
    assert not two.enter()
    assert scene.step() == 0
    assert lib.fgw_grant_others_wait(one.grantee)
    one.leave(wants_more=True)
    assert scene.step() == 0
    assert scene.control.holder().vgpu == two.vgpu
    assert [worker.enter() for worker in (one, two, three)] == [False, True, False]
    assert scene.step() == 0


@pytest.mark.parametrize("says_phase", [True, False], ids=["in a phase", "just in"])
def test_who_has_its_turn_keeps_others_out_until_it_has_left(scene: Scene, *, says_phase: bool) -> None:
    """Also when it lost its CPU between its entry and the next thing that it says of itself."""
    one, two, _ = scene.workers
    assert one.enter(says_phase=says_phase)
    scene.begin()
    assert not two.enter()
    assert scene.step() == 0
    assert scene.control.holder().vgpu is None, "it has not gone over, and says that it has its turn"
    one.follow()
    assert scene.step() == 0
    assert scene.control.holder().vgpu is None, "it has gone over, and is a user"
    assert not lib.fgw_grant_others_wait(two.grantee)
    one.leave()
    assert scene.step() == 0
    assert scene.control.holder().vgpu == two.vgpu


def test_who_does_not_leave_is_not_waited_for_longer(scene: Scene) -> None:
    one, two, _ = scene.workers
    assert one.enter()
    scene.begin()
    assert not two.enter()
    time.sleep((QUIET_NS + 10 * MS) / 1e9)
    scene.step()
    scene.step()
    assert scene.control.holder().vgpu == two.vgpu


def test_all_share_again_and_who_waits_still_waits(scene: Scene) -> None:
    one, two, three = scene.workers
    scene.begin()
    assert not one.enter()
    assert not two.enter()
    scene.step()
    assert one.enter()
    scene.step()
    one.leave()
    scene.end()
    for worker in scene.workers:
        worker.follow()
    assert [waiting.vgpu for waiting in scene.control.backlogged()] == [two.vgpu]
    lib.fgw_grant_nudge(two.grantee, lib.fgw_clock_ns())
    assert two.enter()
    assert not three.enter()
    two.leave()
    assert three.enter()


def test_who_missed_an_epoch_has_its_bits_in_the_next(scene: Scene) -> None:
    one, two, _ = scene.workers
    scene.begin()
    assert not one.enter()
    assert not two.enter()
    scene.end()
    scene.begin()
    one.follow()
    scene.step()
    scene.step()
    assert scene.control.holder().vgpu == one.vgpu


@pytest.mark.parametrize("place", [0, 2, 5, 16, 64], ids=["holder", "closed", "sequence", "users", "waiting"])
def test_who_writes_what_it_may_not_is_known(scene: Scene, place: int) -> None:
    one, two, three = scene.workers
    scene.begin()
    for worker in scene.workers:
        worker.enter()
    assert scene.step() == 0
    assert one.enter()
    assert scene.step() == 0
    start = len(two.own) - len(two.shared)
    two.own[start + place] ^= 1 << one.slot
    assert scene.step() == 1 << two.vgpu
    assert scene.step() == 0, "it is mended"
    assert scene.control.holder().vgpu == one.vgpu
    assert not three.enter()


def test_what_is_written_where_all_wrote_changes_nothing(scene: Scene) -> None:
    one, two, three = scene.workers
    choice = random.Random(29)
    scene.begin()
    turns = []
    for _ in range(300):
        three.shared[:] = choice.randbytes(len(three.shared))
        for worker in (one, two):
            worker.enter()
        assert scene.step() == 0
        for worker in (one, two):
            if worker.enter():
                lib.fgw_grant_charge(worker.grantee, lib.fgw_clock_ns() - 1000, lib.fgw_clock_ns())
                turns.append(worker.vgpu)
                worker.leave(wants_more=True)
    assert set(turns) == {one.vgpu, two.vgpu}
    assert len(turns) > 200


def test_one_that_does_not_come_for_its_grant_pays_and_the_next_one_gets_it(scene: Scene) -> None:
    one, two, _ = scene.workers
    scene.begin()
    assert not one.enter()
    assert not two.enter()
    scene.step()
    assert scene.control.holder().vgpu == one.vgpu
    time.sleep(0.003)
    scene.step()
    assert scene.control.holder().vgpu == two.vgpu
    reading = scene.control.vgpu(one.vgpu)
    assert reading is not None
    assert reading.held_ns == 2_000_000


def test_they_share_again_once_who_had_its_turn_before_they_went_apart_has_left(scene: Scene) -> None:
    one, two, _ = scene.workers
    patient = lib.fgw_apart_new(scene.control.page, LONG_NS)
    with ThreadPoolExecutor(1) as daemon:
        assert one.enter()
        lib.fgw_apart_begin(patient, ffi.new(f"uint32_t[{MAX_VGPUS}]"))
        end = daemon.submit(lib.fgw_apart_end, patient)
        time.sleep(0.02)
        assert not two.enter()
        assert not end.done()
        one.leave()
        end.result()
    assert two.enter()
    lib.fgw_apart_free(patient)


def test_another_vgpu_in_the_same_place_is_not_blamed_for_its_predecessor(scene: Scene) -> None:
    one, two, _ = scene.workers
    scene.begin()
    assert not one.enter()
    assert not two.enter()
    scene.step()
    assert one.enter()
    assert scene.step() == 0
    scene.control.worker_free(one.slot)
    scene.control.vgpu_free(one.vgpu)
    assert scene.step() == 0
    assert two.enter()
    with contextlib.closing(Worker(scene.control)) as another:
        assert another.vgpu == one.vgpu
        assert not another.enter()
        assert scene.step() == 0
        two.leave()
        assert scene.step() == 0
        assert scene.control.holder().vgpu == another.vgpu


def test_workers_go_on_without_a_daemon(scene: Scene) -> None:
    one, two, _ = scene.workers
    scene.begin()
    assert not one.enter()
    assert not two.enter()
    scene.control.close()
    for worker in (one, two):
        lib.fgw_grant_nudge(worker.grantee, lib.fgw_clock_ns())
    lib.fgw_grant_nudge(one.grantee, lib.fgw_clock_ns())
    assert one.enter()
    assert not two.enter()
    one.leave()
    assert two.enter()


def test_processes_go_apart_and_together_again_without_a_loss(control: ControlPage) -> None:
    play = Play(control, 3, 2, 400)
    ended: dict[int, str] = {}
    with contextlib.closing(play):
        for vgpu in set(play.vgpu_of.values()):
            control.set_standing(vgpu, 0.0, 1.0, charged_ns=0)
        for slot in play.vgpu_of:
            play.start(slot, slot)
        apart = Apart(control, ended.__setitem__, first_ns=50 * MS, most_ns=50 * MS, quiet_ns=LONG_NS)
        apart.start()
        try:
            while any(process.poll() is None for process in play.processes.values()):
                apart.alarm("by hand", [0] * MAX_VGPUS)
                time.sleep(0.1)
        finally:
            apart.stop()
        assert [process.returncode for process in play.processes.values()] == [0] * 6
        assert play.nr_done() == 6 * 400
        assert (play.number(VIOLATIONS), play.number(LOST)) == (0, 0)
        assert apart.nr_times > 0
    assert ended == {}


def test_programs_of_two_vgpus_go_on_while_they_are_apart_and_after_it() -> None:
    """Real workers on softgpu. One has a kernel on the device as they go apart, and the other one waits."""
    ended: dict[int, str] = {}
    with contextlib.closing(Host(SOFTGPU)) as host, make_region() as one, make_region() as other:
        first, second = (Kernels(Served(host, region).primary()) for region in (one, other))
        for vgpu in (0, 1):
            host.control.set_standing(vgpu, 0.0, 1.0, charged_ns=0)
        apart = Apart(host.control, ended.__setitem__, first_ns=600_000 * MS)
        apart.start()
        try:
            first.late(1, ns=100 * MS)
            second.late(2, ns=MS)
            apart.alarm("by hand", [0] * MAX_VGPUS)
            wait_until(lambda: host.control.audit().is_apart, "they are apart")
            for value in range(3, 8):
                first.late(value, ns=MS)
                second.late(10 * value, ns=MS)
                assert (first.value(), second.value()) == (value, 10 * value)
            assert host.control.audit().is_apart
        finally:
            apart.stop()
        assert not host.control.audit().is_apart
        first.late(1, ns=MS)
        second.late(2, ns=MS)
        assert (first.value(), second.value()) == (1, 2)
        assert all(worker.nr_bad_phases == 0 for worker in host.control.workers())
    assert ended == {}


def test_who_goes_on_until_it_is_ended_is_blamed_once(scene: Scene) -> None:
    ended: list[int] = []
    one, two, _ = scene.workers
    apart = Apart(scene.control, lambda vgpu, _: ended.append(vgpu))
    apart.start()
    try:
        apart.alarm("by hand", [0] * MAX_VGPUS)
        start = len(two.own) - len(two.shared)
        for _ in range(20):
            two.follow()
            two.own[start] ^= 1 << one.slot
            time.sleep(0.005)
        wait_until(lambda: bool(ended), "it is blamed")
    finally:
        apart.stop()
    assert ended == [two.vgpu]


def test_a_look_that_fails_is_not_the_last(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody else hands over the GPU meanwhile; and who was to be ended is ended."""
    ended: list[int] = []
    nr_failures = iter(range(2))
    one, two, _ = scene.workers

    def end(vgpu: int, why: str) -> None:
        if next(nr_failures, None) is not None:
            raise RuntimeError("can't start new thread")
        ended.append(vgpu)

    apart = Apart(scene.control, end)
    apart.start()
    try:
        apart.alarm("by hand", [0] * MAX_VGPUS)
        start = len(two.own) - len(two.shared)

        def lies() -> bool:
            two.follow()
            two.own[start] ^= 1 << one.slot
            return bool(ended)

        wait_until(lies, "it is ended")
    finally:
        apart.stop()
    assert caplog.text.count("handing over among vGPUs apart failed; trying again") >= 1
