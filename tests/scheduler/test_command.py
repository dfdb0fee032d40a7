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
        (["--seconds", "1e300"], "'1e300' is no number above 0, and at most 1000000000"),
        (["--gpus", "0"], "no whole number above 0"),
        (["--workload", "requests-6x0ms-90ms"], "no workload is called 'requests-6x0ms-90ms'"),
        (["--quota", "longest"], "invalid choice: 'longest'"),
        (["--quota-max-ms", "0"], "no number above 0"),
        (["--request", "10:ten:10"], "--request: 'ten' is no percentage"),
        (["--limit", "30.25"], "--limit: '30.25' is no percentage"),
        (["--limit", "-5"], "--limit: -5 % is not between 0 and 100"),
        (["--limit", "10:-5:10"], "--limit: -5 % is not between 0 and 100"),
        (["--request", "100.1"], "--request: 100.1 % is not between 0 and 100"),
        (["--limit", "0"], "--limit: 0 % would leave vGPU 0 nothing"),
        (["--limit", "20:30"], "--limit: 2 values for 3 vGPUs"),
        (["--request", "10:20:30:40"], "--request: 4 values for 3 vGPUs"),
        (["--request", "10:20:30", "--limit", "20"], "--request: 30 % of vGPU 2 is above its limit, 20 %"),
        (["--request", "33.4"], "--request: they sum to 100.2 %, and there are 100"),
        (["--request", "60", "--gpus", "2"], "--request: they sum to 120 % on GPU 1, and there are 100"),
        (["--request", "30", "--policy", "elastic,fair"], "--request: policy fair keeps none; use --policy elastic"),
    ],
)
def test_wrong_command_lines(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert complaint in capsys.readouterr().err


def test_requests_and_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    arguments = ["--policy", "elastic", "--vgpus", "1:1:1", "--workload", "kernel-500us", "--seconds", "0.2"]
    assert main([*arguments, "--request", "30:40:-", "--limit", "-:60.5:10", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[1] == "vGPU workload weight request limit GPU ms share fair x p50 p99 max"
    assert lines[3].startswith("1 kernel-500us 1 40 % 60.5 % ")
    (written,) = json.loads(path.read_text())
    assert [(vgpu["request"], vgpu["limit"]) for vgpu in written["report"]["vgpus"]] == [
        (0.3, 1),
        (0.4, 0.605),
        (0, 0.1),
    ]
    assert main([*arguments, "--limit", "-:30:-"]) == 0
    assert "weight limit GPU ms share" in " ".join(capsys.readouterr().out.split())
    assert main(arguments) == 0
    assert "weight GPU ms /weight share" in " ".join(capsys.readouterr().out.split())


def test_requests_of_programs_and_turns_by_bursts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    workloads = "requests-6x6ms-90ms,poisson-10x10ms-400ms,kernel-5ms"
    arguments = ["--vgpus", "1:1:1", "--workload", workloads, "--seconds", "10", "--json", str(path)]
    assert main([*arguments, "--quota", "bursts", "--quota-max-ms", "50.5", "--keep-turns"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    (first,) = [number for number, line in enumerate(lines) if line.startswith("requests answered")]
    assert lines[first + 1] == "vGPU workload answered mean turns turn overuse held useful"
    assert [line.split()[0] for line in lines[first + 2 : first + 5]] == ["0", "1", "all"]
    (written,) = json.loads(path.read_text())
    settings, vgpus = written["settings"], written["report"]["vgpus"]
    assert (settings["quota"], settings["quota_max_ns"], settings["keeps_turns"]) == ("bursts", 50_500_000, True)
    assert lines[first + 2].split()[2:4] == [str(vgpus[0]["nr_answered"]), f"{vgpus[0]['answer_ns'] / 1e6:.1f}"]
    assert vgpus[2]["nr_answered"] == 0
    assert main([*arguments[:2], "--workload", "kernel-5ms", "--seconds", "0.1"]) == 0
    assert "requests answered" not in capsys.readouterr().out


def test_no_number_is_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    workload = "poisson-16x16ms-1126ms"
    assert (
        main(["--vgpus", "1:1", "--request", "30:40", "--limit", "60", "--workload", workload, "--seconds", "1"]) == 0
    )
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert printed.count(f" {workload} ") == 2


def test_weights() -> None:
    assert weights("1:2x3:4") == [1, 2, 2, 2, 4]


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, reason in (
        (str(tmp_path / "no" / "file"), "No such file or directory"),
        ("/dev/full", "No space left on device"),
    ):
        assert main(["--seconds", "0.01", "--json", name]) == 1
        assert capsys.readouterr().err == f"fairgv-sim: cannot write {name}: {reason}\n"


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
    for text in ("fair (", "strict (", "due", "99 of 100 waits for the GPU are no longer", "Of 2 policies "):
        assert f"<!-- {text}" in drawn
    assert main([*arguments, "--plot", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "--plot", str(tmp_path / "x.foo")]) == 1
    assert "cannot draw" in capsys.readouterr().err
    assert main([*arguments, "--plot", "/nowhere/x.png"]) == 1
    assert capsys.readouterr().err == "fairgv-sim: cannot write /nowhere/x.png: No such file or directory\n"


def test_help_names_policies_and_workloads() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "scheduler.simulator.command", "--help"], capture_output=True, text=True, check=True
    )
    for word in ("credit-poll", "strict", "srd1", "kernel-50us", "--preemptive", "--request 30:40:30", "examples"):
        assert word in result.stdout
