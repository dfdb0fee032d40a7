"""Processes of which the time is limited, also where nothing ends them: a kill that does nothing stands for a driver that holds them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host import children, devices
from backend_host.children import end, run_within
from backend_host.device import failure
from backend_host.device.failure import Failure, trial_of
from backend_host.devices import probe
from backend_host.errors import DeviceUnavailableError
from backend_host.move import driver_process
from backend_host.move.driver_process import CheckpointError, DriverProcess
from backend_host.space import mps as mps_module
from backend_host.space import setting
from backend_host.space.mps import CONTROL, Mps, MpsError
from backend_host.walls.root import Root
from backend_host.walls.settings import PLAIN
from backend_host.walls.start import Walls
from backend_host.worker_start import WorkerStart
from tests.backend_host.space.test_setting import put

SLEEP = "exec sleep 600"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that no signal ended while the test ran."""
    found: list[subprocess.Popen[str]] = []
    really = subprocess.Popen.kill

    def kill(child: subprocess.Popen[str]) -> None:
        found.append(child)

    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    monkeypatch.setattr(children, "END_S", 0.01)
    yield found
    for child in found:
        really(child)
        child.wait()


def test_what_a_process_is_told_and_says() -> None:
    result = run_within(60.0, ["sh", "-c", "cat; echo no >&2; exit 3"], "word")
    assert (result.stdout, result.stderr, result.returncode) == ("word", "no\n", 3)
    assert run_within(60.0, ["cat"]).stdout == "", "its input has an end"


def test_one_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_within(0.01, ["sleep", "600"])


def test_its_end_is_waited_for() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    end(child)
    assert child.returncode == -9


def test_a_device_that_holds_the_probe(held: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROBE_TIMEOUT_S", 0.01)
    with pytest.raises(DeviceUnavailableError, match="did not answer within"):
        probe("cuda", "libcuda.so.1")
    assert len(held) == 1


def test_a_device_that_holds_its_trial(
    held: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(failure, "TRIAL_S", 0.01)
    script = tmp_path / "trial.py"
    script.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(failure, "WORKER", (str(script),))
    start = WorkerStart(
        *("libcuda.so.1", 0, "soft", Walls(frozenset(), PLAIN, 0), Root()), {"PATH": "/bin"}, None, None
    )
    assert trial_of(start)() == Failure("a context was not there within 0.01 s")
    assert len(held) == 1


def test_a_device_that_holds_nvidias_programs(
    held: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for program in (CONTROL, "nvidia-smi"):
        put(tmp_path, program, SLEEP)
    monkeypatch.setattr(setting, "_LIMIT_S", 0.01)
    monkeypatch.setattr(mps_module, "_LIMIT_S", 0.01)
    assert setting.why_not("cuda", "GPU-5c7a") == ""
    with pytest.raises(MpsError, match="gave no answer within"):
        Mps(tmp_path / "space").ask("get_server_list")
    assert len(held) == 2


def test_a_device_that_holds_a_move(
    held: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "python", SLEEP)
    monkeypatch.setattr(driver_process, "READY_S", 0.01)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with DriverProcess("none", "none", 1.0) as process, pytest.raises(CheckpointError):
        process.wait()
    assert len(held) == 1
