"""The process that takes contexts off a device and brings them back, on a device library that says no, or nothing, wherever the test wants it
to (move/driver.c)."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.move.checkpoint import CHECKPOINT, LOCK, RESTORE, UNLOCK, Driver, Pairs
from backend_host.sleep.errand import Errand, Laid, Woken
from backend_host.sleep.process import CHECKPOINTED, FREED, LOCKED, ROOM, Contexts
from tests.backend_host.worker_guest import ROOT

DEVICE = "GPU-11111111-1111-1111-1111-111111111111"
PIDS = (70, 71, 72)
HANGS = -1
MIB = 1 << 20
RUNS, IS_LOCKED, HAS_FAILED = 1, 2, 4
"""As driver.c is told of states: one more than CUprocessState."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    built = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = Path(__file__).parents[1] / "move" / "driver.c"
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'cuda_api/include'}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(built)], check=True)
    return str(built)


def laid(library: str, patch: pytest.MonkeyPatch, said: str = "", errand_s: float = 30.0, fixed_bytes: int = 0) -> Laid:
    patch.setenv("FAKE_DRIVER", f" {said}")
    with Errand(library, errand_s) as errand:
        errand.wait()
        return errand.lay(PIDS, DEVICE, 0, fixed_bytes)


def woken(
    library: str, patch: pytest.MonkeyPatch, said: str = "", due_bytes: int = 8 * MIB, errand_s: float = 30.0
) -> Woken:
    patch.setenv("FAKE_DRIVER", f" {said}")
    with Errand(library, errand_s) as errand:
        errand.wait()
        return errand.wake(dict.fromkeys(PIDS, due_bytes), DEVICE, 0)


