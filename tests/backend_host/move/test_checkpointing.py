"""The process that changes the devices of workers, on a device library that says no, or nothing, wherever the test wants it to (driver.c)."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend_host.config import Config
from backend_host.move.checkpoint import DECLARATIONS
from backend_host.move.checkpointing import Checkpointer, Outcome
from backend_host.move.driver_process import CheckpointError
from tests.backend_host.worker_guest import ROOT

FROM, TO = "GPU-11111111-1111-1111-1111-111111111111", "GPU-12121212-1212-1212-1212-121212121212"
STEPS = ["lock", "checkpoint", "restore", "unlock"]
HANGS = -1


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    built = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = Path(__file__).with_name("driver.c")
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'cuda_api/include'}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(built)], check=True)
    return str(built)


def changed(
    library: str, patch: pytest.MonkeyPatch, said: str = "", *pids: int, change_s: float = 30.0, fixed_bytes: int = 0
) -> Outcome:
    patch.setenv("FAKE_DRIVER", f" {said}")
    patch.setenv("CUDA_VISIBLE_DEVICES", FROM)  # the daemon's own; the process names all of the machine's
    with Checkpointer(library, change_s) as changer:
        changer.wait()
        return changer.change(pids or (70, 71, 72), FROM, TO, fixed_bytes)


def test_all_are_on_the_other_device(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = changed(library, monkeypatch)
    assert (outcome.has_changed, outcome.stuck, outcome.reason) == (True, {}, "")
    assert list(outcome.ms) == STEPS
    assert all(ms >= 0 for ms in outcome.ms.values())


def test_a_driver_that_prints_is_not_heard(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = changed(library, monkeypatch, "print 0 1 ")
    assert (outcome.has_changed, outcome.stuck, outcome.reason) == (True, {}, "")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("lock 71 600 ", "lock of worker 71 gives CUDA error 600"),
        ("lock 70 304 lock 71 304 lock 72 304 ", "lock of worker 70 gives CUDA error 304"),
        ("checkpoint 72 801 ", "checkpoint of worker 72 gives CUDA error 801"),
    ],
)
def test_before_the_change_one_that_says_no_leaves_all_where_they_were(
    library: str, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    outcome = changed(library, monkeypatch, f"{said} other 70 999 other 71 999 other 72 999 ")
    assert (outcome.has_changed, outcome.stuck, outcome.reason) == (False, {}, reason)


def test_one_that_does_not_come_back_where_it_was_is_stuck(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = changed(library, monkeypatch, "checkpoint 72 801 restore 70 2 ")
    assert (outcome.has_changed, outcome.stuck) == (False, {70: "its restore gives CUDA error 2"})
    assert outcome.reason == "checkpoint of worker 72 gives CUDA error 801"


@pytest.mark.parametrize(("step", "said"), [("restore", "other 71 2 "), ("unlock", "unlock 71 2 ")])
def test_one_that_is_not_put_on_the_other_device_is_stuck(
    library: str, monkeypatch: pytest.MonkeyPatch, step: str, said: str
) -> None:
    outcome = changed(library, monkeypatch, said)
    assert (outcome.has_changed, outcome.stuck) == (True, {71: f"its {step} gives CUDA error 2"})
    assert outcome.reason == f"{step} of worker 71 gives CUDA error 2"


def test_where_none_is_put_there_nothing_has_changed(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "other 70 1 other 71 1 other 72 1 "
    outcome = changed(library, monkeypatch, refused)
    assert (outcome.has_changed, outcome.stuck) == (False, {})
    assert outcome.reason == "restore of worker 70 gives CUDA error 1"
    outcome = changed(library, monkeypatch, f"{refused} restore 71 304 ")
    assert (outcome.has_changed, outcome.stuck) == (False, {71: "its return gives CUDA error 304"})


@pytest.mark.parametrize(
    ("said", "stuck"),
    [
        (f"lock 71 {HANGS} ", {70, 71, 72}),
        (f"lock 70 600 lock 71 {HANGS} ", {71, 72}),
        (f"checkpoint 71 {HANGS} ", {70, 71, 72}),
        (f"other 71 {HANGS} ", {70, 71, 72}),
        (f"unlock 71 {HANGS} ", {71}),
    ],
)
def test_of_a_call_that_never_returns_those_are_stuck_that_may_be_locked(
    library: str, monkeypatch: pytest.MonkeyPatch, said: str, stuck: set[int]
) -> None:
    outcome = changed(library, monkeypatch, said, change_s=1.0)
    assert set(outcome.stuck) == stuck
    assert outcome.has_changed == ("unlock" in said)
    [*_, step, _, _] = said.split()
    step = "restore" if step == "other" else step
    assert outcome.stuck[71] == f"its {step} did not end: the process that changes devices came to no end within 1 s"


def test_what_the_driver_has_to_move_makes_the_time_longer(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any driver takes longer than none."""
    outcome = changed(library, monkeypatch, change_s=0.0, fixed_bytes=30 << 30)
    assert (outcome.has_changed, outcome.stuck) == (True, {})


def test_a_process_that_dies_is_told(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpointer(library) as changer:
        changer.wait()
        changer._child.kill()
        changer._child.wait()
        outcome = changer.change([70], FROM, TO)
    assert (outcome.has_changed, outcome.stuck) == (False, {})
    assert "the process that changes devices" in outcome.reason


@pytest.mark.parametrize("said", ["", f"checkpoint 70 {HANGS} "])
def test_it_ends_with_the_daemon(library: str, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Whatever it is at."""
    monkeypatch.setenv("FAKE_DRIVER", f" {said}")
    changer = Checkpointer(library, 0.5)
    changer.wait()
    if said:
        changer.change([70], FROM, TO)
    assert changer._child.stdin is not None
    changer._child.stdin.close()
    assert changer._child.wait(30) is not None
    changer.__exit__()


def test_a_library_that_does_not_open_says_why(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DRIVER", " init 0 802 ")
    with Checkpointer(library) as changer, pytest.raises(CheckpointError, match="cuInit gives CUDA error 802"):
        changer.wait()
    with Checkpointer("/nowhere/libcuda.so.1") as changer, pytest.raises(CheckpointError, match="/nowhere/libcuda"):
        changer.wait()


def test_softgpu_has_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_STATE", str(tmp_path / "device"))
    with Checkpointer(Config().softgpu_library) as changer:
        changer.wait()


def test_declarations_are_of_the_size_that_the_library_reads() -> None:
    from cffi import FFI  # noqa: PLC0415

    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    sizes = {"Lock": 64, "Checkpoint": 64, "Restore": 64, "Unlock": 64}
    assert {name: ffi.sizeof(f"CUcheckpoint{name}Args") for name in sizes} == sizes
    assert ffi.offsetof("CUcheckpointRestoreArgs", "reserved1") == 56


def test_it_is_there_ahead_of_the_pause(library: str) -> None:
    """It waits as long as it is let wait."""
    with Checkpointer(library) as changer:
        changer.wait()
        time.sleep(0.1)
        assert changer._child.poll() is None


@pytest.mark.parametrize("module", ["backend_host.move.checkpoint", "backend_host.sleep.process"])
def test_a_daemon_that_died_before_the_process_was_ready_leaves_no_word_in_the_log(library: str, module: str) -> None:
    hears, says = os.pipe()
    os.close(hears)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, "--library", library],
            cwd=ROOT,
            env={**os.environ, "FAKE_DRIVER": " "},
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(says)
    assert (done.returncode, done.stderr) == (0, "")
