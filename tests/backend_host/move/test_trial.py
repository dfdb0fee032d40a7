"""Whether the mover is there: found out by a throw-away process, for hosts on which something can move."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend_host import tables
from backend_host.device.gpu import Gpu
from backend_host.device.mover import MoverKnown
from backend_host.devices import Device
from backend_host.move import looking
from backend_host.move.plan import NoPlanError
from backend_host.move.trial import Trial, Trials, plainly
from backend_host.walls.root import Root
from backend_host.walls.settings import PLAIN
from backend_host.walls.start import Walls
from backend_host.worker_start import WorkerStart
from tests.backend_host.move.conftest import MovingHost
from tests.backend_host.move.test_plan import program
from tests.backend_host.test_tables import rendered
from tests.backend_host.told import status_of

UNSUPPORTED = "cuCheckpointProcessLock gives CUDA_ERROR_NOT_SUPPORTED"


def trial(device: Device, library: str | None = None) -> Trial:
    environment = dict(os.environ)
    start = WorkerStart(
        *(library or device.path, device.ordinal, "soft", Walls(frozenset(), PLAIN, 0), Root()), environment, None, None
    )
    return Trial(start, device.uuid)


def test_a_cycle_on_each_device(devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", str(len(devices)))
    assert [trial(device).run() for device in devices] == [""] * len(devices)


def test_a_library_that_is_not_there(devices: list[Device]) -> None:
    assert "/nowhere/libcuda.so.1" in trial(devices[0], "/nowhere/libcuda.so.1").run()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", ""),
        ("lock of worker 17 gives CUDA error 801", UNSUPPORTED),
        ("restore of worker 17 gives CUDA error 2", "cuCheckpointProcessRestore gives CUDA_ERROR_OUT_OF_MEMORY"),
        ("checkpoint of worker 1 gives CUDA error 999", "cuCheckpointProcessCheckpoint gives CUDA error 999"),
        (
            "the process that changes devices came to no end within 60 s",
            "the process that changes devices came to no end within 60 s",
        ),
    ],
)
def test_errors_by_their_names(reason: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert plainly(reason) == said


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert plainly("lock of worker 17 gives CUDA error 304") == (
        "cuCheckpointProcessLock gives CUDA_ERROR_OPERATING_SYSTEM, and the daemon is not root's"
    )
    assert plainly("") == ""


def test_one_that_hangs_ends_with_the_daemon(
    devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    script = tmp_path / "holder.py"
    script.write_text(f"import time; open({str(began)!r}, 'w').close(); time.sleep(600)")
    monkeypatch.setattr("backend_host.move.trial.HOLDER", (str(script),))
    tried, said = trial(devices[0]), list[str]()
    thread = threading.Thread(target=lambda: said.append(tried.run()))
    thread.start()
    began.read_text()  # until it has begun
    tried.stop()
    thread.join(30)
    assert said == ["a trial got no context: its process ended"]


class PlayedTrial:
    """Finds what the test says."""

    said = ""
    tried: list[str]

    def __init__(self, start: WorkerStart, uuid: str) -> None:
        self._uuid = uuid

    def run(self) -> str:
        self.tried.append(self._uuid)
        return self.said

    def stop(self) -> None:
        """It takes no time."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[PlayedTrial]:
    PlayedTrial.tried = []
    monkeypatch.setattr("backend_host.move.trial.Trial", PlayedTrial)
    return PlayedTrial


def test_each_gpu_knows_what_was_found(gpus: list[Gpu], played: type[PlayedTrial]) -> None:
    assert [gpu.statistics({}, (), {}, 0).has_mover for gpu in gpus] == [None] * len(gpus)
    trials = Trials(gpus)
    trials.start()
    assert [gpu.mover.wait(30) for gpu in gpus] == [""] * len(gpus)
    trials.stop()
    assert played.tried == [gpu.device.uuid for gpu in gpus]
    assert [gpu.statistics({}, (), {}, 0).has_mover for gpu in gpus] == [True] * len(gpus)


