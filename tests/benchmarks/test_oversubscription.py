"""Programs with more memory than the device: the arithmetic on made records, what is refused, and one short run on softgpu."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, oversubscription
from benchmarks.paper import Finding
from benchmarks.pictures import ALL, drawn
from benchmarks.style import THEMES

EXPERIMENT = EXPERIMENTS["oversubscription"]
HEAD = {"experiment": "oversubscription", "device": "softgpu", "date": "2026-01-02"}
GIB = 1 << 30


def record(load: str, nr: int, rate: float, repetition: int = 0) -> dict[str, Any]:
    return {
        "kind": oversubscription.KIND,
        "load": load,
        "nr": nr,
        "repetition": repetition,
        "memory": 16 * GIB,
        "passes": [10] * nr,
        "rate": rate,
        "least": 1.0,
        "longest_s": 0.5,
        "out_bytes": 3 * GIB,
        "in_bytes": 2 * GIB,
    }


DOCUMENT = {
    **HEAD,
    "records": [
        record("pair", 1, 100),
        record("pair", 2, 80),
        record("servers", 1, 20),
        record("servers", 6, 120),
        record("servers", 10, 90),
        record("servers", 10, 60, repetition=1),
    ],
}


def test_ratios_are_of_runs_of_one_repetition() -> None:
    assert oversubscription.over_serial(DOCUMENT, "pair", 2) == [1.25]
    assert oversubscription.over_serial(DOCUMENT, "pair", 1) == []
    assert oversubscription.over_serial(DOCUMENT, "servers", 10) == [pytest.approx(20 / 90)]
    assert oversubscription.over_fitting(DOCUMENT, 10) == [0.75]
    assert EXPERIMENT.findings(DOCUMENT) == []
    nine = {**DOCUMENT, "records": [*DOCUMENT["records"], record("servers", 9, 50)]}
    assert EXPERIMENT.findings(nine) == [Finding("gemini_memory", "9 servers", 2.5)]
    assert EXPERIMENT.figures(DOCUMENT) == {
        "pair/2/time over serial": 1.25,
        "servers/6/time over serial": pytest.approx(20 / 120),
        "servers/10/time over serial": pytest.approx(20 / 90),
        "servers/10/of 86 %": 0.75,
    }


def test_the_table_tells_what_moved() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    rows = {(row[0], row[1]): row for row in sheet.rows}
    assert rows["pair", "2"][2:8] == ("180 %", "80", "1.250", "-", "3.00", "2.00")
    assert rows["servers", "10"][2] == "144 %"
    assert EXPERIMENT.sheets({**HEAD, "records": []}) == []


def test_the_picture_begins_with_its_finding() -> None:
    [picture] = [picture for picture in ALL if picture.name == "oversubscription"]
    text = drawn(picture, {**HEAD, "records": DOCUMENT["records"][:5]}, THEMES["light"]).decode()
    for words in ("144 %", "0.75 of what", "4.5 times", "one after the other"):
        assert words in text
    with pytest.raises(NotMeasurableError, match="no servers were measured"):
        EXPERIMENT.plot({"records": []}, None)


def test_a_size_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["oversubscription", "--device", "soft", "--memory", "much"])
    assert ended.value.code == 2
    assert "'much' is not a size" in capsys.readouterr().err


def test_a_run_tells_what_moved(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ("--device", "soft", "--memory", "64M", "--seconds", "3", "--loads", "pair", "--json", str(path))
    assert main(["oversubscription", *words]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    alone, together = document["records"]
    assert (alone["nr"], alone["out_bytes"], alone["in_bytes"]) == (1, 0, 0)
    assert together["nr"] == 2
    assert together["out_bytes"] > 0 < together["in_bytes"]
    assert min(*alone["passes"], *together["passes"]) > 0
