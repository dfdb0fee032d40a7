"""The watchdog over played workers: whom it blames, when it warns, when it ends. Time is handed in."""

import logging
import threading
from collections.abc import Iterator, Sequence

import pytest
from backend_host.worker._worker import ffi

from backend_host.device.control import ControlPage
from backend_host.device.readings import WorkerReading, WorkerState
from backend_host.watchdog import Watchdog
from tests.backend_host.grantees import attach

S = 1_000_000_000
LIMIT_NS = 10 * S
STALLED = 1
"""The member of struct fgw_worker_slot, as words of 64 bits are counted."""


def worker(slot: int, vgpu: int, stalled_since_ns: int = 0, *, is_waiting: bool = False, pid: int = 0) -> WorkerReading:
    return WorkerReading(
        slot=slot,
        state=WorkerState.SERVING,
        pid=pid or 100 + slot,
        vgpu=vgpu,
        client=0,
        is_user=stalled_since_ns != 0,
        is_waiting=is_waiting,
        phase="waiting" if is_waiting else "out",
        nr_calls=0,
        nr_round_trips=0,
        nr_refused=0,
        nr_launches=0,
        to_device_bytes=0,
        from_device_bytes=0,
        memory_bytes=0,
        gpu_ns=0,
        nr_parks=0,
        nr_sliced=0,
        nr_parts=0,
        nr_withdrawn=0,
        nr_copies_beside=0,
        nr_variants=0,
        variant_ns=0,
        whole={},
        stalled_since_ns=stalled_since_ns,
        last_error=0,
        program="program",
    )


class Scene:
    def __init__(self, page: ControlPage) -> None:
        self.ended: list[int] = []
        self.watchdog = Watchdog(page, LIMIT_NS, lambda slot, _: self.ended.append(slot))

    def look(self, now_s: float, *workers: WorkerReading) -> None:
        self.watchdog.look(workers, int(now_s * S))


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ControlPage.create(6_000_000) as page:
        yield Scene(page)


def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    looks = threading.Semaphore(0)

    class Failing(Watchdog):
        def look(self, workers: Sequence[WorkerReading], now_ns: int) -> None:
            looks.release()
            raise FileNotFoundError("a process that has ended")

    with ControlPage.create(6_000_000) as page:
        watchdog = Failing(page, 4_000_000, lambda *_: None)
        watchdog.start()
        assert all(looks.acquire(timeout=30) for _ in range(3))
        watchdog.stop()
    assert caplog.text.count("a look at whose work keeps others waiting failed") == 1, "it is said once"


def test_workers_are_looked_at_where_work_of_one_does_not_end() -> None:
    looked: list[list[int]] = []

    class Noting(Watchdog):
        def look(self, workers: Sequence[WorkerReading], now_ns: int) -> None:
            looked.append([each.slot for each in workers])

    with ControlPage.create(6_000_000) as page:
        (slot, grantee), (other, _) = (attach(page, page.vgpu_take()) for _ in range(2))
        watchdog = Noting(page, LIMIT_NS, lambda *_: None)
        watchdog._look_now()
        ffi.cast("uint64_t *", grantee.slot)[STALLED] = 5
        watchdog._look_now()
    assert looked == [[], [slot, other]]


def test_one_that_could_not_be_ended_is_ended_at_the_next_look(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(slot: int, late_ns: int) -> None:
        raise RuntimeError("can't start new thread")

    stuck, waiting = worker(1, 0, 1 * S), worker(2, 1, is_waiting=True)
    scene.look(2, stuck, waiting)
    with monkeypatch.context() as patch:
        patch.setattr(scene.watchdog, "_end", fail)
        with pytest.raises(RuntimeError):
            scene.look(12.1, stuck, waiting)
    for now_s in (12.2, 12.3):
        scene.look(now_s, stuck, waiting)
    assert scene.ended == [1]


def test_warned_at_half_and_ended_at_the_limit(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stuck, waiting = worker(1, 0, 1 * S), worker(2, 1, is_waiting=True)
    for now_s in (2, 4, 6.9):
        scene.look(now_s, stuck, waiting)
    assert scene.watchdog.late() == ()
    assert caplog.records == []
    scene.look(7.1, stuck, waiting)
    assert [late.slot for late in scene.watchdog.late()] == [1]
    scene.look(11.9, stuck, waiting)
    assert scene.ended == []
    scene.look(12.1, stuck, waiting)
    scene.look(12.2, stuck, waiting)
    assert scene.ended == [1]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_time_counts_from_when_another_vgpu_wants_the_gpu(scene: Scene) -> None:
    stuck = worker(1, 0, 1 * S)
    for now_s in range(2, 1000, 100):
        scene.look(now_s, stuck, worker(3, 0, is_waiting=True), worker(4, 2))
    for now_s in (1000, 1009):
        scene.look(now_s, stuck, worker(2, 1, is_waiting=True))
    assert scene.ended == []
    scene.look(1010.1, stuck, worker(2, 1, is_waiting=True))
    assert scene.ended == [1]


def test_who_stands_still_behind_another_is_not_blamed(scene: Scene) -> None:
    stuck, behind, also = worker(1, 0, 1 * S), worker(2, 1, 2 * S), worker(3, 2, 3 * S)
    for now_s in range(4, 30):
        scene.look(now_s, also, behind, stuck)
    assert scene.ended == [1]
    for now_s in range(30, 34):
        scene.look(now_s, also, behind)
    assert scene.ended == [1], "it has only now its turn"


def test_work_that_ends_is_forgiven(scene: Scene) -> None:
    waiting = worker(2, 1, is_waiting=True)
    for now_s in range(2, 100):
        scene.look(now_s, worker(1, 0, (now_s - now_s % 9) * S), waiting)
    assert scene.ended == []
    scene.look(100, worker(1, 0), waiting)
    assert scene.watchdog.late() == ()


def test_a_new_program_in_an_old_slot_starts_anew(scene: Scene) -> None:
    waiting = worker(2, 1, is_waiting=True)
    scene.look(1, worker(1, 0, 1 * S, pid=5), waiting)
    scene.look(10, worker(1, 0, 1 * S, pid=6), waiting)
    scene.look(12, worker(1, 0, 1 * S, pid=6), waiting)
    assert scene.ended == []


def test_nobody_works(scene: Scene) -> None:
    scene.look(1)
    scene.look(2, worker(1, 0), worker(2, 1, is_waiting=True))
    assert scene.watchdog.late() == ()
