"""What programs lose while one is copied ahead: arithmetic on made records, what is refused, one move on two softgpus."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiments import EXPERIMENTS, ahead
from benchmarks.experiments.ahead import ALONE, BESIDE, LEFT, MOVED, THERE, Progress
from benchmarks.style import THEMES, figure_of

EXPERIMENT = EXPERIMENTS["ahead"]
HEAD = {"experiment": "ahead", "device": "some GPU", "date": "2026-01-02"}


def record(scene: str, *slower: dict[str, float]) -> dict[str, Any]:
    moves = [{"ahead_s": 0.5, "pause_s": 0.01, "slower": each} for each in slower]
    return {"kind": ahead.KIND, "size": 1 << 30, "scene": scene, "changed": 10, "repetition": 0, "moves": moves}


DOCUMENT = {
    **HEAD,
    "records": [
        record(ALONE, {MOVED: 0.02}, {MOVED: 0.04}),
        record(BESIDE, {MOVED: 0.0, LEFT: 0.01, THERE: -0.01}, {MOVED: 0.02, LEFT: 0.03, THERE: 0.01}),
    ],
}


def test_what_is_done_between_two_looks_is_spread_over_them() -> None:
    progress = Progress([(10.0, 0), (11.0, 100), (12.0, 150)])
    assert progress.rate(10.0, 11.0) == pytest.approx(100)
    assert progress.rate(10.5, 11.5) == pytest.approx(75)
    assert progress.slower(11.0, 11.5) == pytest.approx(0.5)
    assert progress.slower(11.0, 12.0) == pytest.approx(0.5)


def test_who_did_nothing_before_is_not_compared() -> None:
    with pytest.raises(ProgramFailedError, match="it did nothing for 1 s before the move"):
        Progress([(10.0, 5), (11.0, 5), (12.0, 50)]).slower(11.0, 12.0)


def test_figures_are_means_over_moves() -> None:
    assert EXPERIMENT.figures(DOCUMENT) == pytest.approx(
        {
            "alone/1024 MiB/moved": 0.03,
            "beside/1024 MiB/moved": 0.01,
            "beside/1024 MiB/left": 0.02,
            "beside/1024 MiB/there": 0.0,
        }
    )


def test_the_table_and_the_plot_say_who_loses() -> None:
    [sheet] = EXPERIMENT.sheets(DOCUMENT)
    assert sheet.rows[0] == ("1 GiB", "10 %", ALONE, ahead.WHO[MOVED], "2", "0.500", "+3.0%", "+4.0%")
    assert [row[3:] for row in sheet.rows[2:]] == [
        (ahead.WHO[LEFT], "2", "0.500", "+2.0%", "+3.0%"),
        (ahead.WHO[THERE], "2", "0.500", "+0.0%", "+1.0%"),
    ]
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert "the program that is copied is 3.0 % slower" in figure.texts[0].get_text().replace("\n", " ")
        assert len(figure.axes[0].get_xticklabels()) == 4


def test_nothing_measured_is_nothing_to_show() -> None:
    assert EXPERIMENT.sheets({"records": []}) == []
    assert EXPERIMENT.figures({"records": []}) == {}
    with pytest.raises(NotMeasurableError, match="no program was moved"):
        EXPERIMENT.plot({"records": []}, None)


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("--changed", "101"), 1, "--changed: from 0 to 100"),
        (("--moves", "0"), 2, "not a whole number above 0"),
        (("--sizes", "much"), 2, "much"),
        (("--kernel-us", "0"), 2, "not above 0"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if status == 2:
        with pytest.raises(SystemExit) as ended:
            main(["ahead", "--device", "soft", *words])
        assert ended.value.code == status
    else:
        assert main(["ahead", "--device", "soft", *words]) == status
    assert complaint in capsys.readouterr().err


def test_with_one_gpu_there_is_nowhere_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "device_uuids", lambda: ["GPU-1"])
    with pytest.raises(NotMeasurableError, match="this machine has 1 GPU, and a program moves between two"):
        EXPERIMENT.check(Namespace(device="cuda"))


def test_a_program_and_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    path = tmp_path / "found.json"
    words = ("--device", "soft", "--sizes", "4M", "--moves", "1", "--kernel-us", "1000")
    assert main(["ahead", *words, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert [each["scene"] for each in document["records"]] == [ALONE, BESIDE]
    for each, who in zip(document["records"], ({MOVED}, {MOVED, LEFT, THERE}), strict=True):
        [move] = each["moves"]
        assert set(move["slower"]) == who
        assert all(slower <= 1 for slower in move["slower"].values())
        assert move["ahead_s"] > 0
        assert move["pause_s"] > 0
