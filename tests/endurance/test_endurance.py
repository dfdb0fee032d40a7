"""`make faults` and `make soak`, some seconds of each, and what they say of a run."""

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from tests.children import is_there, running
from tests.end_to_end.host import wait_until
from tests.endurance.conditions import CONDITIONS
from tests.endurance.faults import CROWD, SIGNALS, schedule
from tests.endurance.flatness import trend
from tests.endurance.operations import OPERATIONS
from tests.endurance.processes import descendants

NR_PAIRS = 5


def endurance(name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", f"tests.endurance.{name}", *options]


def sums(output: str) -> list[str]:
    """The last line of the table."""
    [line] = re.findall(r"│ all +│(.*)│\n", output)
    return [cell.strip() for cell in line.split("│")]


def test_the_daemon_and_the_busiest_worker_killed_together_stop_nobody() -> None:
    command = endurance("faults", "--pairs", str(NR_PAIRS), "--seed", "1")
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("seed 1\n")
    assert sums(done.stdout) == [str(NR_PAIRS), "0", "0", "0", "0", "0"], done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.vm
@pytest.mark.parametrize("fault", ["stop QEMU", "kill QEMU"])
def test_a_stopped_qemu_goes_on_and_one_that_is_killed_leaves_nothing(fault: str) -> None:
    command = endurance("faults", "--only", fault, "--rounds", "1", "--seed", "1")
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert "without QEMU" not in done.stdout
    assert sums(done.stdout) == ["1", "0", "0", "0", "0", "0"], done.stdout + done.stderr
    assert done.returncode == 0


def test_an_interrupted_run_of_faults_shows_its_table_and_leaves_nothing() -> None:
    with running(endurance("faults"), cwd=PACKAGE_ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while "round 1:" not in child.stdout.readline():
            assert child.poll() is None
        started = set(descendants(child.pid))
        child.send_signal(signal.SIGINT)
        output = child.communicate(timeout=60)[0]
    assert child.returncode == 128 + signal.SIGINT
    assert int(sums(output)[0]) >= 1
    wait_until(lambda: not any(is_there(pid) for pid in started), "none of its processes is left")


def test_a_soak_of_seconds_tells_figures_and_draws_them(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    command = endurance("soak", "--hours", "0.002", "--into", str(folder))
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((folder / "soak.json").read_text())
    assert set(figures["programs"]) <= {"passed"}
    assert all(len(series["values"]) == len(figures["at_s"]) > 0 for series in figures["series"].values())
    assert (folder / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_every_fault_and_every_pair_has_its_round() -> None:
    names = [*SIGNALS, *CONDITIONS, *OPERATIONS, CROWD]
    faults = [frozenset(fault) for fault in schedule(names, random.Random(1))]
    assert len(set(faults)) == len(faults) == len(names) * (len(names) + 1) // 2


@pytest.mark.parametrize(("growth", "is_flat"), [(0, True), (2, True), (8, False)])
def test_a_slope_is_told_from_noise(growth: float, is_flat: bool) -> None:
    noise = random.Random(1)
    values = [100 + growth * place / 240 + noise.gauss(0, 1) for place in range(240)]
    assert trend(values, 3).is_flat is is_flat
    falling = [-value for value in values]
    assert trend(falling, 3).is_flat
    assert trend(falling, 3, bad=-1).is_flat is is_flat
