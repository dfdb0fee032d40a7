"""What memory costs: the arithmetic on made records, what is refused, and one short run on softgpu. No time is asserted of that."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, allocation
from benchmarks.pictures import ALL, drawn
from benchmarks.results import section
from benchmarks.style import THEMES

EXPERIMENT = EXPERIMENTS["allocation"]
HEAD = {"experiment": "allocation", "device": "softgpu", "date": "2026-01-02"}
SHORT = ("--device", "soft", "--repetitions", "1", "--rounds", "1", "--small", "20", "--mib", "2")


def record(system: str, repetition: int, us: float, speed: float = 100.0, nr_bytes: int = 1 << 20) -> dict[str, Any]:
    """One whose every step takes so long."""
    return {
        "kind": allocation.KIND,
        "system": system,
        "repetition": repetition,
        "mib": 64,
        "malloc": [[1 << 10, us, us], [nr_bytes, 2 * us, us]],
        "released": [[1 << 10, us, us, us]],
        "kept": [[1 << 10, us, us, us]],
        "small_us": 1000 * us,
        **dict.fromkeys(allocation.USES, speed),
    }


DOCUMENT = {
    **HEAD,
    "records": [
        record("native", 0, 10),
        record("span", 0, 8, 99.0),
        record("driver", 0, 20),
        record("native", 1, 20),
        record("span", 1, 12, 101.0),
    ],
}


def test_ratios_are_of_two_runs_of_one_repetition() -> None:
    assert allocation.ratios(DOCUMENT, "span", "malloc") == {
        1 << 10: pytest.approx([0.8, 0.6]),
        1 << 20: pytest.approx([0.8, 0.6]),
    }
    assert allocation.ratios(DOCUMENT, "driver", "kept") == {1 << 10: [2.0]}
    assert allocation.ratios_of(DOCUMENT, "span", "kernel") == pytest.approx([0.99, 1.01])
    assert allocation.ratios({"records": DOCUMENT["records"][1:3]}, "span", "malloc") == {}


def test_a_size_that_native_lacks_has_no_ratio() -> None:
    found = {"records": [record("native", 0, 10), record("span", 0, 10, nr_bytes=1 << 21)]}
    assert list(allocation.ratios(found, "span", "malloc")) == [1 << 10]
    by_size, _ = EXPERIMENT.sheets(found)
    assert [row[1:6] for row in by_size.rows[1:3]] == [
        ("1 MiB", "20.0 + 10.0", "-", "-", "-"),
        ("2 MiB", "-", "20.0 + 10.0", "-", "-"),
    ]


def test_figures_are_means_of_each_guest() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["span/malloc/1 MiB/time over native"] == pytest.approx(0.7)
    assert figures["driver/malloc/1 KiB/time over native"] == pytest.approx(2.0)
    assert figures["span/small/time over native"] == pytest.approx(0.7)
    assert figures["span/to_device/of native"] == pytest.approx(1.0)


def test_sheets_have_a_row_for_each_way_and_size() -> None:
    by_size, others = EXPERIMENT.sheets(DOCUMENT)
    assert [row[:2] for row in by_size.rows] == [
        ("cudaMalloc, cudaFree", "1 KiB"),
        ("cudaMalloc, cudaFree", "1 MiB"),
        ("a pool that gives all back", "1 KiB"),
        ("a pool that keeps all", "1 KiB"),
    ]
    assert by_size.rows[1][2:5] == ("30.0 + 15.0", "20.0 + 10.0", "40.0 + 20.0")
    assert by_size.rows[1][5].startswith("0.70 ± ")
    assert by_size.rows[1][6:] == ("2.00", "at most 1")
    assert others.rows[0][:5] == ("small pieces", "ms", "15", "10", "20")
    assert others.rows[1][5].startswith("1.000 ± ")
    assert all(row[-1] == allocation.USE_AIM for row in others.rows[1:])


@pytest.mark.parametrize("nr_records", [1, 5])
def test_a_picture_says_what_it_shows(nr_records: int) -> None:
    [picture] = [picture for picture in ALL if picture.name == "allocation"]
    text = drawn(picture, {**HEAD, "records": DOCUMENT["records"][:nr_records]}, THEMES["light"]).decode()
    assert ("0.7 to 0.7 times native" if nr_records > 1 else "nothing to compare") in text
    for words in ("1 MiB", "FairGV, span", *allocation.WAYS.values()):
        assert words in text


def test_nothing_measured_is_nothing_to_show() -> None:
    assert EXPERIMENT.figures({"records": []}) == {}
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({"records": []}, None)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--sizes", "1K,0"), "no memory has a size of 0"),
        (("--sizes", "1K,much"), "'much' is not a size"),
        (("--sizes", ""), "'' is not a size"),
        (("--small", "0"), "not a whole number above 0"),
        (("--mib", "-1"), "not a whole number above 0"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["allocation", "--device", "soft", *words])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_sizes_are_told_once_and_in_order() -> None:
    assert allocation.sizes("2M,1K,2048k") == [1 << 10, 2 << 20]


def test_a_run_has_all_three(tmp_path: Path) -> None:
    path, plot = tmp_path / "found.json", tmp_path / "found.svg"
    words = ("--sizes", "1K,2M,1T", "--json", str(path), "--plot", str(plot))
    assert main(["allocation", *SHORT, *words]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert document["refused"] == ["1 TiB: more than half of the device's memory"]
    assert [each["system"] for each in document["records"]] == ["native", "span", "driver"]
    for each in document["records"]:
        for way, nr_steps in (("malloc", 2), ("released", 3), ("kept", 3)):
            assert [(nr_bytes, len(us)) for nr_bytes, *us in each[way]] == [(1 << 10, nr_steps), (2 << 20, nr_steps)]
        assert min(each["small_us"], *(each[use] for use in allocation.USES)) > 0
    assert "Getting memory and giving it back" in section(document)
    assert plot.read_text().lstrip().startswith("<?xml")


def test_sizes_that_all_are_too_large(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert main(["allocation", *SHORT, "--sizes", "1T", "--json", str(path)]) == 1
    document = json.loads(path.read_text())
    assert "native: no size fits half of the device's memory" in document["failures"]
