"""The paper's figures as data, and the verdicts on ours."""

import math

import pytest

from benchmarks.build import NAMES
from benchmarks.experiments import EXPERIMENTS
from benchmarks.paper import Claim, Finding, claims, paper
from benchmarks.systems import OURS


def test_table_3_has_the_twelve_programs_and_adds_up() -> None:
    table = paper()["table3"]
    assert len(table) == 12
    assert set(table) <= set(NAMES)
    for name, row in table.items():
        assert row["asynchronous"] + row["synchronous"] == pytest.approx(row["total"], abs=0.02), name
        assert row["interactive"] == (row["synchronous"] > 10), name


def test_other_programs_stand_beside_nothing_of_the_paper() -> None:
    profile = {"kind": "profile", "kernel_us": 12, "total": 3, "asynchronous": 2, "synchronous": 1}
    ratios = {"scan": 2.0, "streamcluster": 8.0}
    programs = [
        {"kind": "program", "program": name, "native": ratio, "guest": 1.0, "unit": "points/s"}
        for name, ratio in ratios.items()
    ]
    document = {"records": [*programs, *({**profile, "program": name} for name in ratios)]}
    overhead = EXPERIMENTS["overhead"]
    [finding] = overhead.findings(document)
    assert finding.ours == pytest.approx(2.0)
    times, asked = ({row[0]: row[1:] for row in sheet.rows} for sheet in overhead.sheets(document))
    assert (times["scan"][4], times["streamcluster"][4], times["geometric mean"][3]) == ("close to 1", "-", "2.000")
    assert asked["scan"][:2] == ("12", "171")
    assert asked["streamcluster"] == ("12", "-", "3.00", "-", "2.00", "-", "1.00", "-", "no", "-")
    others = {"records": [record for record in document["records"] if record["program"] != "scan"]}
    assert overhead.findings(others) == []


@pytest.mark.parametrize(
    ("name", "is_theirs"), [("scan", True), ("kernels of 50 us, 300 in a row", True), ("langevin", False)]
)
def test_the_paper_claims_nothing_of_other_programs(name: str, is_theirs: bool) -> None:
    guest = {"weight": 1, "workload": name, "throughput": 1.0, "alone": 3.0, "alone_native": 3.0, "charged_s": 1.0}
    guests = [{**guest, "weight": weight, "throughput": 0.5 * weight} for weight in (1, 2, 3)]
    together = {"kind": "together", "mixture": name, "system": OURS, "guests": guests}
    mixed = {**together, "program": name, "background_us": 50.0, "guests": [guest, guest]}
    charges = {"kind": "program", "program": name, "kernel_us": 100.0, "charged_us": 101.0}
    for experiment, record in (("mmr", together), ("mixed", mixed), ("accounting", charges)):
        findings = EXPERIMENTS[experiment].findings({"records": [record]})
        assert len(findings) == is_theirs, experiment


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
