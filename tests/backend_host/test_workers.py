"""The daemon's workers: real processes, on softgpu or on a device library that is not there."""

import dataclasses
import itertools
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host.channels import LIBRARY
from backend_host.config import PACKAGE_ROOT, Config
from backend_host.device.control import MAX_WORKERS, ControlPage, ControlPageFullError
from backend_host.devices import Device, probe
from backend_host.errors import WorkerFailedError
from backend_host.pools import Pool
from backend_host.walls import cgroups
from backend_host.walls.cgroups import Groups
from backend_host.worker_process import WorkerProcess
from backend_host.worker_start import WorkerStart, worker_start
from backend_host.workers import (
    MAX_FAILURES,
    Assignment,
    Workers,
    preemption_environment,
)
from tests.backend_host.worker_harness import WALLS, tenant_of, walls_here
from tests.end_to_end.host import wait_until

MakeWorkers = Callable[..., Workers]
numbers = itertools.count(2000)
MISSING = "/nowhere/libcuda.so.1"
EXIT_NO_LIBRARY = 3


@pytest.fixture(scope="module")
def softgpu() -> Device:
    return probe("soft", Config().softgpu_library)[0]


@pytest.fixture
def make_workers(control: ControlPage, softgpu: Device) -> Iterator[MakeWorkers]:
    made: list[Workers] = []

    def make(library: str = Config().softgpu_library, nr_warm: int = 0) -> Workers:
        device = dataclasses.replace(softgpu, path=library)
        config = Config(walls=WALLS)
        start = worker_start(device, config, walls_here(), Groups(cgroups.find(), next(numbers)))
        made.append(Workers(control, start, nr_warm))
        made[-1].start()
        return made[-1]

    yield make
    for workers in made:
        workers.stop()
    assert control.workers() == [], "every slot was given back"


@pytest.fixture
def region_fd() -> Iterator[int]:
    fd = os.memfd_create("region")
    yield fd
    os.close(fd)


def assignment(region_fd: int) -> Assignment:
    """Of a region that is none: the worker refuses it and ends."""
    return Assignment(region_bytes=16 << 20, table_hash=1, client=0, vgpu=0, region_fd=region_fd, tenant=tenant_of(0))


class End:
    """Remembers how a worker ended."""

    def __init__(self) -> None:
        self.status: int | None = None
        self._happened = threading.Event()

    def __call__(self, worker: WorkerProcess, status: int) -> None:
        self.status = status
        self._happened.set()

    def wait(self) -> int | None:
        assert self._happened.wait(60)
        return self.status


def wait_for_lines(caplog: pytest.LogCaptureFixture, text: str, nr: int) -> None:
    for _ in range(6000):
        if caplog.text.count(text) >= nr:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"the log never said {nr} times {text!r}:\n{caplog.text}")


