"""Pairs of programs live, in a softgpu space, and the arithmetic on made records. No time is asserted."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.devices import native_environment
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.space import networks, pairs
from benchmarks.space.build import build
from benchmarks.space.live import Worked, percentiles
from benchmarks.space.record import PAIRS
from benchmarks.style import THEMES, figure_of

pytestmark = pytest.mark.usefixtures("small_device")

EXPERIMENT = EXPERIMENTS["space"]
HEAD = {"experiment": "space", "device": "softgpu", "date": "2026-01-02"}
LIMIT_S = 120.0


def pair(words: tuple[str, ...], told: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [build("pair"), *words],
        env=native_environment("soft"),
        input=told,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def told_at_work(*words: str) -> list[Any]:
    """By a program that works, is looked at, and rests."""
    finished = pair(words, "work\nlook\nrest\n")
    assert finished.returncode == 0, finished.stderr
    ready, *told = finished.stdout.splitlines()
    assert ready == "ready"
    return [json.loads(line) for line in told]


@pytest.mark.parametrize("name", ["md", "spin-20"])
def test_best_effort_tells_how_many_blocks_it_did(name: str) -> None:
    assert [sorted(each) for each in told_at_work("best-effort", name, "--launch-us", "1")] == [
        ["blocks", "seconds"]
    ] * 2


@pytest.mark.parametrize("name", ["spmv", "spin-20"])
def test_a_critical_program_tells_what_rounds_took(name: str) -> None:
    found = told_at_work("critical", name, "--pause-us", "1")
    assert len(found) == 2
    assert all(took_us > 0 for each in found for took_us in each["times_us"])


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("critical",),
        ("fair", "nn"),
        ("critical", "nothing"),
        ("critical", "spin-0"),
        ("critical", "spin-20x"),
        ("critical", "nn", "--launch-us", "1"),
        ("best-effort", "nn", "--pause-us", "1"),
        ("best-effort", "nn", "--launch-us"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...]) -> None:
    finished = pair(words)
    assert finished.returncode == 2
    assert finished.stderr
    assert not finished.stdout


def test_what_it_does_not_know_is_not_done() -> None:
    finished = pair(("critical", "nn"), "sleep\n")
    assert finished.returncode == 2
    assert finished.stderr.startswith("pair is told to work, to look, to rest, to fault or to hang, not sleep")


def test_a_pair_is_measured_as_guests_in_a_space(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ["--only", "pairs", "--pairs", "md:spmv", "--settle-seconds", "0.3", "--seconds", "0.5"]
    assert main(["space", "--device", "soft", *words, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    [found] = document["records"]
    assert (found["best_effort"], found["critical"], found["target"]) == ("md", "spmv", 2)
    assert found["told"]["way"] == "softgpu"
    assert found["told"]["nr_faults"] == 0
    assert found["nr_rounds"] > 0
    assert 0 < found["slowdowns"]["p50"] <= found["slowdowns"]["p95"] <= found["slowdowns"]["p99"]
    assert 0 <= found["within"] <= 1
    assert found["within_as_told"] is None or 0 <= found["within_as_told"] <= 1
    for each in (found, found["whole"]):
        assert each["use"] > each["progress"] >= 0
    assert found["counts"]["critical"]["nr_rounds"] >= found["nr_rounds"]
    assert found["counts"]["best-effort"]["nr_sliced"] > 0, "its launches go persistently"


def test_whole_programs_are_critical_ones_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ["--only", "programs", "--settle-seconds", "0.3", "--seconds", "0.5"]
    assert main(["space", "--device", "soft", *words, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    [found] = document["records"]
    assert (found["kind"], found["best_effort"], found["critical"]) == (pairs.PROGRAM_KIND, "lavaMD", "components")
    assert found["nr_rounds"] > 0


def test_networks_need_a_gpu_and_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert networks.why_not("components", "soft") == ""
    assert networks.why_not("lstm", "soft").startswith("softgpu does not run PyTorch")
    networks._why_no_torch.cache_clear()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert networks.why_not("gru", "cuda") == "there is no python3 in PATH, which lstm and gru are run by"
    networks._why_no_torch.cache_clear()


@pytest.mark.parametrize("given", ["cfd", "spmv:cfd", "cfd:spmv:nn", "cfd:nothing", ""])
def test_pairs_that_are_none_are_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["space", "--device", "soft", "--only", "pairs", "--pairs", given])
    assert "is no pair: best effort, one of cfd, lavaMD" in capsys.readouterr().err


def test_rounds_are_compared_with_the_median_alone() -> None:
    rounds = Worked(2.0, times_us=(100.0, 110.0, 120.0, 200.0))
    found = pairs.compared(
        Worked(1.0, (90.0, 100.0, 130.0)), Worked(1.0, blocks=50), rounds, Worked(2.0, blocks=60), 1.2
    )
    assert found["alone_us"] == 100
    assert found["slowdowns"] == {"p50": 1.1, "p95": 2.0, "p99": 2.0}
    assert found["within"] == 0.75
    assert found["progress"] == 0.6
    assert found["use"] == pytest.approx(4 * 100e-6 / 2 + 0.6)


def test_a_program_that_did_nothing_is_a_failure() -> None:
    some, none = Worked(1.0, (90.0,), 50), Worked(1.0)
    for three in ((none, some, some), (some, none, some), (some, some, none)):
        with pytest.raises(ProgramFailedError, match="no round ended"):
            pairs.compared(*three, some, 1.2)


@pytest.mark.parametrize(
    ("nr", "expected"), [(1, (1, 1, 1)), (20, (10, 19, 20)), (100, (50, 95, 99)), (101, (51, 96, 100))]
)
def test_percentiles_are_values_that_were_measured(nr: int, expected: tuple[int, ...]) -> None:
    assert tuple(percentiles(range(1, nr + 1)).values()) == expected


def measured(best_effort: str, critical: str, within: float, use: float, *, is_settled: bool = True) -> dict[str, Any]:
    return {
        "kind": pairs.KIND,
        "best_effort": best_effort,
        "critical": critical,
        "target": 1.5,
        "is_settled": is_settled,
        "settle_s": 3.25,
        "split": [64, 8],
        "alone_us": 234.5,
        "slowdowns": {"p50": 1.1, "p95": 1.3, "p99": 1.45},
        "within": within,
        "within_as_told": 0.999 if is_settled else None,
        "progress": use - 0.5,
        "use": use,
        "whole": {"use": 1.0},
        "counts": {"best-effort": {"nr_launches": 40, "nr_sliced": 39 if is_settled else 0}},
    }


DOCUMENT = {
    **HEAD,
    "records": [measured("cfd", "spmv", 0.995, 1.25), measured("nn", "lbm", 0.97, 0.99, is_settled=False)],
}


@pytest.mark.parametrize(
    ("before", "after", "part"), [((10, 1), (110, 3), 0.98), ((10, 1), (10, 1), None), ((10, 1), (12, 3), None)]
)
def test_what_the_daemon_tells_is_of_the_stretch(
    before: tuple[int, int], after: tuple[int, int], part: float | None
) -> None:
    told = [dict(zip(("nr_rounds", "nr_missed"), each, strict=True)) for each in (before, after)]
    assert pairs.within_as_told(*told) == part


def test_tables_and_figures_have_what_was_measured() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    assert sheet.rows == (
        (
            "cfd beside spmv",
            "1.5",
            "64, 8",
            "3.2",
            "234",
            "1.10",
            "1.30",
            "1.45",
            "99.5",
            "99.9",
            "98",
            "0.75",
            "1.25",
            "1.00",
            "1.25",
        ),
        (
            "nn beside lbm",
            "1.5",
            "64, 8",
            "-",
            "234",
            "1.10",
            "1.30",
            "1.45",
            "97.0",
            "-",
            "0",
            "0.49",
            "0.99",
            "1.00",
            "0.99",
        ),
    )
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["pairs/1.5/pairs"] == 2
    assert figures["pairs/1.5/pairs settled"] == 1
    assert figures["pairs/1.5/pairs with 99 % within"] == 1
    assert figures["pairs/1.5/least within"] == 0.97
    assert figures["pairs/1.5/least persistent"] == 0
    assert figures["pairs/1.5/mean progress"] == pytest.approx(0.62)
    assert figures["pairs/1.5/pairs that gain"] == 1
    assert (figures["pairs/1.5/least gain"], figures["pairs/1.5/greatest gain"]) == (0.99, 1.25)


def test_the_paper_s_figures_are_of_all_its_pairs() -> None:
    assert EXPERIMENT.findings(DOCUMENT) == []
    every = {**HEAD, "records": [measured(*each, within=1, use=1.1) for each in PAIRS]}
    found = {(finding.name, finding.detail): finding.ours for finding in EXPERIMENT.findings(every)}
    assert found["gspace_better", "live, rounds at most 1.5"] == 25
    assert found["gspace_greatest", "live, rounds at most 1.5"] == 1.1
    measured_programs = [
        {**measured(*each, within=1, use=1.3), "kind": pairs.PROGRAM_KIND} for each in pairs.PROGRAM_PAIRS
    ]
    of_programs = {
        finding.name: finding.ours for finding in EXPERIMENT.findings({**HEAD, "records": measured_programs})
    }
    assert of_programs == pytest.approx({"gspace_programs_better": 15, "gspace_programs_gain": 0.3})


def test_the_picture_says_how_many_pairs_hold_the_target() -> None:
    pytest.importorskip("matplotlib")
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert figure.get_suptitle().startswith("Through FairGV 99 % of rounds are within the target in 1 of 2 cases")
        assert {text.get_text().strip() for text in figure.axes[0].texts} == {"cfd, spmv", "nn, lbm"}
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({**HEAD, "records": []}, None)
