"""Moves by replay as the daemon has them: the order of steps, who reaches which device when, and what comes of one that cannot be.

Workers are real, and what replay is to them is played by the motions that they have for a checkpoint: they stand, and go by another page.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from backend_host.device.control import ControlPage
from backend_host.device.failure import Failure
from backend_host.device.readings import NOT_BOUND, Bound, Motion, Stage, WorkerReading
from backend_host.devices import Device
from backend_host.errors import RefusedError
from backend_host.move import by_replay
from backend_host.move.by_replay import ByReplay
from backend_host.move.root import LendingError
from backend_host.vgpu import VGpu
from backend_host.walls.start import Child
from backend_host.worker_process import WorkerProcess
from tests.backend_host.move.travel import LIMIT_S, MOVED, Travel, reading, travelling
from tests.backend_host.move.waiting import Wait
from tests.backend_host.swapping import filled, numbered, words
from tests.end_to_end.host import wait_until

HERE, THERE = 0, 1
PLAYED = {Motion.COPY: Motion.PREPARE, Motion.CHANGE: Motion.STAND}


@dataclass
class Play:
    """What workers are told, and have of device nodes, in order; and what they say why they are bound, by clients."""

    events: list[str] = field(default_factory=list)
    bound: dict[int, Bound] = field(default_factory=dict)
    bound_once: Motion = Motion.NONE
    """They say so when they are told this."""

    def reading(self, told: WorkerReading | None) -> WorkerReading | None:
        has_come = not self.bound_once or self.bound_once.name in " ".join(self.events)
        return told and replace(told, bound=self.bound.get(told.client, NOT_BOUND) if has_come else NOT_BOUND)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    play = Play()
    set_motion, read = ControlPage.set_motion, WorkerProcess.reading

    def tell(page: ControlPage, vgpu: int, motion: Motion) -> None:
        play.events.append(motion.name)
        set_motion(page, vgpu, PLAYED.get(motion, motion))

    def show_way(page: ControlPage, slot: int, device: int) -> None:
        play.events.append(f"to {device}")

    def lend(worker: Child, device: Device) -> None:
        play.events.append(f"lend {device.ordinal}")

    def take_back(worker: Child, device: Device) -> None:
        play.events.append(f"take back {device.ordinal}")

    monkeypatch.setattr(ControlPage, "set_motion", tell)
    monkeypatch.setattr(ControlPage, "set_motion_device", show_way)
    monkeypatch.setattr(WorkerProcess, "reading", lambda worker: play.reading(read(worker)))
    monkeypatch.setattr(by_replay, "lend", lend)
    monkeypatch.setattr(by_replay, "take_back", take_back)
    return play


@pytest.fixture
def travel(two_devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play) -> Iterator[Travel]:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    with travelling(two_devices, tmp_path, is_fast=True) as made:
        for gpu in made.gpus:
            gpu.walls |= {"mount"}
        made.outcome = lambda pids: pytest.fail("nothing is checkpointed")
        yield made


def check_it_goes_on_here(travel: Travel, vgpu: VGpu) -> None:
    wait_until(lambda: reading(vgpu).stage is Stage.RUNS, "it goes on")
    assert vgpu.gpu is travel.gpus[HERE]
    travel.check_nothing_left({HERE: 1}, {HERE: len(vgpu.caretaker.workers())})


def test_a_program_goes_on_there_and_nothing_is_checkpointed(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 5)
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason, move.has_changed, move.plan.mover) == ("done", "", True, "replay")
    assert move.pause_s is not None
    assert play.events == ["lend 1", "to 1", "COPY", "CHANGE", "NONE", "take back 0"]
    assert words(guest, addresses) == numbered(5)
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


def test_nobody_ever_wonders_where_its_programs_are(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a daemon that dies at any step leaves them running."""
    vgpu = travel.opened()
    travel.program(vgpu)
    written: list[object] = []
    put = travel.notes.put

    def note(name: str, record: dict[str, object], *rest: object, **more: object) -> None:
        written.append(record.get("is_changing", False))
        put(name, record, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(travel.notes, "put", note)
    assert travel.move(vgpu, THERE).stage == "done"
    assert written
    assert not any(written)


def test_there_and_back_with_several_programs(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    programs = [travel.program(vgpu, client) for client in range(3)]
    addresses = [filled(guest, 2) for guest in programs]
    for to in (THERE, HERE):
        move = travel.move(vgpu, to, "replay")
        assert (move.stage, move.plan.nr_programs) == ("done", 3)
        assert [words(guest, mine) for guest, mine in zip(programs, addresses, strict=True)] == [numbered(2)] * 3
    assert [play.events.count(f"{what} {gpu}") for gpu in (HERE, THERE) for what in ("lend", "take back")] == [3] * 4
    travel.check_nothing_left({HERE: 1}, {HERE: 3})


def test_one_that_is_bound_keeps_all_where_they_are(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    programs = [travel.program(vgpu, client) for client in range(2)]
    play.bound, why = {1: Bound.VARIABLES}, r"^web cannot move to GPU 1: test-guest \(worker {}\) has module variables$"
    with pytest.raises(RefusedError, match=why.format(reading(vgpu, 1).pid)):
        travel.moves.start("web", "1", "replay")
    for guest in programs:
        guest.ok("cuCtxSynchronize")
    assert play.events == []
    travel.outcome = lambda pids: MOVED
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.plan.mover) == ("done", "checkpoint")
    assert "has module variables" in move.plan.no_replay[0]


@pytest.mark.parametrize("when", [Motion.COPY, Motion.CHANGE])
def test_who_turns_out_to_be_bound_comes_back(travel: Travel, play: Play, when: Motion) -> None:
    vgpu = travel.opened()
    programs = [travel.program(vgpu, client) for client in range(2)]
    play.bound, play.bound_once = {0: Bound.OBJECTS}, when
    move = travel.move(vgpu, THERE, "replay")
    assert (move.stage, move.has_changed) == ("aborted", False)
    assert move.reason == f"test-guest (worker {reading(vgpu).pid}) has an object that did not come out equal"
    assert play.events[-3:] == ["NONE", "take back 1", "take back 1"]
    for guest in programs:
        guest.ok("cuCtxSynchronize")
    check_it_goes_on_here(travel, vgpu)


@pytest.mark.parametrize("when", [Motion.COPY, Motion.CHANGE])
def test_with_the_best_mover_it_goes_on_by_checkpoint(
    travel: Travel, play: Play, when: Motion, caplog: pytest.LogCaptureFixture
) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)
    play.bound, play.bound_once = {0: Bound.DEVICE}, when
    travel.outcome = lambda pids: MOVED
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.plan.mover) == ("done", "checkpoint")
    said = f"test-guest (worker {reading(vgpu).pid}) has a process that does not reach the other device"
    assert move.plan.no_replay == (said,)
    assert f"web: no replay, it goes on by checkpoint: {said}" in caplog.text
    assert play.events[-5:] == ["NONE", "take back 1", "PREPARE", "STAND", "NONE"]
    assert words(guest, addresses) == numbered(2)
    travel.check_nothing_left({THERE: 1}, {THERE: 1})


