"""GLoop's evaluation: the arithmetic on made records, and short runs on softgpu. No time is asserted of those."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.gloop import apps, many, points, servers, shares
from benchmarks.gloop.ports import port
from benchmarks.paper import Finding, claims
from benchmarks.style import THEMES, figure_of

EXPERIMENT = EXPERIMENTS["gloop"]
HEAD = {"experiment": "gloop", "device": "softgpu", "date": "2026-01-02"}


def app(
    name: str, way: str, kernel_s: float, round_s: float = 9.0, system: str = "native", repetition: int = 0
) -> dict[str, Any]:
    found = {"kernel_s": kernel_s, "round_s": round_s, "rounds": 3}
    return {"kind": apps.KIND, "app": name, "way": way, "system": system, "repetition": repetition, **found}


def instances(
    kind: str, program: str, way: str, system: str, throughputs: list[float], slice_ms: float | None = None
) -> dict[str, Any]:
    found = {"program": program, "way": way, "system": system, "nr": len(throughputs), "slice_ms": slice_ms}
    return {"kind": kind, **found, "throughputs": throughputs, "repetition": 0}


def share(weights: list[int], got: list[float], charged: list[float]) -> dict[str, Any]:
    guests = [{"throughput": one, "charged_s": other} for one, other in zip(got, charged, strict=True)]
    gave_way = {"50000": 90, "100000": 9, "more": 1}
    return {
        "kind": shares.KIND,
        "target": "tpacf",
        "weights": weights,
        "alone": [10.0] * len(got),
        "guests": guests,
        "gave_way": gave_way,
    }


def served(way: str, others: list[str], parts: list[float], p99: float, busy: float) -> dict[str, Any]:
    each = [
        {
            "part": one,
            "kernels": 1.5,
            "requests": 9,
            "request_us": p99 / 2,
            "request_p50_us": p99 / 3,
            "request_p99_us": p99,
        }
        for one in parts
    ]
    found = {"way": way, "nr_servers": len(parts), "others": others, "message_us": 500.0}
    return {"kind": servers.KIND, **found, "servers": each, "beside": [], "busy": busy}


RECORDS = [
    {"kind": points.KIND, "step": points.POINT, "us": 0.4},
    {"kind": points.KIND, "step": points.LAUNCH, "us": 3.2},
    {"kind": points.KIND, "step": points.FAR, "us": 0.6},
    {"kind": points.KIND, "step": points.WIDE, "us": 0.44},
    app("tpacf", "plain", 2.0),
    app("tpacf", "gloop", 2.02),
    app("lavaMD", "plain", 1.0),
    app("lavaMD", "gloop", 0.99),
    app("hybridsort", "plain", 1.0),
    app("hybridsort", "split", 2.2),
    app("hybridsort", "gloop", 1.0),
    app("hybridsort", "gloop", 1.2, repetition=1),
    app("grep", "plain", 1.0, 2.0),
    app("grep", "gloop", 5.0, 1.9),
    instances(many.INSTANCES, "throttle", "gloop", "fair", [8.0]),
    instances(many.INSTANCES, "throttle", "gloop", "fair", [1.0] * 8),
    instances(many.INSTANCES, "throttle", "gloop", "fair", [3.0, 5.0], 1.0),
    instances(many.PREEMPTION, "lavaMD", "plain", "native", [2.1]),
    instances(many.PREEMPTION, "lavaMD", "plain", "native", [1.0, 1.0]),
    instances(many.PREEMPTION, "lavaMD", "gloop", "fair", [1.1, 1.1]),
    share([1, 1], [5.0, 4.0], [1.0, 1.0]),
    share([2, 1], [6.0, 3.0], [2.0, 1.0]),
    served("gloop", [], [0.2], 900, 0.2),
    served("gloop", ["throttle"], [0.2, 0.19], 1800, 0.99),
]
DOCUMENT = {**HEAD, "records": RECORDS}


def test_figures() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["points/launch over point"] == pytest.approx(8)
    assert figures["points/global over shared"] == pytest.approx(1.5)
    assert figures["points/1024 threads over 1"] == pytest.approx(1.1)
    assert figures["apps/hybridsort/gloop over plain"] == pytest.approx(1.1)
    assert figures["apps/hybridsort/split over gloop"] == pytest.approx(2)
    assert figures["instances/throttle/8/time over alone"] == 8
    assert figures["instances/deviation"] == pytest.approx(0.25)
    assert figures["preemption/2/gain"] == pytest.approx(0.1)
    assert figures["shares/tpacf/1:1/min-max ratio"] == pytest.approx(0.8)
    assert figures["shares/tpacf/2:1/min-max ratio"] == pytest.approx(1)
    assert figures["shares/tpacf/2:1/part"] == pytest.approx(2 / 3)
    assert figures["servers/gloop/2 beside 1 throttle/p99 over alone"] == 2
    assert figures["servers/gloop/2 beside 1 throttle/least part"] == 0.19


def test_of_grep_the_whole_round_counts() -> None:
    """Its kernel reads and writes by callbacks, and does not where it is plain."""
    assert EXPERIMENT.figures(DOCUMENT)["apps/grep/gloop over plain"] == pytest.approx(0.95)


def test_findings_stand_beside_the_paper_s() -> None:
    found = {finding.name: finding for finding in EXPERIMENT.findings(DOCUMENT)}
    assert set(found) <= set(claims())
    assert found["gloop_apps"] == Finding("gloop_apps", "the largest", 2.02 / 2)
    assert found["gloop_point"].ours == 0.4
    assert found["gloop_eight"].cells()[-1] == "reached"
    assert found["gloop_slots"].cells()[-1] == "reached"
    assert found["gloop_deviation"].cells()[-1] == "behind"
    assert "gloop_images" not in found


def test_what_preemption_costs_is_told_of_each_number_of_programs() -> None:
    three = [
        instances(many.PREEMPTION, "lavaMD", way, system, [done] * 3)
        for way, system, done in (("plain", "native", 1.0), ("gloop", "fair", 0.9))
    ]
    found = EXPERIMENT.findings({**HEAD, "records": [*RECORDS, *three]})
    told = {each.detail: each.ours for each in found if each.name == "gloop_preemption"}
    assert told == {"2 programs": pytest.approx(0.1), "3 programs": pytest.approx(-0.1)}


def test_kernels_that_gave_way_are_counted_by_bounds() -> None:
    counts = {"100000": 9, "50000": 90, "more": 1}
    assert shares.bound_us(counts, 50) == 50
    assert shares.bound_us(counts, 99) == 100
    assert shares.bound_us(counts, 100) == float("inf")
    assert shares.bound_us({}, 50) is None


def test_tables_have_what_was_measured() -> None:
    sheets = {sheet.title: sheet for sheet in EXPERIMENT.sheets(DOCUMENT)}
    assert len(sheets) == 6
    assert sheets["What a step costs"].rows[0] == (points.LAUNCH, "3.2", "8.00")
    assert sheets["Ports in their three ways"].rows[0] == ("tpacf", "2000", "1.010", "-", "-", "-")
    assert sheets["A port beside throttles, by weight"].rows[0] == (
        "tpacf",
        "1:1",
        "0.800",
        "0.500",
        "100",
        "50",
        "100",
    )
    assert sheets["Servers beside others"].rows[1][3:] == ("0.20 0.19", "600", "1800", "1.5", "0.990")
    assert EXPERIMENT.sheets({**HEAD, "records": []}) == []


def test_the_picture_has_a_panel_for_each_part() -> None:
    pytest.importorskip("matplotlib")
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert len(figure.axes) == 6
        assert figure.get_suptitle().startswith("A scheduling point takes 0.4 us, a launch instead 8.0 times")
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({**HEAD, "records": []}, None)


def test_ports_take_the_size_of_the_device() -> None:
    assert port("tpacf", "plain", "cuda").arguments == ("--way", "plain", "--size", "gpu", "--json", "--no-check")
    assert port("throttle", "gloop", "soft", "--threads", "2", size="5").arguments[2:4] == ("--size", "5")


def test_shares_are_measured_until_the_least_weight_had_its_turns() -> None:
    assert shares.stretch_s((1, 1), 3, "cuda") == 3
    assert shares.stretch_s((14, *(1,) * 7), 3, "cuda") == shares.NR_TURNS * shares.SLICE_MS / 1000 * 21
    assert shares.stretch_s((14, *(1,) * 7), 3, "soft") == 3


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["gloop", "--device", "soft", "--only", "points,much"])
    assert ended.value.code == 2
    assert "there is no much; there are points, apps, instances" in capsys.readouterr().err


def measured(path: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["gloop", "--device", "soft", *words, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    found: list[dict[str, Any]] = document["records"]
    assert found
    return found


def test_points_are_measured(tmp_path: Path) -> None:
    found = measured(tmp_path / "found.json", "--only", "points")
    assert {record["step"] for record in found} == {step.label for step in points.STEPS_OF if step.blocks <= 1}
    assert min(record["us"] for record in found) > 0


def test_servers_are_measured_beside_a_throttle(tmp_path: Path) -> None:
    found = measured(tmp_path / "found.json", "--only", "servers", "--seconds", "1.5")
    assert [record["others"] for record in found] == [[], ["throttle"]]
    for record in found:
        assert record["servers"][0]["requests"] > 0
        assert 0 < record["servers"][0]["part"] <= record["busy"]
    assert found[1]["beside"][0]["throughput"] > 0
