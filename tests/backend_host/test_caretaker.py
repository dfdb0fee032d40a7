"""The caretaker of a region, in front of a guest that writes whatever it likes and workers that end whenever they like."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from backend_host.caretaker import CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_SYSTEM_NOT_READY, Home
from backend_host.device.control import ControlPageFullError
from backend_host.errors import WorkerFailedError
from backend_host.walls.start import UNKNOWN_STATUS
from ivshmem.region import BEAT_LOST_SECONDS, NR_CLIENTS, ClientState, HostState, Region, Wake, ffi, lib
from tests.backend_host.played_region import PlayedWorkers, Scene, played_scene

MS = 1_000_000
LOST_NS = int(BEAT_LOST_SECONDS * 1e9)
NONSENSE = 77


@pytest.fixture
def scene() -> Iterator[Scene]:
    with played_scene() as made:
        yield made


def test_a_client_that_says_hello_gets_one_worker(scene: Scene) -> None:
    scene.write(5, ClientState.HELLO)
    scene.caretaker.look(0)
    scene.caretaker.look(1)
    [assignment] = scene.played.assignments
    assert (assignment.client, assignment.vgpu, assignment.table_hash) == (5, 3, 7)
    assert assignment.region_fd == scene.region.fileno()
    assert scene.caretaker.workers() == scene.played.workers


@pytest.mark.parametrize("state", [ClientState.CLAIMED, ClientState.REFUSED, ClientState.DEAD, NONSENSE, 2**32 - 1])
def test_other_states_are_given_nothing_and_are_taken_back(scene: Scene, state: int) -> None:
    scene.write(0, state)
    scene.take_pages(0)
    scene.caretaker.look(0)
    scene.caretaker.look(LOST_NS)
    assert scene.state(0) == state
    scene.caretaker.look(LOST_NS + 1)
    assert scene.state(0) == ClientState.FREE
    assert scene.nr_pages(0) == 0
    assert scene.played.assignments == []


def test_all_clients_at_once(scene: Scene) -> None:
    for index in range(NR_CLIENTS):
        scene.write(index, ClientState.HELLO)
    scene.caretaker.look(0)
    assert [assignment.client for assignment in scene.played.assignments] == list(range(NR_CLIENTS))


def test_as_many_clients_as_the_vgpu_may_have(scene: Scene) -> None:
    scene.caretaker = scene.made(nr_clients=2)
    for index in range(3):
        scene.write(index, ClientState.HELLO)
    scene.caretaker.look(0)
    assert [scene.state(index) for index in range(3)] == [ClientState.HELLO, ClientState.HELLO, ClientState.REFUSED]
    assert scene.region.client(2).refusal == CUDA_ERROR_OUT_OF_MEMORY
    scene.write(0, ClientState.CLOSING)
    scene.caretaker.look(1)
    scene.played.workers[0].end(0)
    scene.caretaker.look(2)
    scene.write(3, ClientState.HELLO)
    scene.caretaker.look(3)
    assert [assignment.client for assignment in scene.played.assignments] == [0, 1, 3]


def test_a_worker_that_ends_before_it_served_is_not_replaced(scene: Scene) -> None:
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    scene.played.workers[0].end(3)
    for now_ns in range(1, 5):
        scene.caretaker.look(now_ns)
    assert len(scene.played.assignments) == 1
    assert scene.state(0) == ClientState.REFUSED
    assert scene.region.client(0).refusal == CUDA_ERROR_SYSTEM_NOT_READY


def test_the_reason_that_a_worker_gave_is_kept(scene: Scene) -> None:
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    assert scene.region.refuse(0, 803)
    scene.played.workers[0].end(4)
    scene.caretaker.look(1)
    assert scene.region.client(0).refusal == 803


@pytest.mark.parametrize(
    ("status", "said"), [(-11, "ended with status -11"), (UNKNOWN_STATUS, "ended: how is not known")]
)
def test_a_worker_that_dies_while_it_serves(
    scene: Scene, caplog: pytest.LogCaptureFixture, status: int, said: str
) -> None:
    worker = scene.serve(0)
    worker.end(status)
    scene.caretaker.look(1)
    assert scene.state(0) == ClientState.DEAD
    assert scene.ended == [worker]
    assert [each.partition(": ")[2] for each in caplog.messages] == [f"the worker of client 0 {said}"]
    assert scene.caretaker.nr_deaths == 1


@dataclass
class Record:
    """In an event that clients share."""

    region: Region
    client: int

    def __post_init__(self) -> None:
        c = self.region.c_region
        index = lib.fgv_event_take(c, self.client, ffi.new("uint64_t *", 77))
        self.place, after = ffi.new("struct fgv_event_place *"), ffi.new("uint64_t *")
        self.event = lib.fgv_face_event(c, index)
        assert lib.fgv_event_claim(self.event, self.client, [0] * lib.FGV_NR_EVENT_WORDS, self.place, after)

    @property
    def is_done(self) -> bool:
        return bool(lib.fgv_event_is_done(self.event, self.place))


@pytest.mark.parametrize("before", [ClientState.READY, ClientState.DEAD, NONSENSE])
def test_what_a_dead_worker_owes_is_over(scene: Scene, before: int) -> None:
    """A worker says itself that it is dead, before its device has come to an end."""
    worker = scene.serve(0)
    record, another = Record(scene.region, 0), Record(scene.region, 1)
    scene.write(0, before)
    scene.caretaker.look(1)
    assert not record.is_done
    worker.end(-11)
    scene.caretaker.look(2)
    assert record.is_done
    assert not another.is_done


def test_what_a_program_that_ends_owes_is_over_when_its_worker_has_ended(scene: Scene) -> None:
    worker = scene.serve(0)
    record = Record(scene.region, 0)
    scene.write(0, ClientState.CLOSING)
    scene.caretaker.look(1)
    assert worker.is_stopped
    assert not record.is_done, "its worker may still write"
    worker.end(0)
    scene.caretaker.look(2)
    assert scene.state(0) == ClientState.FREE
    assert record.is_done
    assert lib.fgv_event_take(scene.region.c_region, 1, ffi.new("uint64_t *", 5)) == 0, "it is nobody's"


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (ControlPageFullError("all taken"), CUDA_ERROR_OUT_OF_MEMORY, "workers"),
        (OSError(11, "no processes"), CUDA_ERROR_SYSTEM_NOT_READY, "start"),
        (WorkerFailedError("ended at its start"), CUDA_ERROR_SYSTEM_NOT_READY, "start"),
    ],
)
def test_without_a_worker_a_client_is_refused(scene: Scene, error: Exception, code: int, why: str) -> None:
    scene.played.error = error
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    assert scene.region.client(0).state == ClientState.REFUSED
    assert scene.region.client(0).refusal == code
    assert {word: nr for word, nr in scene.caretaker.nr_refused.items() if nr} == {why: 1}


def test_a_client_that_closes_is_taken_back_after_its_worker_ended(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.take_pages(0)
    scene.write(0, ClientState.CLOSING)
    scene.caretaker.look(1)
    assert worker.is_stopped
    assert scene.state(0) == ClientState.CLOSING
    assert scene.nr_pages(0) > 0
    worker.end()
    scene.caretaker.look(2)
    assert scene.state(0) == ClientState.FREE
    assert scene.nr_pages(0) == 0
    assert scene.caretaker.workers() == []
    assert scene.caretaker.nr_deaths == 0


def test_a_guest_that_frees_its_entry_by_itself_loses_worker_and_pages(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.take_pages(0)
    scene.write(0, ClientState.FREE)
    scene.caretaker.look(1)
    assert worker.is_stopped
    worker.end()
    scene.caretaker.look(2)
    assert scene.nr_pages(0) == 0
    scene.serve(0, LOST_NS * 3)
    assert scene.state(0) == ClientState.READY, "the next client has a beat of its own"


def test_a_second_hello_waits_for_the_end_of_the_first_worker(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.write(0, ClientState.FREE)
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(1)
    assert len(scene.played.assignments) == 1
    worker.end()
    scene.caretaker.look(2)
    assert scene.state(0) == ClientState.REFUSED


def test_a_client_that_calls_itself_ready(scene: Scene) -> None:
    scene.write(0, ClientState.READY)
    scene.caretaker.look(0)
    assert scene.state(0) == ClientState.DEAD
    assert scene.played.assignments == []


def test_a_lost_beat_is_said_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    worker = scene.serve(0)
    for now_ns in range(LOST_NS + 1, LOST_NS + 10):
        scene.caretaker.look(now_ns)
    assert worker.is_stopped
    worker.end()
    scene.caretaker.look(LOST_NS + 11)
    assert scene.state(0) == ClientState.FREE
    assert caplog.text.count("no sign of life") == 1
    assert "ended with status" not in caplog.text


def test_a_beat_that_moves_keeps_a_client(scene: Scene) -> None:
    worker = scene.serve(0)
    for beat in range(1, 20):
        scene.beat(0, beat)
        scene.caretaker.look(beat * LOST_NS)
    assert not worker.is_stopped
    assert scene.nr_questions == 0


def test_in_a_paused_machine_no_program_is_dead(scene: Scene) -> None:
    worker = scene.serve(0)
    other = scene.serve(1)
    scene.is_paused = True
    for now_ns in range(0, 10 * LOST_NS, 100 * MS):
        nr_questions = scene.nr_questions
        scene.caretaker.look(now_ns)
        assert scene.nr_questions <= nr_questions + 1, "one question is enough for all clients"
    assert not worker.is_stopped
    assert worker.patient == other.patient == [True], "workers watch the beat by themselves"
    scene.is_paused = False
    scene.beat(0, 1)
    scene.caretaker.look(10 * LOST_NS)
    assert worker.patient[-1] is False


def test_a_worker_is_told_of_a_pause_before_it_gives_up(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.is_paused = True
    for now_ns in range(0, LOST_NS // 2, 100 * MS):
        scene.caretaker.look(now_ns)
    assert worker.patient == [True]


def test_a_reset_guest_finds_a_new_region_after_the_old_workers_ended(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    worker = scene.serve(0)
    scene.caretaker.renew()
    scene.caretaker.look(1)
    assert worker.is_stopped
    assert scene.host_state() is HostState.DOWN
    assert scene.nr_formats == 1
    worker.end()
    scene.caretaker.look(2)
    assert scene.host_state() is HostState.UP
    assert scene.nr_formats == 2
    assert scene.region.clients() == ()
    scene.caretaker.look(3)
    assert scene.nr_formats == 2
    assert caplog.records == [], "a reset is the operator's doing, and no error"
    assert scene.caretaker.nr_deaths == 0


def test_a_reset_is_seen_to_at_once(scene: Scene) -> None:
    while scene.region.wait_announce(0):
        pass
    scene.caretaker.renew()
    assert scene.region.wait_announce(0)


def test_it_sleeps_longer_where_there_is_no_program(scene: Scene) -> None:
    quiet_s = scene.caretaker.patience_s
    scene.serve(0)
    assert scene.caretaker.patience_s < quiet_s
    assert scene.caretaker.patience_s < BEAT_LOST_SECONDS / 2


def test_and_not_where_a_guest_may_not_ring(scene: Scene) -> None:
    """One without the kernel module, in a machine with a doorbell."""
    scene.serve(0)
    patience_s = scene.caretaker.patience_s
    scene.region.format(table_hash=7, wake=Wake.BELL)
    assert scene.caretaker.patience_s < patience_s


def test_a_reset_during_a_reset_is_not_forgotten(scene: Scene) -> None:
    scene.caretaker.renew()
    scene.during_format = scene.caretaker.renew
    scene.caretaker.look(1)
    scene.during_format = lambda: None
    scene.caretaker.look(2)
    assert scene.nr_formats == 3


def test_a_region_that_could_not_be_laid_out_is_tried_again(scene: Scene) -> None:
    def fail() -> None:
        raise OSError(28, "full")

    scene.caretaker.renew()
    scene.during_format = fail
    with pytest.raises(OSError, match="full"):
        scene.caretaker.look(1)
    scene.during_format = lambda: None
    scene.caretaker.look(2)
    assert scene.host_state() is HostState.UP


def test_stopping_tells_every_program_at_once(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.write(1, ClientState.HELLO)
    worker.stop = worker.end  # type: ignore[method-assign]
    scene.caretaker.stop()
    assert scene.host_state() is HostState.DOWN
    assert scene.state(0) == ClientState.DEAD
    assert scene.state(1) == ClientState.REFUSED
    assert scene.region.client(1).refusal == CUDA_ERROR_SYSTEM_NOT_READY


def test_a_guest_cannot_fill_the_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.played.error = OSError(11, "no processes")
    for now_ns in range(500):
        scene.write(0, ClientState.HELLO)
        scene.caretaker.look(now_ns)
        scene.write(0, ClientState.CLOSING)
        scene.caretaker.look(now_ns)
    assert len(caplog.records) <= 21
    assert "no more within this minute" in caplog.text


def test_the_thread_attends_to_announcements_and_to_ends(scene: Scene) -> None:
    """Without the announcement of the end the refusal would come as well, only later: nothing here depends on it."""
    scene.caretaker.start()
    scene.write(0, ClientState.HELLO)
    scene.region.announce()
    watching = Region("watching", os.dup(scene.region.fileno()), scene.region.region_bytes)
    watching.check(table_hash=7)
    while not scene.played.workers:
        watching.wait_announce(0.01)
    scene.played.workers[0].end(3)
    while watching.client(0).state != ClientState.REFUSED:
        watching.wait_announce(0.01)
    scene.caretaker.stop()
    watching.close()


def test_it_beats_while_a_worker_is_being_started(scene: Scene) -> None:
    """Which may take seconds on a busy host: the program that waits for it must not take the daemon for dead."""
    is_being_started, is_started = threading.Event(), threading.Event()

    def start() -> None:
        is_being_started.set()
        is_started.wait()

    scene.played.during_assign = start
    scene.caretaker.start()
    scene.write(0, ClientState.HELLO)
    scene.region.announce()
    is_being_started.wait()
    before = scene.region.host_beat()
    try:
        moved = any(threading.Event().wait(0.05) or scene.region.host_beat() > before + 2 for _ in range(600))
    finally:
        is_started.set()
        while not scene.played.workers:
            threading.Event().wait(0.01)
        scene.played.workers[0].stop = scene.played.workers[0].end  # type: ignore[method-assign]
        scene.caretaker.stop()
    assert moved


def test_an_exception_does_not_end_the_thread(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.played.error = ZeroDivisionError("a bug")
    scene.caretaker.start()
    scene.write(0, ClientState.HELLO)
    scene.region.announce()
    while "a bug" not in caplog.text:
        threading.Event().wait(0.01)
    scene.played.error = None
    scene.region.announce()
    while not scene.played.workers:
        threading.Event().wait(0.01)
    scene.played.workers[0].stop = scene.played.workers[0].end  # type: ignore[method-assign]
    scene.caretaker.stop()


def test_a_region_that_was_cut_short_is_given_up(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Its file is still long enough for what the guest and its worker touch: they would go on, and nobody looks after them."""
    worker = scene.serve(5)
    os.ftruncate(scene.region.fileno(), 16 << 20)
    for now_ns in range(3):
        scene.caretaker.look(now_ns)
    assert worker.is_stopped
    assert caplog.text.count("cut short by who owns it") == 1
    scene.write(6, ClientState.HELLO)
    scene.caretaker.look(3)
    assert len(scene.played.workers) == 1, "nobody else is served there"


