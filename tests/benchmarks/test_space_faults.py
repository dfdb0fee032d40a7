"""Faults in a space, on softgpu, whose processes share none, and the arithmetic on made records. No time is asserted."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.experiments import EXPERIMENTS
from benchmarks.space import faults, live
from benchmarks.style import THEMES, figure_of

EXPERIMENT = EXPERIMENTS["space"]
HEAD = {"experiment": "space", "device": "softgpu", "date": "2026-01-02"}


def test_scenes_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = [each for each in faults.SCENES if each.victim == live.BEST_EFFORT and each.name != "program killed"]
    monkeypatch.setattr(faults, "SCENES", played)
    monkeypatch.setattr(faults, "WORK_S", 0.1)
    path = tmp_path / "found.json"
    assert main(["space", "--device", "soft", "--only", "faults", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert [record["scene"] for record in document["records"]] == [each.name for each in played]
    for record in document["records"]:
        assert record["neighbour"]["said"] == faults.GOES_ON
        assert record["outside"]["said"] == faults.GOES_ON
        assert record["nr_faults"] == 0
    said = [record["victim_said"] for record in document["records"]]
    assert "cudaErrorIllegalAddress" in said[0]
    assert "cudaErrorDevicesUnavailable" in said[1]
    assert "cudaErrorLaunchTimeout" in said[2]


def seen(victim: str, neighbour: str, longest_us: float | None, *, nr_faults: int) -> dict[str, Any]:
    return {
        "kind": faults.KIND,
        "scene": "illegal address",
        "victim": victim,
        "again_s": 1.25,
        "victim_said": "error 700",
        "neighbour": {"said": neighbour, "longest_us": longest_us},
        "outside": {"said": faults.GOES_ON, "longest_us": 1500.0},
        "nr_faults": nr_faults,
    }


DOCUMENT = {
    **HEAD,
    "records": [
        seen("best-effort", "error 700", None, nr_faults=1),
        seen("critical", faults.GOES_ON, None, nr_faults=0),
    ],
}


def test_tables_and_figures_have_what_was_seen() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    outside = "goes on, rounds of 1.5 ms at most"
    assert sheet.rows == (
        ("illegal address", "best-effort", "error 700", outside, "1.2", "yes"),
        ("illegal address", "critical", "goes on", outside, "1.2", "no"),
    )
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["faults/illegal address/best-effort/served again, s"] == 1.25
    assert figures["faults/illegal address/best-effort/the other side goes on"] == 0
    assert figures["faults/illegal address/critical/the other side goes on"] == 1
    assert figures["faults/illegal address/critical/a vGPU outside goes on"] == 1


def test_the_picture_says_what_others_lost() -> None:
    pytest.importorskip("matplotlib")
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert figure.get_suptitle().startswith("In 2 of 2 scenes a vGPU outside of the space goes on")
        assert len(figure.axes[0].patches) == 2
