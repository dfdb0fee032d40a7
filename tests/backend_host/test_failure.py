"""When a device counts as failed: never by a worker's word alone, and then for good."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.device.failure import OUT_OF_MEMORY, UNAVAILABLE, Failure, Ward, trial_of
from backend_host.device.readings import WantReading
from backend_host.walls.root import Root
from backend_host.walls.settings import PLAIN
from backend_host.walls.start import Walls
from backend_host.worker_start import WorkerStart

NO_CONTEXT = Failure("it gives no context (CUDA error 46, unavailable)")


class Trials:
    """Says what is next; the last for ever."""

    def __init__(self, *said: Failure | None) -> None:
        self.said, self.nr = list(said), 0
        self.was_tried = threading.Semaphore(0)

    def __call__(self) -> Failure | None:
        self.nr += 1
        found = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        self.was_tried.release()
        return found


class Watched:
    """A ward, and what it came to."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.failures = trials, list[Failure]()
        self.is_told = threading.Event()
        self.ward = Ward("GPU 7", trials, between_s=0.0)
        self.ward.start(self.hear)

    def hear(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.is_told.set()


@pytest.fixture
def broken() -> Iterator[Watched]:
    watched = Watched(Trials(NO_CONTEXT))
    yield watched
    watched.ward.stop()


@pytest.fixture
def whole() -> Iterator[Watched]:
    watched = Watched(Trials(None))
    yield watched
    watched.ward.stop()


def reading(slot: int, error: int) -> WantReading:
    return WantReading(slot, 0, 100 + slot, False, 0, 0, 0, error)


def test_twice_no_context_is_a_failure(broken: Watched) -> None:
    broken.ward.suspect("a worker could not open it")
    assert broken.is_told.wait(30)
    assert (broken.trials.nr, broken.failures, broken.ward.failure) == (2, [NO_CONTEXT], NO_CONTEXT)
    broken.ward.suspect("again")
    broken.ward.fail(Failure("Xid 79"))
    assert broken.ward.failure == NO_CONTEXT, "it stays what it was"


def test_once_is_none() -> None:
    watched = Watched(Trials(NO_CONTEXT, None))
    watched.ward.suspect("a worker could not open it")
    assert all(watched.trials.was_tried.acquire(timeout=30) for _ in range(2))
    watched.ward.stop()
    assert watched.ward.failure is None


def test_a_workers_word_is_tried_and_heard_once(whole: Watched, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        whole.ward.look([reading(3, UNAVAILABLE), reading(4, 700)])
    assert whole.trials.was_tried.acquire(timeout=30)
    assert whole.ward.failure is None
    for _ in range(50):
        whole.ward.look([reading(3, UNAVAILABLE)])
    assert whole.trials.nr == 1
    assert not whole.failures


def test_a_guest_that_raises_suspicions_all_the_time_costs_few_trials(whole: Watched) -> None:
    for slot in range(100):
        whole.ward.look([reading(slot, UNAVAILABLE)])
    assert whole.trials.was_tried.acquire(timeout=30)
    for slot in range(100):
        whole.ward.look([reading(slot, UNAVAILABLE)])
    assert not whole.trials.was_tried.acquire(timeout=0.2), "the next comes 10 s later"


@pytest.mark.parametrize("error", [0, 1, 2, 700, 719, 999, (1 << 64) - 1])
def test_other_errors_are_the_programs_own(broken: Watched, error: int) -> None:
    broken.ward.look([reading(3, error)])
    assert not broken.trials.was_tried.acquire(timeout=0.05)


def test_what_the_monitor_says_needs_no_trial(whole: Watched) -> None:
    whole.ward.fail(Failure("Xid 79: it has fallen off the bus"))
    assert whole.is_told.wait(30)
    assert (whole.trials.nr, whole.failures) == (0, [Failure("Xid 79: it has fallen off the bus")])


def test_what_the_monitor_says_waits_for_no_trial() -> None:
    """That may hang, as the device has failed."""
    is_tried, is_over = threading.Event(), threading.Event()

    class Hanging(Trials):
        def __call__(self) -> Failure | None:
            is_tried.set()
            is_over.wait()
            return super().__call__()

    watched = Watched(Hanging(NO_CONTEXT))
    watched.ward.suspect("a program got CUDA error 46")
    assert is_tried.wait(30)
    watched.ward.fail(Failure("Xid 79: it has fallen off the bus"))
    try:
        assert watched.is_told.wait(30)
    finally:
        is_over.set()
    watched.ward.suspect("again")
    assert watched.failures == [Failure("Xid 79: it has fallen off the bus")]
    watched.ward.stop()


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("", None),
        ("import sys; sys.exit('fairgv worker 7: device 0: CUDA error 46')", NO_CONTEXT),
        ("import sys; sys.exit('x: CUDA error 999')", Failure("it gives no context (CUDA error 999)")),
        (
            "import sys; sys.exit('x: cuInit gives CUDA error 214')",
            Failure("it gives no context (CUDA error 214, uncorrectable ECC error)", 214),
        ),
        (f"import sys; sys.exit('device 0: CUDA error {OUT_OF_MEMORY}')", None),
        ("import sys; sys.exit('x: cannot open shared object file')", None),
        ("import os; os.kill(os.getpid(), 9)", None),
    ],
    ids=["a context", "unavailable", "another", "ECC", "full", "no library", "killed"],
)
def test_what_a_trial_says(
    program: str, found: Failure | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "trial.py"
    script.write_text(program)
    monkeypatch.setattr("backend_host.device.failure.WORKER", (str(script),))
    start = WorkerStart(
        *("libcuda.so.1", 0, "soft", Walls(frozenset(), PLAIN, 0), Root()), {"PATH": "/bin"}, None, None
    )
    assert trial_of(start)() == found


def test_a_process_that_cannot_be_started_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    start = WorkerStart(
        *("libcuda.so.1", 0, "soft", Walls(frozenset(), PLAIN, 0), Root()), {"PATH": "/bin"}, None, None
    )
    assert trial_of(start)() is None
