"""Sharing in space: programs beside their loops, the recorder on softgpu, and the arithmetic on made records. No time is asserted."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.devices import native_environment
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.paper import claims
from benchmarks.space import search, start, start_guests, surfaces
from benchmarks.space.build import build
from benchmarks.space.medoids import bounds_of, medoids, normalised
from benchmarks.space.record import BEST_EFFORT, CRITICAL, MICRO, SIZES, SURFACES, instance
from benchmarks.style import THEMES, figure_of
from scheduler.space.command import TARGETS
from scheduler.space.registry import SEARCHES

pytestmark = pytest.mark.usefixtures("small_device")

EXPERIMENT = EXPERIMENTS["space"]
HEAD = {"experiment": "space", "device": "softgpu", "date": "2026-01-02"}
LIMIT_S = 120.0
INSTANCES = (instance((3, 0.1, 2)), instance((32, 0.0, 1)))


def recorder(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(build("surfaces")), *words]
    environment = native_environment("soft")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_programs_give_what_their_loops_give() -> None:
    """As plain launches, and persistently."""
    names = [*BEST_EFFORT, *CRITICAL, "components", *INSTANCES]
    finished = recorder("--check", ",".join(names))
    assert finished.stderr == ""
    assert [json.loads(line) for line in finished.stdout.splitlines()] == [
        {"name": name, "agrees": True} for name in names
    ]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--pairs",),
        ("--pairs", "cfd"),
        ("--check", "nothing"),
        ("--check", "stride-0-overlap-0.1-iterations-2"),
        ("--check", "stride-1-overlap-1-iterations-2"),
        ("--step", "0", "--check", "nn"),
        ("--step", "4x", "--check", "nn"),
        ("--much", "1", "--check", "nn"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...]) -> None:
    finished = recorder(*words)
    assert finished.returncode == 2
    assert finished.stderr
    assert not finished.stdout


def test_medoids_stand_for_their_groups() -> None:
    vectors = [(0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (1.0, 1.0), (1.0, 0.9), (1.0, 0.8), (0.0, 1.0)]
    assert medoids(vectors, 3) == [1, 4, 6]
    assert medoids(list(reversed(vectors)), 3) == [0, 2, 5]
    assert medoids([(1.0,), (1.0,)], 2) == [0]


def test_features_go_from_the_least_to_the_greatest() -> None:
    bounds = bounds_of([(1, 5, 0), (3, 5, 1)])
    assert bounds == [(1, 3), (5, 5), (0, 1)]
    assert normalised([(2, 5, 4), (0, 9, 0.5)], bounds) == [(0.5, 0, 1), (0, 0, 0.5)]


def test_surfaces_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert main(["space", "--calibrate", "--device", "soft", "--surfaces", str(tmp_path), "--json", str(path)]) == 0
    size = SIZES["soft"]
    document = json.loads(path.read_text())
    assert document["failures"] == []
    found = [(record["best_effort"], record["critical"]) for record in document["records"] if record["file"] == "pairs"]
    assert found == list(size.pairs)
    for name, step in ((SURFACES, size.step), (MICRO, size.micro_step)):
        recorded = json.loads((tmp_path / name).read_text())
        assert recorded["multiprocessors"] == 16
        assert recorded["step"] == step
        assert recorded["pairs"]
        for pair in recorded["pairs"]:
            ks = sorted({1, pair["most_each"]})
            assert [row[:2] for row in pair["surface"]] == [
                [0, 0],
                *([n, k] for k in ks for n in range(step, 17, step)),
            ]
            assert all(row[3] >= row[2] > 0 for row in pair["surface"])
            for features in pair["features"].values():
                assert len(features) == 7
                assert all(0 <= each <= 1 for each in features)


def test_surfaces_of_searches_are_not_lost_to_softgpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", "--calibrate", "--device", "soft"]) == 1
    assert "name another folder with --surfaces" in capsys.readouterr().err


def grid(most_each: int, slower: float, progress: float) -> list[list[float]]:
    """A model, no measurement: what the critical program has more of makes it faster, and leaves best effort less."""
    rows: list[list[float]] = [[0, 0, 9, 9, 1, 100]]
    for k in range(1, most_each + 1):
        for n in (8, 16):
            left = 1 - n * k / 16 / most_each
            rows.append([n, k, 1 + slower * left, 1 + 1.1 * slower * left, progress * left, 100])
    return rows


def write(folder: Path, name: str, pairs: list[tuple[str, str, float]]) -> None:
    features = {"best_effort": [0.1] * 7, "critical": [0.9] * 7}
    written = [
        {
            "best_effort": one,
            "critical": other,
            "most_each": 4,
            "alone_us": 100,
            "features": features,
            "surface": grid(4, slower, 0.9),
        }
        for one, other, slower in pairs
    ]
    document = {"device": "NVIDIA Modelled", "multiprocessors": 16, "step": 8, "pairs": written}
    (folder / name).write_text(json.dumps(document))


def test_searches_are_replayed_over_what_was_recorded(tmp_path: Path) -> None:
    write(tmp_path, SURFACES, [("cfd", "lbm", 1.5), ("cfd", "spmv", 0.3)])
    write(tmp_path, MICRO, [(INSTANCES[0], INSTANCES[1], 1.0)])
    path = tmp_path / "found.json"
    words = ["space", "--device", "soft", "--only", "search", "--surfaces", str(tmp_path), "--json", str(path)]
    assert main(words) == 0
    document = json.loads(path.read_text())
    assert document["device"] == "NVIDIA Modelled"
    assert document["failures"] == []
    found = [(record["search"], record["target"]) for record in document["records"] if record["kind"] == search.KIND]
    assert found == [(name, target) for name in SEARCHES for target in TARGETS]
    figures = EXPERIMENT.figures(document)
    assert figures["search/exhaustive/2/throughput"] == 1
    assert 0 < figures["prediction/nearest/critical"] < 1
    named = {finding.name for finding in EXPERIMENT.findings(document)}
    assert named >= {"gspace_nn", "gspace_nn_srs", "gspace_better", "gspace_nn_ns_time", "gspace_linear_error_critical"}
    assert named <= set(claims())


def test_surfaces_that_are_missing_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", "--device", "soft", "--only", "search", "--surfaces", str(tmp_path)]) == 1
    assert "fairgv-bench space --calibrate records surfaces" in capsys.readouterr().err


def test_starts_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert main(["space", "--device", "soft", "--only", "start", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    found = [(record["way"], record["block_us"]) for record in document["records"]]
    assert found == [
        (way, block_us) for way in (start.SLICES, start.WORD, *start_guests.LABELS) for block_us in (0, 50)
    ]
    assert all(0 < record["p50_us"] <= record["p99_us"] for record in document["records"])


@pytest.mark.parametrize(
    "words", [(), ("fast",), ("word", "--rounds"), ("word", "--rounds", "0"), ("word", "--much", "1")]
)
def test_ways_that_are_none_are_refused(words: tuple[str, ...]) -> None:
    finished = subprocess.run(
        [build("start"), *words],
        env=native_environment("soft"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert finished.returncode == 2
    assert "start plain | low" in finished.stderr


SURFACE: list[list[float]] = [
    [0, 0, 40, 40, 1, 9],
    [4, 1, 2.5, 3, 0.9, 9],
    [8, 1, 1.4, 1.5, 0.7, 9],
    [4, 2, 1.8, 2.5, 0.6, 9],
    [8, 2, 1.1, 1.2, 0.05, 9],
    [4, 3, 1.7, 2.4, 0.5, 9],
    [8, 3, 1, 1, 0, 9],
]


def test_the_best_split_has_the_greatest_progress_within_the_target() -> None:
    best = surfaces.best_of(SURFACE, 1.5)
    assert best is not None
    assert (best["n"], best["k"], best["progress"]) == (8, 1, 0.7)
    assert best["gain"] == pytest.approx(1 / 1.4 + 0.7)


def test_turns_are_better_than_a_split_that_loses() -> None:
    """Of (8, 2) both programs together lose 4 % to turns."""
    assert surfaces.best_of(SURFACE, 1.2) is None
    assert surfaces.best_of(SURFACE, 0.9) is None


def record(critical: str, *, file: str = "pairs", target: float | None = None) -> dict[str, Any]:
    best = {f"{each:g}": surfaces.best_of(SURFACE, each if target is None else target) for each in TARGETS}
    pair = {"best_effort": "cfd", "critical": critical, "most_each": 3, "alone_us": 234.5}
    return {"kind": surfaces.KIND, "file": file, **pair, "best": best}


def started(way: str, block_us: float, p50_us: float, p99_us: float, kept: float = 1) -> dict[str, Any]:
    return {"kind": start.KIND, "way": way, "block_us": block_us, "p50_us": p50_us, "p99_us": p99_us, "kept": kept}


def searched(name: str, target: float, throughput: float, time: float, nr_better: int = 2) -> dict[str, Any]:
    found = {"throughput": throughput, "time": time, "rounds_over": 0.02, "settled_over": 0.001, "nr_over": 0}
    return {
        "kind": search.KIND,
        "search": name,
        "target": target,
        **found,
        "nr_better": nr_better,
        "least_utilisation": 0.99,
    }


SEARCHED = [searched("climb", 1.5, 0.97, 0.08), searched("ns", 1.5, 0.8, 0.5), searched("nn-ns", 1.5, 0.81, 0.2)]
STARTS = [
    started(start.WORD, 0, 14, 20),
    started(start.WORD, 20, 29, 40.5, 0.98),
    started(start.SLICES, 0, 13.5, 21),
    started(start.SLICES, 20, 1908, 2155, 0.99),
]
DOCUMENT = {
    **HEAD,
    "records": [*STARTS, *SEARCHED, record("lbm"), record("spmv", target=0), record("lbm", file="micro")],
}


def test_figures_are_of_the_paper_s_pairs() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["surfaces/1.5/pairs better than turns"] == 1
    assert figures["surfaces/1.5/greatest gain"] == pytest.approx(1 / 1.4 + 0.7)
    assert figures["surfaces/1.5/mean gain"] == pytest.approx((1 + 1 / 1.4 + 0.7) / 2)


def test_starts_are_told_beside_those_alone() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures[f"start/{start.WORD}/20/median over alone, us"] == 15
    assert figures[f"start/{start.WORD}/20/p99 over alone, us"] == 20.5
    assert figures[f"start/{start.WORD}/20/kept"] == 0.98


def test_findings_stand_beside_the_paper_s() -> None:
    found = {(finding.name, finding.detail): finding for finding in EXPERIMENT.findings(DOCUMENT)}
    assert found["gspace_ns", "rounds at most 1.5"].ours == 0.8
    assert found["gspace_nn_ns_time", "rounds at most 1.5"].ours == pytest.approx(0.4)
    assert found["gspace_better", "rounds at most 1.5"].cells()[-1] == "behind"
    assert found["gspace_greatest", ""].ours == pytest.approx(1 / 1.4 + 0.7)
    assert not [name for name, _ in found if name == "gspace_nn"]


def test_tables_have_what_was_measured() -> None:
    sheets = {sheet.title: sheet for sheet in EXPERIMENT.sheets(DOCUMENT)}
    assert sheets["The best splits"].rows == (
        ("cfd beside lbm", "234", "3", "turns", "(8, 1) 0.70, 1.41", "(8, 1) 0.70, 1.41"),
        ("cfd beside spmv", "234", "3", "turns", "turns", "turns"),
    )
    assert sheets["How soon a kernel has ended"].rows == (
        (start.SLICES, "13.5, 21.0", "1908.0, 2155.0, 0.99"),
        (start.WORD, "14.0, 20.0", "29.0, 40.5, 0.98"),
    )
    assert sheets["Searches over recorded surfaces"].rows[0] == (
        *("climb", "1.5", "0.970", "0.080", "0.020", "0.0010", "2", "0.990"),
    )
    assert EXPERIMENT.sheets({**HEAD, "records": []}) == []


def test_the_picture_has_a_panel_for_each_part() -> None:
    pytest.importorskip("matplotlib")
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert len(figure.axes) == 3
        assert figure.get_suptitle().startswith("Of 2 pairs 1 gain by sharing in space")
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({**HEAD, "records": []}, None)