def test_programs_of_a_device_that_failed_end_and_those_to_come_are_served_elsewhere(scene: Scene) -> None:
    worker = scene.serve(0)
    scene.caretaker.hold()
    scene.write(1, ClientState.HELLO)
    scene.caretaker.look(1)
    assert scene.state(1) == ClientState.HELLO, "it waits"
    assert scene.caretaker.fail_all(214) == [worker]
    worker.end()
    scene.caretaker.look(2)
    assert scene.state(0) == ClientState.DEAD
    assert scene.ended == [worker]
    elsewhere = PlayedWorkers()
    scene.caretaker.move(Home(elsewhere, 9, scene._format))
    scene.caretaker.release()
    scene.caretaker.look(3)
    [assignment] = elsewhere.assignments
    assert (assignment.client, assignment.vgpu) == (1, 9)
    assert len(scene.played.assignments) == 1
    elsewhere.workers[0].end()
    assert scene.ended == [worker, *elsewhere.workers]


def test_programs_of_a_region_that_was_closed_are_told_no_more(scene: Scene) -> None:
    """Its vGPU is taken away while its device fails: those of others are to be told still."""
    worker = scene.serve(0)
    worker.stop = worker.end  # type: ignore[method-assign]
    scene.caretaker.stop()
    scene.region.close()
    assert scene.caretaker.fail_all(214) == [worker]


def test_where_no_other_device_takes_them_programs_are_refused(scene: Scene) -> None:
    scene.caretaker.hold()
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    scene.caretaker.strand("GPU 0 has failed")
    scene.caretaker.look(1)
    assert scene.state(0) == ClientState.REFUSED
    assert scene.caretaker.nr_refused["device"] == 1
    assert scene.played.assignments == []
    scene.caretaker.hold()
    scene.caretaker.move(Home(scene.played, 9, scene._format))
    scene.caretaker.release()
    scene.write(1, ClientState.HELLO)
    scene.caretaker.look(2)
    [assignment] = scene.played.assignments
    assert (assignment.client, assignment.vgpu) == (1, 9), "until there is one"