def warm_worker(workers: Workers) -> WorkerProcess:
    """The only one, once it was started."""
    while True:
        with workers._lock:
            if workers._plain.warm:
                return workers._plain.warm[0]
        threading.Event().wait(0.001)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_workers_that_cannot_start_are_not_started_for_ever(
    make_workers: MakeWorkers, region_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    workers = make_workers(MISSING, nr_warm=1)
    wait_for_lines(caplog, "none is kept ready any more", 1)
    assert not workers.is_ready
    assert caplog.text.count("before it had a client") == MAX_FAILURES
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() == EXIT_NO_LIBRARY, "each client gets an attempt of its own"
    workers.stop()
    assert caplog.text.count("before it had a client") == MAX_FAILURES


def test_a_warm_worker_that_died_is_replaced(
    make_workers: MakeWorkers, region_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    workers = make_workers(nr_warm=1)
    warm = warm_worker(workers)
    os.kill(warm.process.pid, signal.SIGKILL)
    wait_for_lines(caplog, "before it had a client", 1)
    assert workers.is_ready, "one is no reason to doubt the device"
    end = End()
    assert workers.assign(assignment(region_fd), end) is not warm
    assert end.wait() is not None


def test_a_device_that_rests_has_no_warm_worker(
    make_workers: MakeWorkers, control: ControlPage, region_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    workers = make_workers(nr_warm=1)
    warm = warm_worker(workers)
    workers.rest(is_resting=True)
    assert warm.is_ended.wait(60)
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() is not None, "a client gets one of its own"
    wait_until(lambda: control.workers() == [], "none is left")
    workers.rest(is_resting=False)
    assert warm_worker(workers) is not warm
    assert "before it had a client" not in caplog.text, "that nobody doubts the device for"


def test_a_client_is_not_given_to_a_dead_worker(make_workers: MakeWorkers, region_fd: int) -> None:
    workers = make_workers(nr_warm=1)
    warm = warm_worker(workers)
    with workers._lock:  # the reaper cannot take it off the list yet
        os.kill(warm.process.pid, signal.SIGKILL)
        select.select([warm.process.pidfd], [], [])
    end = End()
    assert workers.assign(assignment(region_fd), end) is not warm
    assert end.wait() is not None


def test_a_worker_that_ended_before_it_was_told_is_told_of_like_any(
    make_workers: MakeWorkers, control: ControlPage, region_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been reaped by then, and its slot be somebody else's."""
    tell = Workers._tell

    def tell_late(workers: Workers, worker: WorkerProcess, assigned: Assignment, pool: Pool) -> bool:
        assert worker.is_ended.wait(60)
        return tell(workers, worker, assigned, pool)

    monkeypatch.setattr(Workers, "_tell", tell_late)
    end = End()
    worker = make_workers(MISSING).assign(assignment(region_fd), end)
    assert worker.is_ended.is_set()
    assert end.wait() == EXIT_NO_LIBRARY
    assert control.workers() == []


def test_a_refused_client_ends_its_worker(make_workers: MakeWorkers, region_fd: int) -> None:
    end = End()
    worker = make_workers().assign(assignment(region_fd), end)
    assert end.wait() is not None
    assert worker.is_ended.wait(10)
    worker.stop()
    assert worker.process.pidfd == -1


def test_a_worker_is_in_a_session_of_its_own(make_workers: MakeWorkers) -> None:
    workers = make_workers(nr_warm=1)
    warm = warm_worker(workers)
    assert os.getsid(warm.process.pid) == warm.process.pid, "Ctrl-C at the daemon's terminal is not for it"


@pytest.mark.parametrize("call", ["workers.socket.socketpair", "worker_start.Walls.start"])
def test_a_start_that_fails_leaves_nothing(
    make_workers: MakeWorkers, control: ControlPage, region_fd: int, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(24, "too many open files")

    workers = make_workers()
    before, nr_fds = children(), len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(f"backend_host.{call}", fail)
    with pytest.raises(OSError, match="too many"):
        workers.assign(assignment(region_fd), End())
    monkeypatch.undo()
    assert control.workers() == []
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == nr_fds


def test_a_reaper_that_cannot_start_workers_goes_on(
    make_workers: MakeWorkers, region_fd: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(11, "no processes")

    monkeypatch.setattr("backend_host.worker_start.Walls.start", fail)
    workers = make_workers(nr_warm=1)
    wait_for_lines(caplog, "cannot start a worker", 1)
    monkeypatch.undo()
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() is not None


def test_full_slots_are_an_error_of_one_client(make_workers: MakeWorkers, control: ControlPage, region_fd: int) -> None:
    taken = [control.worker_take() for _ in range(MAX_WORKERS)]
    workers = make_workers(nr_warm=1)
    with pytest.raises(ControlPageFullError):
        workers.assign(assignment(region_fd), End())
    for slot in taken:
        control.worker_free(slot)
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() is not None


def test_what_follows_an_end_cannot_stop_the_reaper(
    make_workers: MakeWorkers, region_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(worker: WorkerProcess, status: int) -> None:
        raise ZeroDivisionError

    workers = make_workers(MISSING)
    assert workers.assign(assignment(region_fd), fail).is_ended.wait(60)
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() == EXIT_NO_LIBRARY


def test_a_mistake_at_an_end_costs_no_other_worker(
    make_workers: MakeWorkers, region_fd: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError(0)

    workers = make_workers(MISSING)
    with monkeypatch.context() as patch:
        patch.setattr(WorkerStart, "leave", fail)
        assert workers.assign(assignment(region_fd), End()).is_ended.wait(60)
    assert "taking back what worker" in caplog.text
    end = End()
    workers.assign(assignment(region_fd), end)
    assert end.wait() == EXIT_NO_LIBRARY


def test_workers_that_were_stopped_start_nothing(make_workers: MakeWorkers, region_fd: int) -> None:
    workers = make_workers()
    workers.stop()
    with pytest.raises(WorkerFailedError, match="stopping"):
        workers.assign(assignment(region_fd), End())


def test_what_takes_work_off_a_gpu_is_loaded_before_libc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = tmp_path / "channels.so"
    assert preemption_environment(Config(), library) == {}
    assert f"{library} is missing" in caplog.text
    library.touch()
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert preemption_environment(Config(), library) == {"LD_PRELOAD": str(library)}
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    assert preemption_environment(Config(), library) == {"LD_PRELOAD": f"{library}:other.so"}
    assert preemption_environment(Config(preemption="driver"), library) == {}


def test_it_is_there_and_stands_before_libcs_ioctl() -> None:
    symbols = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines() if " T " in line}
    assert {"ioctl", "fgv_channels_set_off"} <= names


def test_the_package_is_found() -> None:
    assert (PACKAGE_ROOT / "backend_host" / "worker" / "main.py").exists()


def test_the_last_places_are_kept_for_vgpus_that_have_none(
    make_workers: MakeWorkers, control: ControlPage, region_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four VMs with 64 programs each left a fifth nothing."""
    monkeypatch.setattr("backend_host.workers.MAX_WORKERS", 3)
    monkeypatch.setattr("backend_host.workers.MAX_VGPUS", 2)
    library = tmp_path / "libcuda.so.1"
    os.mkfifo(library)  # which nobody writes: a worker that opens it waits
    workers = make_workers(str(library))
    greedy, late = control.vgpu_take(), control.vgpu_take()

    def assign(vgpu: int) -> None:
        workers.assign(dataclasses.replace(assignment(region_fd), vgpu=vgpu), End())

    assign(greedy)
    assign(greedy)
    with pytest.raises(ControlPageFullError, match="the last places for workers are kept"):
        assign(greedy)
    assign(late)
    with pytest.raises(ControlPageFullError):
        assign(late)
