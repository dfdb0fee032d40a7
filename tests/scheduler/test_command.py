"""`fairgv-sim`: its table, its JSON, its errors, and that the picture says what to install."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.simulator import command
from scheduler.simulator.command import main, weights


def test_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    arguments = ["--policy", "fair,first-come", "--vgpus", "1:3", "--workload", "kernel-500us", "--seconds", "1"]
    assert main([*arguments, "--seed", "7", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "fair: 1 s, GPUs: 1" in printed
    assert "first-come: 1 s" in printed
    assert "min-max ratio" in printed
    assert max(map(len, printed.splitlines())) <= 80
    fair, first_come = json.loads(path.read_text())
    assert fair["settings"]["seed"] == 7
    assert fair["settings"]["slice_ns"] == 6_000_000
    assert [vgpu["workload"] for vgpu in fair["report"]["vgpus"]] == ["kernel-500us"] * 2
    assert fair["report"]["min_max_ratio"] > 0.9 > first_come["report"]["min_max_ratio"]


def test_many_vgpus_are_shown_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--vgpus", "1x30:2x30", "--workload", "kernel-5ms", "--gpus", "6", "--seconds", "0.3"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("30 x") == 2
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "fairest"], "no policy is called 'fairest'; there are: credit-hs"),
        (["--workload", "mm,foo"], "no workload is called 'foo'"),
        (["--vgpus", "1:0"], "'0' is no weight"),
        (["--vgpus", "1:two"], "'two' is no weight"),
        (["--vgpus", "1x200000"], "more than 100000"),
        (["--seconds", "-1"], "no number above 0"),
        (["--seconds", "long"], "no number above 0"),
        (["--gpus", "0"], "no whole number above 0"),
    ],
)
def test_wrong_command_lines(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert complaint in capsys.readouterr().err


def test_weights() -> None:
    assert weights("1:2x3:4") == [1, 2, 2, 2, 4]


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.01", "--json", str(tmp_path / "no" / "file")]) == 1
    assert "fairgv-sim: " in capsys.readouterr().err


def test_without_matplotlib_it_says_so_before_it_simulates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(command, "simulate", lambda *arguments: pytest.fail("simulated first"))
    assert main(["--plot", "picture.png"]) == 1
    assert "--plot needs matplotlib" in capsys.readouterr().err


def test_the_picture_shows_every_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policy", "fair,strict", "--vgpus", "1:2", "--seconds", "0.1"]
    assert main([*arguments, "--plot", str(tmp_path / "x.svg")]) == 0
    drawn = (tmp_path / "x.svg").read_text()
    for text in ("fair (", "strict (", "fair share", "wait for the GPU, p99"):
        assert f"<!-- {text}" in drawn
    assert main([*arguments, "--plot", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "--plot", str(tmp_path / "x.foo")]) == 1
    assert "cannot draw" in capsys.readouterr().err


def test_help_names_policies_and_workloads() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "scheduler.simulator.command", "--help"], capture_output=True, text=True, check=True
    )
    for word in ("credit-poll", "strict", "srd1", "kernel-50us", "--preemptive", "examples"):
        assert word in result.stdout
