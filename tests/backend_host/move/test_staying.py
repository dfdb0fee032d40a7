"""Moves that do not come to their end, or not with all programs: what can go on does, and nothing is left of the attempt."""

import contextlib
import errno
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from backend_host.caretaker import CUDA_ERROR_DEVICE_UNAVAILABLE
from backend_host.device.control import MAX_WORKERS
from backend_host.device.failure import Failure
from backend_host.device.readings import Stage
from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.move import by_checkpoint, moving
from backend_host.move.checkpointing import Outcome
from backend_host.move.journey import CannotError, Journey
from backend_host.move.moving import Move
from backend_host.suspension import suspend
from ivshmem.region import ClientState
from tests.backend_host.move.travel import LIMIT_S, MOVED, Travel, reading
from tests.backend_host.move.waiting import Wait, is_dead, kill
from tests.backend_host.swapping import STEP, allocate, filled, numbered, words
from tests.end_to_end.host import wait_until

HERE, THERE = 0, 1
STAYED = Outcome(False, {}, "lock of worker 7 gives CUDA error 304", {})
LOST = Failure("Xid 79: it has fallen off the bus")


def leaving(travel: Travel) -> Move:
    """One that goes no further, as work does not end."""
    move = travel.moves.start("web", "1")
    wait_until(lambda: move.stage == "leaving", "it leaves")
    return move


def test_it_is_asked_to_stay(travel: Travel) -> None:
    """Until the moment of change, and not later."""
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = leaving(travel)
    with pytest.raises(RefusedError, match=r"^web is on its way to GPU 1 already$"):
        travel.moves.start("web", "1")
    move.abort()
    assert move.wait(LIMIT_S)
    assert (move.stage, move.reason, move.has_changed) == ("aborted", "it was asked to stay", False)
    travel.check_nothing_left({HERE: 1}, {HERE: 1})
    with pytest.raises(RefusedError, match="is over"):
        move.abort()
    work.end()

    def change(pids: Sequence[int]) -> Outcome:
        found = travel.moves.find("web")
        assert found is not None
        with pytest.raises(RefusedError, match=r"^web is on its way to GPU 1 already$"):
            found.abort()
        return MOVED

    travel.outcome = change
    assert travel.move(vgpu, THERE).stage == "done"


def test_a_gpu_that_is_drained_before_it_changes(travel: Travel) -> None:
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = leaving(travel)
    travel.gpus[THERE].is_drained = True
    assert move.wait(LIMIT_S)
    assert (move.stage, move.reason) == ("aborted", "GPU 1 is drained (until fairgv-host undrain 1)")
    work.end()
    travel.check_nothing_left({HERE: 1}, {HERE: 1})


def test_work_that_does_not_end_keeps_it(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_checkpoint, "STAND_S", 0.2)
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = travel.move(vgpu, THERE)
    assert move.stage == "aborted"
    assert move.reason == (
        f"test-guest (worker {reading(vgpu).pid}) does not stand still within 0.2 s: its work on the GPU does not end"
    )
    work.end()
    wait_until(lambda: reading(vgpu).stage is Stage.RUNS, "it goes on")
    travel.check_nothing_left({HERE: 1}, {HERE: 1})


def test_a_driver_that_says_no_leaves_it_where_it_was(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)
    written: list[object] = []

    def change(pids: Sequence[int]) -> Outcome:
        written.append(travel.notes.items[vgpu.item]["is_changing"])
        return STAYED

    travel.outcome = change
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason) == ("aborted", STAYED.reason)
    assert words(guest, addresses) == numbered(2)
    assert vgpu.gpu is travel.gpus[HERE]
    travel.check_nothing_left({HERE: 1}, {HERE: 1})
    assert [*written, travel.notes.items[vgpu.item]["is_changing"]] == [True, False]


def test_who_cannot_be_put_back_gets_an_error_and_others_go_on(travel: Travel) -> None:
    vgpu = travel.opened()
    one, other = travel.program(vgpu, 0), travel.program(vgpu, 1)
    addresses = filled(other, 2)
    stuck = reading(vgpu, 0).pid
    travel.outcome = lambda pids: Outcome(True, {stuck: "its restore gives CUDA error 304"}, "restore of worker", {})
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason, move.has_changed) == ("done", "restore of worker", True)
    assert is_dead(one)
    assert vgpu.region.client(0).sticky_error == CUDA_ERROR_DEVICE_UNAVAILABLE
    assert words(other, addresses) == numbered(2)
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


