"""Who is asleep, when, and what is told of it: with real workers, and a driver that does what the test says."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend_host import suspension
from backend_host.config import Config
from backend_host.contexts import OFF, ON, Contexts
from backend_host.device.readings import Sleep, Stage, WorkerReading
from backend_host.devices import Device, probe
from backend_host.errors import RefusedError
from backend_host.move.driver_process import CheckpointError
from backend_host.oversubscription import Capacity
from backend_host.sleep import sleepers
from backend_host.sleep.errand import Errand, Laid, Woken
from backend_host.sleep.sleepers import Sleepers
from backend_host.suspension import Suspended, programs, resume, suspend
from backend_host.vgpu import VGpu
from backend_host.worker_process import WorkerProcess
from tests.backend_host.move.travel import Travel, reading, travelling
from tests.backend_host.move.waiting import is_dead, kill
from tests.backend_host.swapping import filled, numbered, words
from tests.backend_host.test_sleep import VARIABLE
from tests.backend_host.worker_guest import kernel_image
from tests.end_to_end.host import wait_until

NOBODY: frozenset[int] = frozenset()
NR_LOOKS = 5
CONFIG = Config(swap_bytes=1 << 30)


class Host:
    """What is asked of the driver, and what it says."""

    def __init__(self, travel: Travel) -> None:
        self.travel = travel
        self.config = CONFIG
        self.fixed_bytes = 0
        """What the driver was told that it has to move."""
        self.asked: list[str] = []
        self.lay: Callable[[Sequence[int]], Laid] = lambda pids: Laid(dict.fromkeys(pids, 0), {}, {})
        self.wake: Callable[[Sequence[int]], Woken] = lambda pids: Woken(frozenset(pids), {}, {})
        self.why_not: str | None = ""
        """None: there is no process that does it."""
        self.sleepers = Sleepers(travel.registry, lambda: self.config, errand_of=self._errand, trial_of=self._trial)
        self.sleepers.start()

    def _errand(self, library: str) -> Errand:
        if self.why_not is None:
            raise CheckpointError("there is no process")
        return Played(self)

    def _trial(self, gpu: object) -> str:
        self.asked.append("trial")
        return self.why_not or ""

    def suspended(self, vgpu: VGpu) -> None:
        """From now on."""
        suspend(self.travel.registry, vgpu.name, self.config)
        self.sleepers.look(vgpu)

    def asleep(self, vgpu: VGpu) -> None:
        """All of it."""
        self.suspended(vgpu)
        wait_until(lambda: all(each.contexts == Contexts(OFF) for each in self.told(vgpu)), "it is asleep")

    def resumed(self, vgpu: VGpu) -> None:
        resume(self.travel.registry, vgpu.name)
        self.sleepers.look(vgpu)

    def told(self, vgpu: VGpu) -> list[Suspended]:
        return programs(self.travel.registry, vgpu.name, self.sleepers.told)

    def kept(self, vgpu: VGpu) -> str:
        """Why its contexts stay on the device, once that is known."""
        wait_until(lambda: bool(vgpu.why_awake), "it is told")
        assert {each.contexts for each in self.told(vgpu)} == {Contexts(ON, why=vgpu.why_awake)}
        assert {reading(vgpu, number).sleep for number in range(len(self.told(vgpu)))} == {Sleep.NONE}
        return vgpu.why_awake

    def looks(self) -> None:
        """A few times more."""
        for _ in range(NR_LOOKS):
            self.sleepers._look()
            wait_until(lambda: not self.sleepers._busy, "nobody is at it")


class Played(Errand):
    def __init__(self, host: Host) -> None:
        self._host = host

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self) -> None:
        pass

    def lay(self, pids: Sequence[int], device: str, context_bytes: int, fixed_bytes: int = 0) -> Laid:
        self._host.asked.append("lay")
        self._host.fixed_bytes = fixed_bytes
        return self._host.lay(pids)

    def wake(self, wanted: Mapping[int, int], device: str, context_bytes: int) -> Woken:
        self._host.asked.append("wake")
        return self._host.wake(list(wanted))


@pytest.fixture(scope="module")
def one_device() -> list[Device]:
    return probe("soft", Config().softgpu_library)


@pytest.fixture
def host(one_device: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    monkeypatch.setattr(sleepers, "_AGAIN_S", 0.01)
    with travelling(one_device, tmp_path) as travel:
        host = Host(travel)
        try:
            yield host
        finally:
            host.sleepers.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sleep")]


def test_who_is_suspended_is_at_one_place(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that changes it meanwhile, or another vGPU of its number, has nothing of it."""
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    told: list[tuple[bool, bool]] = []
    is_held = host.travel.registry._lock.locked
    monkeypatch.setattr(vgpu.gpu.page, "set_suspended", lambda _, is_suspended: told.append((is_suspended, is_held())))
    suspend(host.travel.registry, "web", CONFIG)
    resume(host.travel.registry, "web")
    assert told == [(True, True), (False, True)]
    idle = suspension._idle

    def another(vgpu: VGpu) -> Sequence[WorkerReading]:
        readings = idle(vgpu)
        host.travel.remove("web")
        assert host.travel.opened().index == vgpu.index
        return readings

    monkeypatch.setattr(suspension, "_idle", another)
    with pytest.raises(RefusedError, match=r"^the vGPU web has gone$"):
        suspend(host.travel.registry, "web", CONFIG)
    assert len(told) == 2