def test_where_there_is_no_checkpoint_either_both_reasons_are_told(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    travel.program(vgpu)
    play.bound, play.bound_once = {0: Bound.OBJECTS}, Motion.COPY
    travel.gpus[HERE].mover.set("there are none")
    move = travel.move(vgpu, THERE)
    assert move.stage == "aborted"
    assert (
        "did not come out equal; web cannot move to GPU 1: programs of GPU 0 cannot move: there are none" in move.reason
    )
    check_it_goes_on_here(travel, vgpu)


@pytest.mark.parametrize("mover", ["auto", "replay"])
def test_who_is_asked_to_stay_goes_nowhere_by_any_mover(travel: Travel, play: Play, mover: str) -> None:
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = travel.moves.start("web", "1", mover)
    wait_until(lambda: move.stage == "leaving", "it leaves")
    move.abort()
    assert move.wait(LIMIT_S)
    assert (move.stage, move.reason) == ("aborted", "it was asked to stay")
    assert play.events == ["lend 1", "to 1", "COPY", "CHANGE", "NONE", "take back 1"]
    work.end()
    check_it_goes_on_here(travel, vgpu)


@pytest.mark.parametrize("mover", ["auto", "replay"])
def test_work_that_does_not_end_keeps_it(travel: Travel, monkeypatch: pytest.MonkeyPatch, mover: str) -> None:
    """Nobody stands as long once more for a checkpoint."""
    monkeypatch.setattr(by_replay, "STAND_S", 0.2)
    vgpu = travel.opened()
    work = Wait(travel.program(vgpu))
    move = travel.move(vgpu, THERE, mover)
    said = (
        f"test-guest (worker {reading(vgpu).pid}) does not stand still within 0.2 s: its work on the GPU does not end"
    )
    assert (move.stage, move.reason) == ("aborted", said)
    work.end()
    check_it_goes_on_here(travel, vgpu)


def test_one_that_is_not_ready_in_time_stays(travel: Travel, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_replay, "COPY_S", 0.0)
    monkeypatch.setitem(PLAYED, Motion.COPY, Motion.NONE)
    vgpu = travel.opened()
    travel.program(vgpu)
    move = travel.move(vgpu, THERE, "replay")
    said = f"what test-guest (worker {reading(vgpu).pid}) has was not on the other device within 0 s"
    assert (move.stage, move.reason) == ("aborted", said)
    assert play.events == ["lend 1", "to 1", "COPY", "NONE", "take back 1"]


def test_a_gpu_that_fails_as_they_are_there_costs_no_program(travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    vgpu = travel.opened()
    guest = travel.program(vgpu)
    addresses = filled(guest, 2)

    def fail(mover: ByReplay, workers: object) -> str:
        travel.gpus[THERE].ward.failure = Failure("Xid 79")
        return ""

    monkeypatch.setattr(ByReplay, "change", fail)
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.reason, move.has_changed) == ("aborted", "the Gpu that it goes to has failed", False)
    assert words(guest, addresses) == numbered(2)
    check_it_goes_on_here(travel, vgpu)


def test_who_cannot_be_given_the_node_stays(travel: Travel, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def lend(worker: Child, device: Device) -> None:
        raise LendingError("worker 7 cannot be given /dev/nvidia1: No such file")

    vgpu = travel.opened()
    travel.program(vgpu)
    monkeypatch.setattr(by_replay, "lend", lend)
    move = travel.move(vgpu, THERE, "replay")
    assert (move.stage, move.reason) == ("aborted", "worker 7 cannot be given /dev/nvidia1: No such file")
    assert play.events == ["NONE"]
    check_it_goes_on_here(travel, vgpu)


def test_a_worker_of_another_daemon_may_count_devices_otherwise(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    travel.program(vgpu)
    [worker] = vgpu.caretaker.workers()
    assert worker.record is not None
    assert worker.record.sees == ",".join(gpu.device.uuid for gpu in travel.gpus)
    worker.record = replace(worker.record, sees="")
    with pytest.raises(RefusedError, match=r"has a process that does not reach the other device$"):
        travel.moves.start("web", "1", "replay")
    assert travel.moves.plan("web", "1").mover == "checkpoint"


def test_after_a_checkpoint_a_worker_counts_devices_otherwise(travel: Travel, play: Play) -> None:
    """One that begins there does not, and both find their ways back."""
    vgpu = travel.opened()
    travel.program(vgpu)
    travel.outcome = lambda pids: MOVED
    assert travel.move(vgpu, THERE, "checkpoint").stage == "done"
    travel.program(vgpu, 1)
    play.events.clear()
    assert travel.move(vgpu, HERE, "replay").stage == "done"
    assert sorted(play.events[:4]) == ["lend 0", "lend 0", "to 0", "to 1"]
    assert {travel.notes.items[name]["sees"] for name in travel.notes.names("worker")} == {
        ",".join(gpu.device.uuid for gpu in gpus) for gpus in (travel.gpus, travel.gpus[::-1])
    }


def test_without_a_program_it_changes_its_place_alone(travel: Travel, play: Play) -> None:
    vgpu = travel.opened()
    move = travel.move(vgpu, THERE)
    assert (move.stage, move.plan.mover) == ("done", "replay")
    travel.program(vgpu)
    travel.check_nothing_left({THERE: 1}, {THERE: 1})