def test_all_leave(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = laid(library, monkeypatch)
    assert (outcome.off, outcome.on) == (dict.fromkeys(PIDS, 0), {})
    assert list(outcome.ms) == [LOCK, CHECKPOINT]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("lock 71 600 ", "lock of worker 71 gives CUDA error 600"),
        ("checkpoint 71 801 ", "checkpoint of worker 71 gives CUDA error 801"),
    ],
)
def test_one_that_cannot_leave_goes_on_and_the_others_leave(
    library: str, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    outcome = laid(library, monkeypatch, said)
    assert (set(outcome.off), outcome.on) == ({70, 72}, {71: reason})


def test_where_one_is_that_cannot_be_unlocked_nobody_knows(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = laid(library, monkeypatch, "checkpoint 71 801 unlock 71 999 ")
    assert (set(outcome.off), set(outcome.on)) == ({70, 72}, set())


@pytest.mark.parametrize("step", [LOCK, CHECKPOINT])
def test_of_a_call_that_never_returns_nobody_knows_what_came(
    library: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    outcome = laid(library, monkeypatch, f"{step} 71 {HANGS} ", errand_s=1.0)
    assert (set(outcome.off), set(outcome.on)) == ({70}, set())


def test_all_come_back_where_there_is_room(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = woken(library, monkeypatch, "left 0 27 ")
    assert (set(outcome.on), outcome.lost) == (set(PIDS), {})
    assert list(outcome.ms) == [RESTORE, UNLOCK]


@pytest.mark.parametrize(("left", "nr"), [(26, 2), (9, 1), (8, 0)])
def test_those_come_back_that_have_room_with_an_eighth_more(
    library: str, monkeypatch: pytest.MonkeyPatch, left: int, nr: int
) -> None:
    """The restore of the others is not tried."""
    tried = "".join(f"restore {pid} 2 " for pid in PIDS[nr:])
    outcome = woken(library, monkeypatch, f"left 0 {left} {tried}")
    assert (set(outcome.on), outcome.lost) == (set(PIDS[:nr]), {})
    assert outcome.ms[ROOM] == 0


def test_a_device_that_has_no_room_for_a_context_has_none(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = woken(library, monkeypatch, "context 0 2 restore 70 2 restore 71 2 restore 72 2 ")
    assert (set(outcome.on), outcome.lost) == (set(), {})


def test_where_nobody_can_say_what_is_left_the_driver_is_asked(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert woken(library, monkeypatch, "context 0 46 ").on == set(PIDS)


def test_each_goes_on_from_where_it_is(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a daemon that died may have left them: one runs, and one is locked alone."""
    said = f"left 0 100 state 70 {RUNS} restore 70 999 unlock 70 999 state 71 {IS_LOCKED} restore 71 999 "
    outcome = woken(library, monkeypatch, said)
    assert (set(outcome.on), outcome.lost) == (set(PIDS), {})


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("restore 71 2 ", "restore of worker 71 gives CUDA error 2"),
        ("unlock 71 999 ", "unlock of worker 71 gives CUDA error 999"),
        (f"state 71 {HAS_FAILED} restore 71 304 ", "restore of worker 71 gives CUDA error 304"),
    ],
)
def test_one_that_cannot_come_back_is_lost_alone(
    library: str, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    outcome = woken(library, monkeypatch, f"left 0 100 {said}")
    assert (set(outcome.on), outcome.lost) == ({70, 72}, {71: reason})


def test_one_whose_call_never_returns_is_lost(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = woken(library, monkeypatch, f"left 0 100 restore 71 {HANGS} ", errand_s=1.0)
    assert outcome.on == {70, 72}
    assert outcome.lost == {71: "its restore did not end: the process came to no end within 1 s"}


def test_what_the_driver_has_to_move_makes_the_time_longer(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any driver takes longer than none."""
    assert set(laid(library, monkeypatch, errand_s=0.0, fixed_bytes=30 << 30).off) == set(PIDS)
    outcome = woken(library, monkeypatch, "left 0 40000 ", due_bytes=10 << 30, errand_s=0.0)
    assert (set(outcome.on), outcome.lost) == (set(PIDS), {})


def test_a_process_that_dies_loses_nobody(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay as they are, whatever that is; the next one asks the driver."""
    with Errand(library) as errand:
        errand.wait()
        errand._child.kill()
        errand._child.wait()
        outcome = errand.wake({70: MIB}, DEVICE, 0)
    assert (set(outcome.on), outcome.lost) == (set(), {})


class Played(Driver):
    """It takes note of what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def lock(self, pid: int) -> int:
        return self._note(LOCK)

    def checkpoint(self, pid: int) -> int:
        return self._note(CHECKPOINT)

    def restore(self, pid: int, pairs: Pairs = ()) -> int:
        assert not pairs, "on the same device"
        return self._note(RESTORE)

    def unlock(self, pid: int) -> int:
        return self._note(UNLOCK)

    def state(self, pid: int) -> tuple[int, int]:
        return 0, LOCKED if self.steps[-1] == RESTORE else CHECKPOINTED

    def _note(self, step: str) -> int:
        self.steps.append(step)
        return 0


@pytest.mark.parametrize(
    ("has_ended", "steps"), [(False, [LOCK, CHECKPOINT]), (True, [LOCK, CHECKPOINT, RESTORE, UNLOCK])]
)
def test_what_was_laid_for_a_daemon_that_has_ended_is_brought_back(has_ended: bool, steps: list[str]) -> None:
    driver, left = Played(), iter((10 * MIB, 12 * MIB))
    said: list[Mapping[str, Any]] = []
    Contexts(driver, said.append, lambda: next(left), lambda: has_ended).lay([70])
    assert driver.steps == steps
    assert [message["bytes"] for message in said if message["step"] == FREED] == [2 * MIB]


def test_nothing_is_done_for_a_daemon_that_says_nothing(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DRIVER", " ")
    command = [sys.executable, "-m", "backend_host.sleep.process", "--library", library]
    child = subprocess.run(command, input="", cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert child.stdout == '{"ready": true}\n'
