"""`python -m scheduler.space`, over files that a model made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.space.command import main
from scheduler.space.grid import Grid
from scheduler.space.registry import SEARCHES
from tests.scheduler.space.model import document, micro_pairs, pairs

GRID = Grid.of(12, 4, 3)


@pytest.fixture
def surfaces(tmp_path: Path) -> str:
    path = tmp_path / "surfaces.json"
    path.write_text(json.dumps(document(pairs("saturating", 2, GRID) + pairs("waves", 1, GRID))))
    return str(path)


@pytest.fixture
def micro(tmp_path: Path) -> str:
    path = tmp_path / "micro.json"
    path.write_text(json.dumps(document(micro_pairs(3, Grid((4, 12), (1, 3))))))
    return str(path)


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_every_search_has_its_line(surfaces: str, micro: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", surfaces, "--micro", micro]) == 0
    printed = capsys.readouterr().out
    rows = lines(printed)
    assert rows[0] == ["All", "9", "replays,", "in", "the", "mean"]
    assert rows[1][:5] == ["search", "of", "optimum", "paper", "time"]
    assert [row[0] for row in rows[2 : 2 + len(SEARCHES)]] == list(SEARCHES)
    assert next(row[2] for row in rows if row and row[0] == "nn-srs") == "0.836"
    assert [(row[0], row[2], row[4]) for row in rows if row and row[0] in ("nearest", "linear")][-2:] == [
        ("nearest", "35.7%", "35.1%"),
        ("linear", "32.8%", "62.0%"),
    ]
    assert "Pair by pair" not in printed
    assert max(map(len, printed.splitlines())) <= 110


def test_without_the_micro_benchmark_nothing_predicts(surfaces: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", surfaces]) == 0
    printed = capsys.readouterr().out
    names = [row[0] for row in lines(printed)[2:]]
    assert names == ["climb", "ns", "exhaustive", "whole"]
    assert "Errors" not in printed


def test_pair_by_pair(surfaces: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", surfaces, "--search", "climb", "--target", "1.3,2", "--pairs"]) == 0
    rows = lines(capsys.readouterr().out)
    assert rows[0] == ["Pair", "by", "pair"]
    assert [row[:3] for row in rows[2:8]] == [
        [pair, target, "climb"]
        for target in ("1.3", "2")
        for pair in ("saturating0-critical", "saturating1-critical", "waves0-critical")
    ]


def test_json_has_it_all(surfaces: str, micro: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "replay",
        surfaces,
        "--micro",
        micro,
        "--search",
        "climb",
        "--search",
        "nn",
        "--target",
        "1.5",
        "--json",
    ]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"searches", "errors", "replays"}
    assert [each["search"] for each in found["searches"]] == ["climb", "nn"]
    assert [each["predictor"] for each in found["errors"]] == ["nearest", "linear"]
    assert len(found["replays"]) == 6
    climbs = [each for each in found["replays"] if each["search"] == "climb"]
    mean = sum(each["throughput"] for each in climbs) / 3
    assert found["searches"][0]["throughput"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--target", "0.9"], "'0.9': targets are slowdowns above 1"),
        (["--target", "1.2,fast"], "'1.2,fast': targets are slowdowns above 1"),
        (["--target", "inf"], "targets are slowdowns above 1"),
        (["--search", "best"], "invalid choice: 'best'"),
    ],
)
def test_wrong_command_lines(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["replay", "surfaces.json", *arguments])
    assert complaint in capsys.readouterr().err


def test_wrong_files(surfaces: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.json"
    assert main(["replay", str(wrong)]) == 1
    assert f"python -m scheduler.space: {wrong}: cannot be read: " in capsys.readouterr().err
    wrong.write_bytes(b"\xff\xfe")
    assert main(["replay", str(wrong)]) == 1
    assert "cannot be read: " in capsys.readouterr().err
    wrong.write_text("{}")
    assert main(["replay", surfaces, "--micro", str(wrong)]) == 1
    assert f"{wrong}: the file: pairs is missing" in capsys.readouterr().err


def test_features_that_do_not_fit(surfaces: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = document(micro_pairs(2, GRID))
    for pair in told["pairs"]:
        pair["features"] = {"best_effort": [], "critical": []}
    path = tmp_path / "micro.json"
    path.write_text(json.dumps(told))
    assert main(["replay", surfaces, "--micro", str(path)]) == 1
    assert "features: the two files have not as many, or none" in capsys.readouterr().err


def test_a_search_that_predicts_needs_the_micro_benchmark(surfaces: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", surfaces, "--search", "nn-srs"]) == 1
    assert "nn-srs predicts: give the surfaces of the micro-benchmark by --micro FILE" in capsys.readouterr().err


def test_help_has_the_searches_and_an_example() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "scheduler.space", "replay", "--help"], capture_output=True, text=True, check=True
    )
    for word in (*SEARCHES, "--micro", "--target", "replay benchmarks/space/surfaces.json --micro"):
        assert word in result.stdout


def test_without_numpy_it_says_what_it_lacks() -> None:
    code = "import runpy, sys; sys.modules['numpy'] = None; runpy.run_module('scheduler.space', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "python -m scheduler.space: searches that predict need numpy, which no package of ours brings: pip install numpy"
    ]
