"""Turns within a space, on softgpu, and the arithmetic on made records. No time is asserted."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cli import main
from benchmarks.experiments import EXPERIMENTS
from benchmarks.space import turns
from benchmarks.style import THEMES, figure_of

EXPERIMENT = EXPERIMENTS["space"]
HEAD = {"experiment": "space", "device": "softgpu", "date": "2026-01-02"}


def test_turns_are_measured_in_a_space_and_in_none(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert main(["space", "--device", "soft", "--only", "turns", "--seconds", "0.5", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    found = [(record["kind"], record["where"]) for record in document["records"]]
    assert found == [(kind, where) for where in turns.WHERE for kind in (turns.GAPS, turns.SHARES)]
    assert all(record["slice_ms"] == turns.SLICE_MS for record in document["records"])
    assert all(len(record["throughputs"]) == 3 for record in document["records"] if record["kind"] == turns.SHARES)


def test_a_gap_is_from_the_last_end_of_one_to_the_begin_of_another() -> None:
    first, second = ([[0, 1000], [2000, 3000], [9000, 9500]], [[4000, 5000], [5100, 6000]])
    logs = [np.array(log, dtype=np.uint64) for log in (first, second)]
    assert turns.gaps_us(logs) == (1.0, 3.0)


def test_kernels_at_the_same_time_are_a_gap_below_0() -> None:
    first, second = ([[0, 5000]], [[4000, 4500], [4600, 6000]])
    logs = [np.array(log, dtype=np.uint64) for log in (first, second)]
    assert turns.gaps_us(logs) == (-1.0,)


DOCUMENT = {
    **HEAD,
    "records": [
        {"kind": turns.GAPS, "where": turns.INSIDE, "nr": 500, "gaps_us": {"50": 12.25, "90": 20.0, "99": 40.0}},
        {
            "kind": turns.SHARES,
            "where": turns.INSIDE,
            "weights": [1, 2, 3],
            "alone": 6.0,
            "throughputs": [1.0, 2.0, 2.97],
            "min_max_ratio": 0.99,
        },
        {"kind": turns.GAPS, "where": turns.OUTSIDE, "nr": 400, "gaps_us": {"50": 139.0, "90": 150.0, "99": 160.0}},
    ],
}


def test_tables_and_figures_have_what_was_measured() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    assert sheet.rows == (
        ("in a space", "12.2", "20.0", "40.0", "500", "0.990"),
        ("in none", "139.0", "150.0", "160.0", "400", "-"),
    )
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["turns/in a space/gap us/50"] == 12.25
    assert figures["turns/in a space/min-max ratio"] == 0.99
    assert "turns/in none/min-max ratio" not in figures


def test_the_picture_tells_both_gaps() -> None:
    pytest.importorskip("matplotlib")
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert figure.get_suptitle().startswith("Between two turns in a space there are 12 us, in none 139")
        heights = [patch.get_height() for patch in figure.axes[0].patches]
        assert heights == pytest.approx([1, 1, 0.99])