def test_one_gpu_alone_is_not_tried(gpus: list[Gpu], played: type[PlayedTrial]) -> None:
    trials = Trials(gpus[:1])
    trials.start()
    trials.stop()
    assert played.tried == []
    assert gpus[0].mover.why_not is None


def test_why_it_is_not_there_is_shown(host: MovingHost) -> None:
    for gpu in host.gpus:
        gpu.mover.set(UNSUPPORTED)
    [told, *_], _ = host.vgpus.snapshot()
    assert (told.has_mover, told.why_no_mover) == (False, UNSUPPORTED)
    shown = shown_of(has_mover=False, why_no_mover=UNSUPPORTED)
    assert f"GPU 0: programs cannot move to another Gpu: {UNSUPPORTED}" in shown


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"has_mover": True, "has_fast_moves": True}, "replay, checkpoint"),
        ({"has_mover": False, "has_fast_moves": True}, "replay"),
        ({"has_mover": True, "has_fast_moves": False}, "checkpoint"),
        ({"has_mover": False, "has_fast_moves": False}, "no"),
        ({"has_mover": None, "has_fast_moves": False}, "-"),
    ],
)
def test_how_programs_move_is_shown(told: dict[str, bool | None], said: str) -> None:
    assert tables._moves(told) == said


def test_checkpoints_that_are_not_there_are_told_beside_replay() -> None:
    shown = shown_of(has_mover=False, has_fast_moves=True, why_no_mover=UNSUPPORTED)
    assert f"GPU 0: programs cannot move by checkpoint to another Gpu: {UNSUPPORTED}" in shown


def shown_of(**told: object) -> str:
    """Of one Gpu, in the long table and below it."""
    [gpu] = status_of()["gpus"]
    return " ".join(rendered(tables.gpus([gpu | told], is_long=True)).split())


def test_a_vgpu_without_programs_needs_none(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_KNOWN_S", 0.0)
    host.opened("web")
    assert host.moves.plan("web", "1").nr_programs == 0
    host.gpus[0].mover.set(UNSUPPORTED)
    assert host.moves.plan("web", "1").nr_programs == 0


def test_a_vgpu_that_is_there_waits_for_no_trial(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with one Gpu tries none."""

    def wait(timeout_s: float) -> None:
        pytest.fail("waits for a trial")

    monkeypatch.setattr(looking, "_serving", lambda vgpu: [(SimpleNamespace(ordinal_of=lambda uuid: 0), program())])
    for gpu in host.gpus:
        monkeypatch.setattr(gpu.mover, "wait", wait)
    host.opened("web")
    with pytest.raises(NoPlanError, match=r"^web cannot move to GPU 0: it is there already$"):
        host.moves.plan("web", "0")


def test_gpus_that_hang_are_given_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan asks two of them, and a drain plans for every vGPU and Gpu."""
    now_s = [100.0]

    def hang(limit_s: float) -> None:
        now_s[0] += limit_s

    known = [MoverKnown(lambda: now_s[0]) for _ in range(3)]
    now_s[0] = 110.0
    for each in known:
        monkeypatch.setattr(each._is_known, "wait", hang)
    assert [each.wait(30.0) for each in (*known, *known)] == [None] * 6
    assert now_s[0] == 130.0, "so long after their daemon's start, and not for each of them"
    known[0].set("")
    assert known[0].wait(30.0) == ""


def test_a_vgpu_with_programs_needs_it_on_both(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_KNOWN_S", 0.0)
    monkeypatch.setattr(looking, "_serving", lambda vgpu: [(SimpleNamespace(ordinal_of=lambda uuid: None), program())])
    host.opened("web")
    host.gpus[0].mover.set("")
    host.gpus[1].mover.set(UNSUPPORTED)
    with pytest.raises(NoPlanError, match=f"programs of GPU 1 cannot move: {UNSUPPORTED}$"):
        host.moves.plan("web", "1")
    with pytest.raises(NoPlanError, match=r"is still being tried on GPU 2: ask again in a minute$"):
        host.moves.plan("web", "2")
    host.gpus[2].mover.set("")
    assert host.moves.plan("web", "2").nr_programs == 1
