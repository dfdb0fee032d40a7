"""The paper's figures as data, and the verdicts on ours."""

import math

import pytest

from benchmarks.build import NAMES
from benchmarks.experiments import EXPERIMENTS
from benchmarks.paper import Claim, Finding, claims, paper


def test_table_3_has_the_twelve_programs_and_adds_up() -> None:
    table = paper()["table3"]
    assert set(table) == set(NAMES)
    for name, row in table.items():
        assert row["asynchronous"] + row["synchronous"] == pytest.approx(row["total"], abs=0.02), name
        assert row["interactive"] == (row["synchronous"] > 10), name


def test_table_2_has_the_errors_that_its_times_give() -> None:
    for name, row in paper()["table2"].items():
        error = 100 * (row["fairgv_us"] / row["nvidia_us"] - 1)
        assert error == pytest.approx(row["error_percent"], abs=0.6), name


def test_every_claim_says_where_it_stands() -> None:
    for claim in claims().values():
        assert claim.source.startswith(("Figure", "Table"))
        assert "section" in claim.source
        assert claim.relation in ("at least", "at most", "about")


@pytest.mark.parametrize(
    ("relation", "better", "ours", "verdict"),
    [
        ("at least", "", 1.0, "reached"),
        ("at least", "", 0.99, "behind"),
        ("at most", "", 1.0, "reached"),
        ("at most", "", 1.01, "behind"),
        ("about", "", 1.01, "reached"),
        ("about", "", 0.9, "behind"),
        ("about", "less", 0.9, "better"),
        ("about", "less", 1.1, "behind"),
        ("about", "less", math.nan, "-"),
    ],
)
def test_verdicts(relation: str, better: str, ours: float, verdict: str) -> None:
    assert Claim("Figure 0", "something", relation, 1.0, better).verdict(ours) == verdict


@pytest.mark.parametrize(
    ("relation", "value", "better", "ours", "worst"),
    [
        ("at least", 1.0, "", (1.2, 0.9, 1.0), 0.9),
        ("at most", 1.0, "", (1.2, 0.9, 1.0), 1.2),
        ("about", 2.0, "", (2.1, 1.5, 2.2), 1.5),
        ("about", 1.0, "less", (0.5, 1.1, 1.0), 1.1),
        ("about", math.nan, "", (0.9, 1.0, 0.8), 0.8),
    ],
)
def test_the_worst_of_several(relation: str, value: float, better: str, ours: tuple[float, ...], worst: float) -> None:
    claim = Claim("Figure 0", "something", relation, value, better)
    assert claim.worst([Finding("any", "", each) for each in ours]).ours == worst


def test_a_drawing_is_not_judged() -> None:
    assert Finding("work_conserving", "80 %", 0.9).cells()[2:] == ("drawn only", "0.900", "-")


def test_experiments_have_a_summary_with_the_figure_they_repeat() -> None:
    text = " ".join(experiment.summary for experiment in EXPERIMENTS.values())
    for what in ("Figures 2 and 7", "Table 3", "Figures 8 and 9", "Figure 10", "Figure 11", "Table 2", "Table 4"):
        assert what in text
