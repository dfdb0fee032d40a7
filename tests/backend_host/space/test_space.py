"""One space with its workers, on softgpu: how it begins, what it does once the device serves it no more, and when it gives up."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend_host.config import Config
from backend_host.device.control import ControlPage, ControlPageFullError
from backend_host.device.readings import WorkerState
from backend_host.devices import Device, probe
from backend_host.errors import FairGVError
from backend_host.pools import Pool
from backend_host.space import space as space_module
from backend_host.space.own_client import OwnClient
from backend_host.space.space import Space
from backend_host.space.together import ByName
from backend_host.walls.tenants import name_of
from backend_host.worker_process import WorkerProcess
from backend_host.worker_start import WorkerStart, worker_start
from backend_host.workers import Workers
from tests.backend_host.worker_harness import WALLS, walls_here
from tests.end_to_end.host import wait_until

MakeSpace = Callable[..., Space]
ILLEGAL_ADDRESS = 700
ASKS, ASKS_NOT = 0, 1
"""vGPUs: a critical one, and another."""


class Together(ByName):
    """As MPS is: faults are shared, and it may not be there."""

    shares_faults = True
    most = 3

    def __init__(self, state_dir: Path) -> None:
        super().__init__("web", state_dir)
        self.nr_ensured = self.nr_quit = 0
        self.terminated: list[int] = []
        self.is_there = True
        self.is_asked, self.has_quit = threading.Event(), threading.Event()
        self.answer_s = 0.0
        """How long it takes to end the work of one, unless it is told to quit meanwhile."""

    def ensure(self) -> None:
        self.nr_ensured += 1
        if not self.is_there:
            raise FairGVError("it says no")

    def terminate(self, pid: int) -> bool:
        self.terminated.append(pid)
        self.is_asked.set()
        if self.has_quit.wait(self.answer_s):
            raise FairGVError("it answers nobody any more")
        return True

    def quit(self) -> None:
        self.nr_quit += 1
        self.has_quit.set()


@pytest.fixture(scope="module")
def softgpu() -> Device:
    return probe("soft", Config().softgpu_library)[0]


@pytest.fixture
def start(softgpu: Device) -> WorkerStart:
    made = worker_start(softgpu, Config(walls=WALLS), walls_here(), None)
    return replace(made, tenant=name_of("space", "web", 0))


@pytest.fixture
def workers(control: ControlPage, start: WorkerStart) -> Iterator[Workers]:
    made = Workers(control, start, 0)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def together(tmp_path: Path) -> Together:
    return Together(tmp_path)


@pytest.fixture
def pages() -> list[int]:
    """Inodes of the pages that were made."""
    return []


@pytest.fixture
def said() -> list[str]:
    """What the space said of its split word."""
    return []


@pytest.fixture
def make(
    together: Together,
    start: WorkerStart,
    workers: Workers,
    pages: list[int],
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MakeSpace]:
    """A space whose vGPU 0 it is, with a warm worker."""
    monkeypatch.setattr(space_module, "_BETWEEN_S", 0.0)
    monkeypatch.setattr(space_module, "_TERMINATED_S", 0.1)
    made: list[Space] = []

    def keep(page: int) -> None:
        pages.append(os.fstat(page).st_ino)

    def make_one(
        gave_up: Callable[[], None] = lambda: None, page: int = -1, after: threading.Event | None = None
    ) -> Space:
        space = Space(
            *("web", 1, together, start, workers, 1, keep, gave_up, page, after),
            asks=lambda vgpu: vgpu == ASKS,
            cleared=lambda: said.append("said"),
        )
        made.append(space)
        workers.set_pool(0, space.pools[0])
        space.start()
        return space

    yield make_one
    workers.set_pool(0, None)
    for space in made:
        space.stop()


def opens(space: Space) -> bool:
    """Whether a client that comes now gets a worker of it."""
    assert space.ask(lambda: None).wait(60)
    return space.is_open


def warm(space: Space) -> int:
    """The process of the worker that waits."""
    wait_until(lambda: len(space.pools[0].warm) == 1, "a worker waits")
    return space.pools[0].warm[0].process.pid


def test_it_begins_with_a_page_and_a_worker_that_waits(make: MakeSpace, together: Together, pages: list[int]) -> None:
    space = make()
    assert opens(space)
    assert warm(space) > 0
    with space.page() as page:
        assert [os.fstat(page).st_ino] == pages
    assert (together.nr_ensured, space.nr_faults, space.why_not) == (1, 0, "")
    assert space.multiprocessors > 0


def test_its_workers_see_the_folder_that_it_makes(
    make: MakeSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made at its begin: the end of one of its name takes it away."""
    pipe = tmp_path / "pipe"
    monkeypatch.setattr(Together, "reads", [pipe])
    monkeypatch.setattr(Together, "prepare", lambda _: pipe.mkdir())
    space = make()
    assert opens(space)
    for pool in space.pools:
        assert str(pipe) in [entry.path for entry in pool.start.root.entries()]