def test_the_host_has_room_for_no_more_than_a_device_has(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a worker says, where its device is short of memory."""
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    allowed: list[int] = []
    monkeypatch.setattr(vgpu.gpu.workers, "allow_memory", lambda _, more_bytes: allowed.append(more_bytes))
    monkeypatch.setattr(vgpu.gpu, "capacity", Capacity(resident=1, allocatable=2))
    [worker] = vgpu.caretaker.workers()
    said = worker.reading
    monkeypatch.setattr(worker, "reading", lambda: (now := said()) and replace(now, linear_bytes=1 << 60))
    host.asleep(vgpu)
    assert allowed == [vgpu.region.region_bytes + vgpu.gpu.device.memory_bytes]


def test_it_is_asleep_until_it_calls(host: Host) -> None:
    vgpu = host.travel.opened()
    guest = host.travel.program(vgpu)
    addresses = filled(guest, 2)
    for _ in range(2):
        host.asleep(vgpu)
        [told] = host.travel.registry.statistics()
        assert (told.nr_asleep, told.is_suspended, told.why_awake) == (1, True, "")
        assert words(guest, addresses) == numbered(2)
        wait_until(lambda: reading(vgpu).stage is Stage.RUNS, "it runs")
        assert [each.contexts for each in host.told(vgpu)] == [Contexts(ON)]
    assert host.asked == ["trial", "lay", "wake", "lay", "wake"]


def test_it_is_brought_back_ahead_of_its_call(host: Host) -> None:
    vgpu = host.travel.opened()
    addresses = filled(guest := host.travel.program(vgpu), 2)
    host.asleep(vgpu)
    host.resumed(vgpu)
    wait_until(lambda: [each.contexts for each in host.told(vgpu)] == [Contexts(ON)], "it is awake")
    assert words(guest, addresses) == numbered(2)
    assert host.asked.count("wake") == 1


def test_one_that_calls_all_the_time_costs_one_errand_at_most(host: Host) -> None:
    vgpu = host.travel.opened()
    addresses = filled(guest := host.travel.program(vgpu), 1)
    for _ in range(3):
        host.asked.clear()
        host.suspended(vgpu)
        for _ in range(200):
            guest.ok("cuCtxSynchronize")
        host.looks()
        assert host.asked.count("lay") <= 1
        assert host.asked.count("wake") <= 1
        assert words(guest, addresses) == numbered(1)


def test_one_that_says_again_that_it_is_idle_is_not_believed(host: Host) -> None:
    """A worker that was taken over, that is: to its daemon it looks as one of a vGPU that nobody suspended again."""
    vgpu = host.travel.opened()
    addresses = filled(guest := host.travel.program(vgpu), 1)
    host.asleep(vgpu)
    assert words(guest, addresses) == numbered(1)
    for _ in range(3):
        vgpu.gpu.page.set_suspended(vgpu.index, is_suspended=True)
        wait_until(lambda: reading(vgpu).resident_bytes == 0, "its memory has left")
        host.looks()
    assert host.asked == ["trial", "lay", "wake"]
    host.asleep(vgpu)


@pytest.mark.parametrize("step", ["lock", "checkpoint"])
def test_a_driver_that_refuses_is_told_and_asked_again_with_the_next_suspension(host: Host, step: str) -> None:
    vgpu = host.travel.opened()
    addresses = filled(guest := host.travel.program(vgpu), 2)
    host.lay = lambda pids: Laid({}, {pid: f"{step} of worker {pid} gives CUDA error 801" for pid in pids}, {})
    host.suspended(vgpu)
    assert host.kept(vgpu).startswith(f"cuCheckpointProcess{step.capitalize()} gives CUDA_ERROR_NOT_SUPPORTED")
    assert reading(vgpu).resident_bytes == 0, "it is suspended as before"
    assert host.travel.registry.statistics()[0].why_awake == vgpu.why_awake
    host.looks()
    assert host.asked == ["trial", "lay"]
    assert words(guest, addresses) == numbered(2)
    assert host.travel.registry.statistics()[0].why_awake == ""
    host.suspended(vgpu)
    host.kept(vgpu)
    assert host.asked == ["trial", "lay", "lay"]


def test_where_a_trial_fails_nothing_is_tried(host: Host) -> None:
    vgpu = host.travel.opened()
    filled(host.travel.program(vgpu), 1)
    host.why_not = "the driver has no checkpoints"
    host.suspended(vgpu)
    assert host.kept(vgpu) == "the driver has no checkpoints"
    host.looks()
    assert host.asked == ["trial"]


def test_where_there_is_no_process_it_is_told(host: Host) -> None:
    vgpu = host.travel.opened()
    filled(host.travel.program(vgpu), 1)
    host.why_not = None
    host.suspended(vgpu)
    assert host.kept(vgpu) == "there is no process"


class Together:
    """What ends workers that share something."""

    def end(self, worker: WorkerProcess) -> None:
        worker.kill()


def test_clients_of_one_server_keep_their_contexts(host: Host) -> None:
    vgpu = host.travel.opened()
    filled(host.travel.program(vgpu), 1)
    vgpu.caretaker.workers()[0].shared = Together()
    host.suspended(vgpu)
    assert host.kept(vgpu) == "its programs are clients of one server of the driver's (MPS)"
    assert host.asked == []


def test_contexts_count_against_what_is_set_aside_of_the_hosts_memory(host: Host) -> None:
    vgpu = host.travel.opened()
    guest = host.travel.program(vgpu)
    filled(guest, 2)
    assert guest.load(kernel_image(VARIABLE)).result == 0
    left = 1 << 19
    host.config = replace(CONFIG, swap_bytes=reading(vgpu).linear_bytes + left)
    host.suspended(vgpu)
    assert re.match(
        r"they take 1(\.\d+)? MiB, and of the host's 512 KiB are left for them: raise swap_bytes$", host.kept(vgpu)
    )
    assert host.asked == ["trial"]
    host.config = CONFIG
    host.asleep(vgpu)
    assert host.fixed_bytes == reading(vgpu).fixed_bytes


def test_where_nobody_knows_what_came_it_is_brought_back(host: Host) -> None:
    vgpu = host.travel.opened()
    addresses = filled(guest := host.travel.program(vgpu), 2)
    host.lay = lambda pids: Laid({}, {}, {})
    host.suspended(vgpu)
    assert "came to no end" in host.kept(vgpu)
    assert host.asked == ["trial", "lay", "wake"]
    assert words(guest, addresses) == numbered(2)


def test_one_that_nobody_can_bring_back_ends_alone(host: Host) -> None:
    vgpu = host.travel.opened()
    first, second = host.travel.program(vgpu), host.travel.program(vgpu, 1)
    host.asleep(vgpu)
    [lost] = [worker for worker in vgpu.caretaker.workers() if worker.record is not None and worker.record.client == 0]
    host.wake = lambda pids: Woken(frozenset(pids) - {lost.process.pid}, {lost.process.pid: "its restore"}, {})
    host.resumed(vgpu)
    assert is_dead(first)
    second.ok("cuCtxSynchronize")
    [told] = host.travel.registry.statistics()
    assert (len(told.clients), told.nr_worker_deaths) == (1, 1)


def test_one_that_has_no_room_waits_and_says_so(host: Host) -> None:
    vgpu, other = host.travel.opened(), host.travel.opened("db")
    guest, neighbour = host.travel.program(vgpu), host.travel.program(other)
    host.asleep(vgpu)
    host.wake = lambda _: Woken(NOBODY, {}, {})
    slot = guest.begin("cuCtxSynchronize")
    wait_until(lambda: bool(vgpu.why_asleep), "it waits")
    assert vgpu.why_asleep == "GPU 0 has no room for the 0 B that its contexts take"
    assert [each.contexts for each in host.told(vgpu)] == [Contexts(OFF, is_moving=True, why=vgpu.why_asleep)]
    neighbour.ok("cuCtxSynchronize")
    assert not guest.is_answered(slot)
    host.wake = lambda pids: Woken(frozenset(pids), {}, {})
    assert guest.finish("cuCtxSynchronize", slot).result == 0
    wait_until(lambda: not vgpu.why_asleep, "it waits no more")


def test_one_that_waits_can_be_suspended_again(host: Host) -> None:
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    host.asleep(vgpu)
    host.wake = lambda _: Woken(NOBODY, {}, {})
    host.resumed(vgpu)
    wait_until(lambda: bool(vgpu.why_asleep), "it waits")
    host.asleep(vgpu)
    host.looks()
    assert (vgpu.why_asleep, reading(vgpu).sleep) == ("", Sleep.ASLEEP)


@pytest.mark.parametrize("step", ["lay", "wake"])
def test_its_worker_may_die_at_any_step(host: Host, step: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of which those tell that look after workers: here nobody ends it, and nothing of it stays on a device."""
    vgpu, other = host.travel.opened(), host.travel.opened("db")
    guest, neighbour = host.travel.program(vgpu), host.travel.program(other)
    [worker] = vgpu.caretaker.workers()

    def dies(_: Sequence[int]) -> None:
        kill(worker)
        wait_until(worker.is_ended.is_set, "it has ended")

    def lay(pids: Sequence[int]) -> Laid:
        dies(pids)
        return Laid({}, {}, {})

    def wake(pids: Sequence[int]) -> Woken:
        dies(pids)
        return Woken(NOBODY, dict.fromkeys(pids, "its restore gives CUDA error 304"), {})

    if step == "lay":
        host.lay = lay
        host.suspended(vgpu)
    else:
        host.asleep(vgpu)
        host.wake = wake
        host.resumed(vgpu)
    assert is_dead(guest)
    wait_until(lambda: not host.sleepers._busy, "nobody is at it")
    neighbour.ok("cuCtxSynchronize")
    assert host.told(vgpu) == []
    said = [each.getMessage() for each in caplog.records if each.name == "fairgv.sleep" and each.levelname != "INFO"]
    assert (said, vgpu.why_awake) == ([], "")


def test_a_vgpu_may_go_asleep(host: Host) -> None:
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    host.asleep(vgpu)
    host.travel.remove("web")
    host.travel.check_nothing_left({}, {})


def test_a_move_finds_it_awake_and_leaves_it_to_sleep(host: Host) -> None:
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    host.asleep(vgpu)
    with host.sleepers.awake(vgpu):
        assert (reading(vgpu).sleep, reading(vgpu).is_suspended) == (Sleep.NONE, True)
        host.looks()
        assert reading(vgpu).sleep is Sleep.NONE
    wait_until(lambda: reading(vgpu).sleep is Sleep.ASLEEP, "it sleeps again")


def test_a_move_is_refused_where_it_has_no_room_to_be_awake(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleepers, "AWAKE_S", 0.05)
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    host.asleep(vgpu)
    host.wake = lambda _: Woken(NOBODY, {}, {})
    with (
        pytest.raises(RefusedError, match="contexts of web, which is suspended, are off GPU 0"),
        host.sleepers.awake(vgpu),
    ):
        pass
    assert reading(vgpu).sleep is Sleep.ASLEEP


def test_the_next_daemon_finishes_what_this_one_began(host: Host) -> None:
    """One that stands, of which the page does not say that it is asleep, is brought back, and laid again."""
    vgpu = host.travel.opened()
    host.travel.program(vgpu)
    host.asleep(vgpu)
    host.sleepers.stop()
    vgpu.gpu.page.set_sleep(vgpu.caretaker.workers()[0].slot, Sleep.STAND)
    host.asked.clear()
    host.sleepers = Sleepers(host.travel.registry, lambda: CONFIG, errand_of=host._errand, trial_of=host._trial)
    host.sleepers.start()
    wait_until(lambda: reading(vgpu).sleep is Sleep.ASLEEP, "it is asleep")
    assert host.asked == ["wake", "trial", "lay"]
