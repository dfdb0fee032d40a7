"""Programs that move between Gpus: the arithmetic on made records, what is refused, and one short run on softgpu."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, migration
from benchmarks.pictures import ALL, drawn
from benchmarks.style import THEMES

EXPERIMENT = EXPERIMENTS["migration"]
HEAD = {"experiment": "migration", "device": "softgpu", "date": "2026-01-02"}
GIB = 1 << 30


def record(size: int, memory: str, *pauses_s: float) -> dict[str, Any]:
    return {
        "kind": migration.KIND,
        "size": size,
        "memory": memory,
        "repetition": 0,
        "rate": 100.0,
        "passes": 700,
        "took_s": 10.0,
        "longest_s": 1.5,
        "pauses_s": list(pauses_s),
        "seconds_s": 2.0,
    }


DOCUMENT = {
    **HEAD,
    "records": [
        record(GIB, "replay", 0.02, 0.03),
        record(GIB, "span", 0.9, 1.0, 1.1),
        record(GIB, "driver", 2.0, 2.0),
        record(8 * GIB, "span", 1.25),
    ],
}


def test_what_is_lost_is_of_half_a_minute() -> None:
    found = [(each.name, each.detail, round(each.ours, 6)) for each in EXPERIMENT.findings(DOCUMENT)]
    assert found == [
        ("dcuda_migration", "1 GiB", 0.05),
        ("dcuda_checkpoint", "1 GiB", 0.033333),
        ("dcuda_checkpoint", "8 GiB", 0.1),
    ]
    assert EXPERIMENT.figures(DOCUMENT) == {
        "replay/1024 MiB/pause": 0.025,
        "replay/1024 MiB/lost": pytest.approx(1.5 / 30),
        "span/1024 MiB/pause": 1.0,
        "span/1024 MiB/lost": pytest.approx(1 / 30),
        "driver/1024 MiB/pause": 2.0,
        "driver/1024 MiB/lost": pytest.approx(1.5 / 30),
        "span/8192 MiB/pause": 1.25,
        "span/8192 MiB/lost": pytest.approx(0.1),
    }


def test_the_table_has_a_row_for_each_way() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    rows = {row[:2]: row[2:] for row in sheet.rows}
    assert rows["1 GiB", "span"] == ("3", "1.0000", "1.0980", "1.500", "2.000", "1.000", "3.33 %")
    assert rows["1 GiB", "replay"][1:3] == ("0.0250", "0.0299")
    assert set(rows) == {("1 GiB", "replay"), ("1 GiB", "span"), ("1 GiB", "driver"), ("8 GiB", "span")}
    assert EXPERIMENT.sheets({**HEAD, "records": []}) == []


def test_the_picture_begins_with_its_finding() -> None:
    [picture] = [picture for picture in ALL if picture.name == "migration"]
    assert "with 1 GiB stands still for 25 ms" in drawn(picture, DOCUMENT, THEMES["light"]).decode()
    without = {**DOCUMENT, "records": DOCUMENT["records"][1:]}
    assert "with 8 GiB stands still for 1.25 s" in drawn(picture, without, THEMES["light"]).decode()
    with pytest.raises(NotMeasurableError, match="no program was moved"):
        EXPERIMENT.plot({"records": []}, None)


def test_the_picture_of_what_a_move_costs() -> None:
    [picture] = [picture for picture in ALL if picture.name == "migration-parts"]
    text = drawn(picture, DOCUMENT, THEMES["light"]).decode()
    assert "One move of a program with 1 GiB costs 5 % of a run of half a minute, by replay" in text
    assert "NVCR's most" in text
    without_loss = {**record(GIB, "replay", 0.02), "took_s": 7.0}
    with pytest.raises(NotMeasurableError, match="no program was moved"):
        drawn(picture, {**HEAD, "records": [without_loss]}, THEMES["light"])


@pytest.mark.parametrize(("words", "said"), [(("--sizes", "1M,much"), "'much' is not a size"), (("--moves", "0"), "")])
def test_words_that_cannot_be(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    if said:
        with pytest.raises(SystemExit) as ended:
            main(["migration", "--device", "soft", *words])
        assert ended.value.code == 2
    else:
        assert main(["migration", "--device", "soft", *words]) == 1
    assert (said or "--moves: one at least") in capsys.readouterr().err


def test_a_run_moves_a_program_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    path = tmp_path / "found.json"
    words = ("--device", "soft", "--sizes", "8M", "--moves", "2", "--seconds", "1", "--json", str(path))
    assert main(["migration", *words]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert [(each["memory"], len(each["pauses_s"])) for each in document["records"]] == [
        ("replay", 2),
        ("span", 2),
        ("driver", 2),
    ]
    assert all(0 < pause < each["took_s"] for each in document["records"] for pause in each["pauses_s"])


def test_on_one_gpu_nothing_moves(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ("--device", "soft", "--sizes", "8M", "--seconds", "1", "--memory", "span", "--json", str(path))
    assert main(["migration", *words]) == 1
    [failure] = json.loads(path.read_text())["failures"]
    assert "vgpu-0 does not move to GPU 1" in failure
