"""Turns that are kept beside turns that are given up: the arithmetic on made records, the simulation that it stands for, and a short run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.experiments import EXPERIMENTS, kept_turns
from benchmarks.paper import claims
from benchmarks.results import section

EXPERIMENT = EXPERIMENTS["kept-turns"]


def record(turn: str, times: Sequence[float], *, is_kept: bool, repetition: int = 0) -> dict[str, Any]:
    rest = {"nr_requests": 100, "nr_turns": 150, "turn_ms": 80.0, "overuse_ms": 0.5, "held": 0.02, "useful": 0.25}
    programs = [{"workload": "any", "request_ms": each, **rest} for each in times]
    names = {"kind": kept_turns.KIND, "turn": turn, "is_kept": is_kept, "repetition": repetition}
    return names | {"seconds": 1.0, "programs": programs}


DOCUMENT = {
    "records": [
        record("80 ms", (90, 120, 150), is_kept=True),
        record("bursts", (60, 90, 120), is_kept=True),
        record("80 ms", (60, 90, 120), is_kept=False),
        record("bursts", (50, 90, 130), is_kept=False),
        record("bursts", (70, 100, 130), is_kept=True, repetition=1),
    ]
}


def test_fixed_turns_stand_beside_those_by_bursts_of_the_same_way() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures == {
        "kept/80 ms/over bursts": pytest.approx(120 / 95),
        "given up/80 ms/over bursts": pytest.approx(1),
    }
    assert EXPERIMENT.figures({"records": DOCUMENT["records"][:1]}) == {}


def test_the_finding_has_both_ways() -> None:
    [finding] = EXPERIMENT.findings(DOCUMENT)
    assert (finding.name, finding.detail) == ("gemini_tokens", "1.000 where turns are given up")
    assert finding.ours == pytest.approx(120 / 95)
    assert EXPERIMENT.findings({"records": DOCUMENT["records"][:2]}) == []


def test_sheets_have_what_holders_kept_idle() -> None:
    kept, given = EXPERIMENT.sheets(DOCUMENT)
    assert kept.rows[0] == ("80 ms", "90.0 120.0 150.0", "120.0", "1.26", "0.060", "0.750", "1.50", "0.50")
    assert kept.rows[1][:2] == ("bursts", "65.0 95.0 125.0")
    assert given.rows[0][3] == "1.00"


def test_a_run_shows_gemini_s_gain_where_turns_are_kept_alone(tmp_path: Path) -> None:
    path, plot = tmp_path / "found.json", tmp_path / "found.png"
    words = ("--device", "soft", "--seconds", "60", "--turns-ms", "80")
    assert main(["kept-turns", *words, "--json", str(path), "--plot", str(plot)]) == 0
    document = json.loads(path.read_text())
    assert document["device"] == kept_turns.SIMULATOR
    assert document["failures"] == []
    [finding] = EXPERIMENT.findings(document)
    assert claims()[finding.name].verdict(finding.ours) == "reached"
    assert EXPERIMENT.figures(document)["given up/80 ms/over bursts"] == pytest.approx(1, abs=0.05)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "Turns that are kept" in section(document)
