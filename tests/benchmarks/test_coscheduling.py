"""`python -m benchmarks.coscheduling`: its arithmetic, who runs where, a whole command on processes. For machines: tests/vm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from backend_host.config import PACKAGE_ROOT
from benchmarks.coscheduling import Round, burning, main, table
from benchmarks.errors import NotMeasurableError
from benchmarks.guests import Pinning

CORES = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="guests have one core, everything else another")


def a_round(*throughputs: float) -> Round:
    nr = len(throughputs)
    return Round(throughputs, (0.5,) * nr, (7,) * nr, (3,) * nr, load=0.0)


def test_ratios_are_those_within_a_round() -> None:
    """A machine that is slow in one round changes no ratio."""
    off = [a_round(0.1, 0.1), a_round(0.01, 0.01), a_round(0.2, 0.2)]
    best = [a_round(0.1, 0.2), a_round(0.01, 0.02), a_round(0.2, 0.4)]
    console = Console(width=120, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(table("a title", (1, 2), {"off": off, "best": best}))
    _, first, second = (line for line in captured.get().splitlines() if "off" in line or "best" in line)
    assert "1.00 (1.00 to 1.00)" in first
    assert "0.50 (0.50 to 0.50)" in first
    assert "1.50 (1.50 to 1.50)" in second
    assert "1.00 (1.00 to 1.00)" in second


@needs_two_cores
def test_everything_else_is_elsewhere() -> None:
    pinning = Pinning.to(CORES[0])
    print_cores = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    with pinning.guests():
        guest = subprocess.run(print_cores, capture_output=True, text=True, check=True).stdout
    with pinning.rest():
        rest = subprocess.run(print_cores, capture_output=True, text=True, check=True).stdout
    assert json.loads(guest) == [CORES[0]]
    assert json.loads(rest) == CORES[1:]
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_a_core_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(NotMeasurableError, match="the guests are to have core 100000"):
        Pinning.to(100_000)


def own_children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@needs_two_cores
def test_what_burns_the_core_ends() -> None:
    before = own_children()
    with burning(Pinning.to(CORES[0]), 2):
        hogs = own_children() - before
        assert [os.sched_getaffinity(pid) for pid in hogs] == [{CORES[0]}] * 2
    assert not hogs & own_children()


@needs_two_cores
def test_a_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes of different weights, a hog, two ways."""
    found = tmp_path / "found.json"
    words = ["--weights", "1:2", "--hogs", "1", "--core", str(CORES[0]), "--ways", "off,best", "--rounds", "1"]
    assert main([*words, "--seconds", "2", "--json", str(found)]) == 0
    assert "weights 1:2 (process), 1 hogs" in capsys.readouterr().out
    document = json.loads(found.read_text())
    assert list(document["rounds"]) == ["off", "best"]
    for rounds in document["rounds"].values():
        assert [len(one["throughputs"]) for one in rounds] == [2]
        assert sum(rounds[0]["throughputs"]) > 0
    assert document["rounds"]["off"][0]["boosts"] == [0, 0]


def test_refusals_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--core", "100000"]) == 1
    assert capsys.readouterr().err.startswith("coscheduling: the guests are to have core 100000")
    with pytest.raises(SystemExit) as ended:
        main(["--ways", "faster"])
    assert ended.value.code == 2
    assert "there is no way faster" in capsys.readouterr().err


def test_it_is_a_command() -> None:
    command = [sys.executable, "-m", "benchmarks.coscheduling", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PACKAGE_ROOT)
    assert "--guests {process,vm}" in answer.stdout