def test_a_fault_ends_what_waits_and_makes_all_anew(
    make: MakeSpace,
    together: Together,
    pages: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    space = make()
    assert opens(space)
    before = warm(space)
    probe_now, answers = OwnClient.probe, [ILLEGAL_ADDRESS]
    monkeypatch.setattr(OwnClient, "probe", lambda client: answers.pop() if answers else probe_now(client))
    assert opens(space), "it is in order again"
    assert space.nr_faults == 1
    assert "starts anew: CUDA error 700; MPS does not tell whose fault that was" in caplog.text
    wait_until(lambda: before not in [each.process.pid for each in space.pools[0].warm], "that one goes to no guest")
    assert before not in together.terminated, "MPS gives no answer about clients with a fault"
    assert warm(space) != before
    assert len(pages) == 2, "another page"


@pytest.mark.parametrize(
    ("status", "last_error", "is_looked_at"), [(0, 0, False), (0, 2, False), (-9, 0, True), (0, 700, True)]
)
def test_who_ends_in_disorder_is_reason_to_look(
    make: MakeSpace, monkeypatch: pytest.MonkeyPatch, status: int, last_error: int, is_looked_at: bool
) -> None:
    space = make()
    assert opens(space)
    looks: list[OwnClient] = []

    def look(client: OwnClient) -> int:
        looks.append(client)
        return 0

    monkeypatch.setattr(OwnClient, "probe", look)
    space.ended(status, _Reading(last_error))  # type: ignore[arg-type]
    assert opens(space)
    assert len(looks) == 1 + is_looked_at, "one is that of who waited, which comes after"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> list[str]:
    """That the split word was made zero, and that this was said."""
    clear = OwnClient.clear

    def note(client: OwnClient) -> None:
        clear(client)
        said.append("cleared")

    monkeypatch.setattr(OwnClient, "clear", note)
    return said


@pytest.mark.parametrize(
    ("status", "vgpu", "state", "is_given_back"),
    [
        (-9, ASKS, WorkerState.SERVING, True),
        (-9, ASKS_NOT, WorkerState.SERVING, False),
        (0, ASKS, WorkerState.ENDED, False),
        (-9, ASKS, WorkerState.WARM, False),
    ],
    ids=["killed", "none that asks", "gave it back itself", "had no program"],
)
def test_the_room_of_who_is_killed_is_given_back(
    make: MakeSpace,
    workers: Workers,
    cleared: list[str],
    status: int,
    vgpu: int,
    state: WorkerState,
    is_given_back: bool,
) -> None:
    """Whoever else has a program in the space, as the one that waits for one here."""
    space = make()
    assert opens(space)
    warm(space)
    with workers._lock:
        other = space.pools[0].warm.pop()
    space.ended(status, _Reading(0, vgpu, state))  # type: ignore[arg-type]
    assert opens(space)
    assert cleared == ["cleared", "said"] * is_given_back
    other.stop()


class _Reading:
    def __init__(self, last_error: int, vgpu: int = ASKS_NOT, state: WorkerState = WorkerState.SERVING) -> None:
        self.last_error, self.vgpu, self.state = last_error, vgpu, state


def test_what_cannot_be_together_takes_turns(
    make: MakeSpace, together: Together, caplog: pytest.LogCaptureFixture
) -> None:
    gave_up = threading.Event()
    together.is_there = False
    space = make(gave_up.set)
    assert not opens(space)
    assert gave_up.is_set()
    assert space.why_not == "it says no"
    assert together.nr_ensured == 3, "it was tried again, from the start"
    assert not space.pools[0].claim(), "its clients get plain workers"
    assert "the vGPUs of the space web take turns: it says no" in caplog.text


def test_it_begins_when_one_of_its_name_has_ended(make: MakeSpace, together: Together) -> None:
    before = threading.Event()
    space = make(after=before)
    assert not space.is_open
    assert together.nr_ensured == 0
    before.set()
    assert opens(space)


def test_beside_one_of_its_name_that_does_not_end_its_vgpus_take_turns(
    make: MakeSpace, together: Together, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(space_module, "_BEFORE_S", 0.01)
    before, gave_up = threading.Event(), threading.Event()
    space = make(gave_up.set, after=before)
    try:
        assert not opens(space), "its clients get plain workers"
        assert gave_up.is_set()
        assert together.nr_ensured == 0
        assert "the space web take turns: what ran in a space of this name before does not end" in caplog.text
        space.let_go()
        assert not space.is_over.is_set(), "for who comes after it, the one before is there"
    finally:
        before.set()
    assert space.is_over.wait(30)


def test_it_has_room_for_as_many_as_can_be_together(make: MakeSpace, workers: Workers) -> None:
    space = make()
    assert opens(space)
    warm(space)
    space.check_room()
    with workers._lock:
        taken = [space.pools[0].warm.pop()]
        taken.append(workers._spawn(space.pools[0]))
    with pytest.raises(ControlPageFullError, match="the space web has 2 programs, and MPS serves 3 clients"):
        space.check_room()
    for worker in taken:
        worker.stop()


def test_a_worker_is_told_to_end_before_it_is_killed(make: MakeSpace, together: Together) -> None:
    space = make()
    assert opens(space)
    pid = warm(space)
    worker = space.pools[0].warm[0]
    worker.stop()
    worker.stop()
    assert worker.is_ended.wait(30)
    assert together.terminated == [pid], "once"


def test_the_page_of_a_daemon_before_is_kept(make: MakeSpace, pages: list[int], cleared: list[str]) -> None:
    """Who asked for room there may have died since."""
    first = make()
    assert opens(first)
    with first.page() as page:
        kept = os.dup(page)
    assert cleared == []
    second = make(page=kept)
    assert opens(second)
    assert opens(second), "it has seen to all that was to do at its begin"
    assert cleared == ["cleared", "said"]
    with second.page() as page:
        assert os.fstat(page).st_ino == pages[0]
    assert len(pages) == 1


def test_its_end_leaves_nothing(make: MakeSpace, together: Together, workers: Workers) -> None:
    space = make()
    assert opens(space)
    warm(space)
    assert space._client is not None
    pid = space._client.pid
    space.let_go()
    workers.set_pool(0, None)
    space.stop()
    assert workers.nr_of(space.pools) == 0
    assert not Path(f"/proc/{pid}").exists()
    assert together.nr_quit == 1
    assert together.terminated == [], "no neighbour is left for whom that would be"


def test_nothing_is_told_to_quit_while_it_is_asked(
    make: MakeSpace, together: Together, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that ends by itself after all, as the space ends."""
    caplog.set_level(logging.INFO, "fairgv.space")
    space = make()
    assert opens(space)
    pid = warm(space)
    together.answer_s = 1.0
    workers.set_pool(0, None)
    assert together.is_asked.wait(30)
    os.kill(pid, signal.SIGKILL)
    space.stop()
    assert (together.terminated, together.nr_quit) == ([pid], 1)
    assert "answers nobody" not in caplog.text
    assert not space._asked_about


def test_workers_that_wait_leave_room_for_programs(
    make: MakeSpace, together: Together, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are MPS's clients, too: as many programs come as may, of whichever kind, and there are never more clients than it serves."""
    together.most = 4
    space = make()
    workers.set_pool(1, space.pools[1])
    spawn, most = workers._spawn, [0]

    def note(pool: Pool) -> WorkerProcess:
        worker = spawn(pool)
        most[0] = max(most[0], sum(each in space.pools for each in workers._all.values()))
        return worker

    monkeypatch.setattr(workers, "_spawn", note)
    assert opens(space)
    wait_until(lambda: all(len(pool.warm) == 1 for pool in space.pools), "one of each kind waits")
    taken: list[WorkerProcess] = []
    for _ in range(3):
        assert opens(space)
        pool = space.pools[0]
        assert pool.claim()
        with workers._lock:
            taken.append(pool.warm.pop() if pool.warm else workers._spawn(pool))
        workers._wake()
    with pytest.raises(ControlPageFullError, match="the space web has 3 programs"):
        space.check_room()
    assert most[0] + 1 <= together.most
    for worker in taken:
        worker.stop()
    wait_until(lambda: all(len(pool.warm) == 1 for pool in space.pools), "then one of each kind waits again")


def test_who_asks_of_a_space_that_ends_is_told(make: MakeSpace) -> None:
    space = make()
    assert opens(space)
    space.let_go()
    assert space.ask(lambda: None).wait(60)
    assert space.is_over.wait(60)
    assert space.ask(lambda: None).is_set()
    assert not space.is_open


def test_who_asks_is_told_though_another_is_gone(make: MakeSpace) -> None:
    def fail() -> None:
        raise ValueError("its region is gone")

    space, is_told = make(), threading.Event()
    assert space.ask(fail).wait(60)
    space.ask(is_told.set)
    assert is_told.wait(60)