def test_where_nobody_can_be_put_back_it_stays_without_a_program(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    travel.outcome = lambda pids: Outcome(False, dict.fromkeys(pids, "its restore gives CUDA error 2"), "no room", {})
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason, move.has_changed) == ("failed", "no room", False)
    assert is_dead(guest)
    assert vgpu.gpu is travel.gpus[HERE]
    travel.check_nothing_left({HERE: 1}, {})


def test_a_worker_that_dies_at_the_moment_of_change(travel: Travel) -> None:
    vgpu = travel.opened()
    one, other = travel.program(vgpu, 0), travel.program(vgpu, 1)
    [dying, _] = vgpu.caretaker.workers()

    def change(pids: Sequence[int]) -> Outcome:
        kill(dying)
        assert dying.is_ended.wait(LIMIT_S)
        return MOVED

    travel.outcome = change
    assert travel.move(vgpu, THERE).stage == "done"
    assert is_dead(one)
    other.ok("cuCtxSynchronize")
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_worker_that_dies_before_it_hears_of_its_page(
    travel: Travel, monkeypatch: pytest.MonkeyPatch, is_reaped: bool
) -> None:
    """The other Gpu's reaper has it, and what it counted is kept."""
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()
    workers = travel.gpus[THERE].workers
    tell = workers.tell_page

    def tell_late(_: object, page: Sequence[int]) -> None:
        kill(worker)
        if is_reaped:
            assert worker.is_ended.wait(LIMIT_S)
        tell(worker, page)

    monkeypatch.setattr(workers, "tell_page", tell_late)
    before = reading(vgpu)
    assert travel.move(vgpu, THERE).stage == "done"
    assert is_dead(guest)
    travel.check_nothing_left({THERE: 1}, {})
    [told] = travel.registry.statistics()
    assert told.totals.nr_calls >= before.nr_calls > 0


def test_a_worker_that_does_not_hear_of_its_page(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BlockingIOError

    vgpu = travel.opened()
    guest = travel.program(vgpu)
    monkeypatch.setattr(travel.gpus[THERE].workers, "tell_page", fail)
    assert travel.move(vgpu, THERE).stage == "done"
    assert is_dead(guest)
    travel.check_nothing_left({THERE: 1}, {})


@pytest.mark.parametrize("is_late", [False, True])
def test_a_daemon_without_descriptors_loses_no_program(
    travel: Travel, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Before it changes it stays; later all that is needed is there."""

    def fail(*_: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    def change(pids: Sequence[int]) -> Outcome:
        monkeypatch.setattr(travel.gpus[THERE].page, "for_worker", fail)
        return MOVED

    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)
    if is_late:
        travel.outcome = change
    else:
        monkeypatch.setattr(travel.gpus[THERE].page, "for_worker", fail)
    move = travel.move(vgpu, THERE)
    assert (move.stage, "Too many open files" in move.reason) == (("done", False) if is_late else ("aborted", True))
    assert words(guest, addresses) == numbered(2)
    place = {THERE if is_late else HERE: 1}
    travel.check_nothing_left(place, place)


def test_a_worker_that_does_not_go_over(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "RUN_S", 0.2)
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    monkeypatch.setattr(travel.gpus[THERE].workers, "tell_page", lambda *_: None)
    assert travel.move(vgpu, THERE).stage == "done"
    assert is_dead(guest)
    travel.check_nothing_left({THERE: 1}, {})


def test_programs_that_all_end_meanwhile(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()

    def change(pids: Sequence[int]) -> Outcome:
        assert guest.region.step(0, ClientState.READY, ClientState.CLOSING)
        guest.region.announce()
        assert worker.is_ended.wait(LIMIT_S)
        return MOVED

    travel.outcome = change
    assert travel.move(vgpu, THERE).stage == "done"
    travel.check_nothing_left({THERE: 1}, {})


def test_a_reset_meanwhile(travel: Travel) -> None:
    vgpu = travel.opened()
    travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()

    def change(pids: Sequence[int]) -> Outcome:
        vgpu.caretaker.renew()
        vgpu.region.announce()
        assert worker.is_ended.wait(LIMIT_S)
        return MOVED

    travel.outcome = change
    assert travel.move(vgpu, THERE).stage == "done"
    travel.program_after_reset(vgpu).ok("cuCtxSynchronize")
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


class TakenAway:
    """A vGPU that is detached while it is on its way."""

    def __init__(self, travel: Travel) -> None:
        vgpu = travel.opened()
        self.guest = travel.program(vgpu)
        [self.worker] = vgpu.caretaker.workers()
        self.thread = threading.Thread(target=travel.registry.remove, args=("web",))

    def begin(self) -> None:
        self.guest.stop_beating()
        self.thread.start()
        assert self.worker.is_ended.wait(LIMIT_S)


def test_it_is_taken_away_before_it_changes(travel: Travel) -> None:
    taken = TakenAway(travel)
    Wait(taken.guest)
    move = leaving(travel)
    taken.begin()
    assert move.wait(LIMIT_S)
    taken.thread.join()
    assert move.stage == "aborted"
    travel.check_nothing_left({}, {})


def test_it_is_taken_away_as_it_changes(travel: Travel) -> None:
    taken = TakenAway(travel)

    def change(pids: Sequence[int]) -> Outcome:
        taken.begin()
        return MOVED

    travel.outcome = change
    move = travel.moves.start("web", "1")
    assert move.wait(LIMIT_S)
    taken.thread.join()
    assert (move.stage, move.reason, move.has_changed) == ("failed", "the vGPU web has gone", False)
    travel.check_nothing_left({}, {})


def test_it_is_taken_away_when_it_has_changed(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = TakenAway(travel)
    monkeypatch.setattr(travel.gpus[THERE].workers, "tell_page", lambda *_: taken.begin())
    move = travel.moves.start("web", "1")
    assert move.wait(LIMIT_S)
    taken.thread.join()
    assert (move.stage, move.has_changed) == ("done", True)
    travel.check_nothing_left({}, {})


@pytest.mark.parametrize("number", [HERE, THERE])
def test_a_gpu_that_fails_before_it_changes(travel: Travel, number: int) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    work = Wait(guest)
    move = leaving(travel)
    travel.gpus[number].ward.failure = LOST
    travel.registry.gpu_failed(travel.gpus[number], LOST)
    assert move.wait(LIMIT_S)
    assert (move.stage, move.reason) == ("aborted", f"GPU {number} has failed: {LOST.reason}")
    if number == THERE:
        assert vgpu.gpu is travel.gpus[HERE]
        work.end()
        travel.check_nothing_left({HERE: 1}, {HERE: 1})
        return
    assert is_dead(guest)
    assert vgpu.gpu is travel.gpus[THERE], "it is housed there as any"
    travel.program(vgpu, 1).ok("cuCtxSynchronize")
    travel.gpus[HERE].page.vgpu_free(0)


@pytest.mark.parametrize("number", [HERE, THERE])
def test_a_failure_is_the_reason_though_its_end_is_asked_for_as_well(travel: Travel, number: int) -> None:
    """As whoever sees to a failed Gpu's vGPUs does: the move may not have looked since."""
    journey = Journey(travel.opened(), travel.gpus[THERE], travel.registry)
    travel.gpus[number].ward.failure = LOST
    journey.is_aborted.set()
    with pytest.raises(CannotError, match=f"^GPU {number} has failed: {LOST.reason}$"):
        journey.check()


@pytest.mark.parametrize("number", [HERE, THERE])
def test_a_gpu_that_fails_as_it_changes(travel: Travel, number: int) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    gpu = travel.gpus[number]
    failing = threading.Thread(target=travel.registry.gpu_failed, args=(gpu, LOST))

    def change(pids: Sequence[int]) -> Outcome:
        gpu.ward.failure = LOST
        if number == THERE:
            failing.start()
        return MOVED

    travel.outcome = change
    move = travel.move(vgpu, THERE)
    if number == THERE:
        failing.join()
        assert (move.stage, move.reason) == ("failed", "the Gpu that it goes to has failed")
        assert is_dead(guest)
        assert vgpu.gpu is travel.gpus[HERE], "a Gpu that has failed takes nobody"
    else:
        assert move.stage == "done", "it has got away"
        failing.start()
        failing.join()
        guest.ok("cuCtxSynchronize")
        assert vgpu.gpu is travel.gpus[THERE]
    travel.program(vgpu, 1).ok("cuCtxSynchronize")


def test_no_slot_for_a_program_is_a_reason_to_stay(travel: Travel) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    page = travel.gpus[THERE].page
    taken = [page.worker_take() for _ in range(MAX_WORKERS)]
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason) == (
        "aborted",
        f"GPU 1 has no room for its programs: all {MAX_WORKERS} worker slots are taken",
    )
    for slot in taken:
        page.worker_free(slot)
    guest.ok("cuCtxSynchronize")
    travel.check_nothing_left({HERE: 1}, {HERE: 1})


def test_a_place_that_it_does_not_fit_in_is_refused(travel: Travel) -> None:
    travel.opened("first", Entitlement(request=80.0, gpu="1"), gpu=THERE)
    vgpu = travel.opened("web", Entitlement(request=30.0, gpu="0"))
    guest = travel.program(vgpu)
    try:
        move = travel.move(vgpu, THERE)
    except RefusedError as error:  # the plan says so already
        reason = str(error)
    else:
        assert move.stage == "aborted"
        reason = move.reason
    assert "GPU 1 has" in reason
    assert "20 %" in reason
    guest.ok("cuCtxSynchronize")
    travel.check_nothing_left({HERE: 1, THERE: 1}, {HERE: 1})


def test_two_moves_do_not_count_on_the_same_memory(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has got no further than to where contexts are awaited."""
    is_over = threading.Event()

    @contextlib.contextmanager
    def awake(_: object) -> Iterator[None]:
        assert is_over.wait(LIMIT_S)
        yield

    monkeypatch.setattr(travel.moves, "_awake", awake)
    for name in ("one", "other"):
        allocate(travel.program(travel.opened(name, Entitlement(gpu="0"))), travel.gpus[THERE].device.memory_bytes // 2)
    allocate(travel.program(travel.opened("there", Entitlement(gpu="1"), gpu=THERE)), STEP)
    one = travel.moves.start("one", "1")
    try:
        with pytest.raises(
            RefusedError, match=r"^other cannot move to GPU 1: GPU 1 has .* of memory left, where the pro"
        ):
            travel.moves.start("other", "1")
    finally:
        one.abort()
        is_over.set()
    assert one.wait(LIMIT_S)
    assert (one.stage, one.reason) == ("aborted", "it was asked to stay")
    assert len(travel.gpus[THERE].page.vgpus()) == 1
    assert travel.moves.plan("other", "1").target == THERE


def test_a_host_without_room_for_its_memory_keeps_it(travel: Travel) -> None:
    """Nor for that of two that move at once."""
    travel.config = replace(travel.config, swap_bytes=3 * STEP)
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    filled(guest, 2)
    other = travel.opened("other", Entitlement(gpu="0"))
    filled(travel.program(other), 2)
    assert travel.moves.plan("other", "1").target == THERE
    travel.registry.reserve(vgpu, travel.gpus[THERE])
    with pytest.raises(
        RefusedError, match=r"^other cannot move to GPU 1: the programs of other take .* the host's memory"
    ):
        travel.moves.start("other", "1")
    with pytest.raises(RefusedError, match=r"of the host's .* are left"):
        suspend(travel.registry, "other", travel.config)
    travel.registry.give_up(vgpu)
    filled(guest, 2)
    with pytest.raises(RefusedError, match=r"^web cannot move to GPU 1: the programs of web take .* the host's memory"):
        travel.moves.start("web", "1")
    guest.ok("cuCtxSynchronize")


def test_a_daemon_that_ends_lets_moves_end(travel: Travel) -> None:
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = leaving(travel)
    travel.moves.stop()
    assert move.stage == "aborted"
    with pytest.raises(RefusedError, match="about to end"):
        travel.moves.start("web", "1")
    work.end()


def test_a_mistake_of_ours_is_told(travel: Travel, caplog: pytest.LogCaptureFixture) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)

    def change(pids: Sequence[int]) -> Outcome:
        raise ZeroDivisionError

    travel.outcome = change
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason) == ("failed", "a mistake of FairGV's: ZeroDivisionError()")
    assert "the move of web failed" in caplog.text
    guest.ok("cuCtxSynchronize")
    travel.check_nothing_left({HERE: 1}, {HERE: 1})
