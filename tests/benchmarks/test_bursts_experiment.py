"""Turns by bursts: the arithmetic on made records, and short runs on softgpu. No time is asserted of those."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.experiments import EXPERIMENTS, bursts, servers
from benchmarks.results import section

EXPERIMENT = EXPERIMENTS["bursts"]


def program(number: int, request_ms: float, nr_turns: int = 60, turn_ms: float = 30.0) -> dict[str, Any]:
    """One whose requests take so long, for 6 s that count."""
    server = servers.ROWS[number]
    nr_requests = 6000 / (request_ms + servers.pause_ms(server))
    return {
        "label": server.label,
        "length_ms": server.length_ms,
        "pause_ms": servers.pause_ms(server),
        "nr_requests": nr_requests,
        "request_ms": request_ms,
        "useful_s": nr_requests * server.length_ms / 1000,
        "nr_turns": nr_turns,
        "turn_ms": {"mean": turn_ms, "least": turn_ms - 1, "most": turn_ms + 2},
        "overuse_s": 0.045 * (number + 1),
        "window_s": 8.0,
        "counted_s": 6.0,
    }


def record(
    way: str,
    repetition: int,
    times: Sequence[float],
    turns_ms: Sequence[float] = (30, 30, 30),
    kind: str = servers.KERNELS,
) -> dict[str, Any]:
    programs = [program(number, each, turn_ms=turns_ms[number]) for number, each in enumerate(times)]
    return {"kind": bursts.KIND, "servers": kind, "way": way, "repetition": repetition, "programs": programs}


DOCUMENT = {
    "records": [
        record("slice", 0, (60, 90, 120)),
        record("10 ms", 0, (45, 80, 100), (10, 10, 10)),
        record("bursts", 0, (50, 70, 105), (36, 64, 77)),
        record("slice", 1, (70, 100, 130)),
        record("bursts", 1, (60, 90, 120), (37, 66, 79)),
    ]
}


def test_turns_of_a_request() -> None:
    one = program(0, 60)
    assert one["nr_requests"] == pytest.approx(40)
    assert bursts.turns_per_request(one) == pytest.approx(1.5)


def test_useful_time_is_what_requests_take_alone() -> None:
    alone = record("slice", 0, [each.length_ms for each in servers.ROWS])
    assert bursts.useful(alone) == pytest.approx(3 / servers.PART)
    assert bursts.mean_request_ms(alone) == pytest.approx((36 + 64 + 78) / 3)


def test_settings_are_told_to_the_daemon() -> None:
    found = {way.name: way.daemon for way in bursts.ways([6, 2.5])}
    assert list(found) == ["slice", "6 ms", "2.5 ms", "bursts"]
    assert found["slice"] == {"quota": "slice"}
    assert found["2.5 ms"] == {"quota": "slice", "slice_ns": 2_500_000}
    assert found["bursts"] == {"quota": "bursts"}


def test_each_setting_stands_beside_the_slice_of_its_repetition() -> None:
    quotients = bursts.over_slice(DOCUMENT)
    assert list(quotients) == ["10 ms", "bursts"]
    assert quotients["10 ms"] == pytest.approx([75 / 90])
    assert quotients["bursts"] == pytest.approx([75 / 90, 90 / 100])
    assert bursts.over_slice({"records": DOCUMENT["records"][1:3]}) == {}


def test_the_best_fixed_turn_is_none_by_bursts() -> None:
    assert bursts.best_fixed(DOCUMENT) == "10 ms"
    assert bursts.best_fixed(DOCUMENT, 1) == "10 ms"
    assert bursts.best_fixed({"records": DOCUMENT["records"][2:3]}) is None


def test_figures_are_of_turns_by_bursts() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["kernels/request time over slice"] == pytest.approx((75 / 90 + 0.9) / 2)
    assert figures["kernels/request time over best"] == pytest.approx(82.5 / 75)
    assert figures["kernels/useful"] == pytest.approx(sum(map(bursts.useful, DOCUMENT["records"][2::2])) / 2)
    # 60 turns in 6 s; of the longest requests there is one in 300 or 315 ms.
    assert figures["kernels/turns of a request"] == pytest.approx(10 * 0.3075)


def test_overuse_is_of_the_turns_that_count() -> None:
    """60 turns in 8 s, of which 6 s count."""
    assert bursts.overuse_ms(program(0, 60)) == pytest.approx(1)
    assert bursts.overuse_ms(program(2, 60, nr_turns=120)) == pytest.approx(1.5)
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["kernels/overuse of a turn, ms"] == pytest.approx(3)
    assert figures["kernels/overuse of a turn"] == pytest.approx(3 / 78)
    [_, overuse, _] = EXPERIMENT.sheets(DOCUMENT)
    assert overuse.rows[1] == ("10 ms", "1.00 2.00 3.00", "10.0 20.0 30.0")


def test_turns_by_bursts_stand_beside_the_best_fixed_one_of_each_program() -> None:
    """The best is 10 ms for the first and the last, and, by 80 and 95 ms, for the other."""
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["kernels/turn over best"] == pytest.approx(7.8)
    slower = record("250 ms", 0, (40, 70, 90), (250, 250, 250))
    assert EXPERIMENT.figures({"records": [*DOCUMENT["records"], slower]})["kernels/turn over best"] == pytest.approx(
        250 / 36.5
    )
    useful = {way: sum(map(bursts.useful, runs)) / len(runs) for way, runs in bursts.by_way(DOCUMENT).items()}
    assert figures["kernels/useful over best"] == pytest.approx(
        useful["bursts"] / max(useful["slice"], useful["10 ms"])
    )


def test_findings_are_of_four_figures() -> None:
    found = {finding.name: finding.ours for finding in EXPERIMENT.findings(DOCUMENT)}
    assert found == {
        "gemini_requests": pytest.approx(82.5 / 75),
        "gemini_chosen": pytest.approx(7.8),
        "gemini_turns": pytest.approx(10 * 0.3075),
        "gemini_overuse": pytest.approx(3 / 78),
    }


def test_sheets_have_times_and_turns() -> None:
    settings, _, chosen = EXPERIMENT.sheets(DOCUMENT)
    slices, fixed, by_bursts = settings.rows
    assert slices[:2] == ("slice, 30 ms", "65.0 95.0 125.0")
    assert slices[3] == "-"
    assert fixed[:4] == ("10 ms", "45.0 80.0 100.0", "75.0", "0.83")
    assert by_bursts[3].startswith("0.87 ± ")
    assert chosen.rows[0] == ("A", "36.0", "36.5", "35.0", "39.0", "1.01", "10 ms")
    assert [row[1] for row in chosen.rows] == ["36.0", "64.0", "78.0"]


def test_an_early_end_leaves_what_there_is() -> None:
    settings, overuse = EXPERIMENT.sheets({"records": DOCUMENT["records"][:2]})
    assert len(settings.rows) == len(overuse.rows) == 2
    assert EXPERIMENT.figures({"records": DOCUMENT["records"][:2]}) == {}


def test_kinds_of_servers_stand_apart() -> None:
    """As on the page of results, which merges what was measured with several kinds on one device."""
    others = [
        record("slice", 0, (100, 100, 100), kind=servers.NETWORK),
        record("bursts", 0, (50, 50, 50), kind=servers.NETWORK),
    ]
    document = {"records": [*others, *DOCUMENT["records"]]}
    figures = EXPERIMENT.figures(document)
    assert {name: figure for name, figure in figures.items() if name.startswith("kernels/")} == EXPERIMENT.figures(
        DOCUMENT
    )
    assert figures["network/request time over slice"] == pytest.approx(0.5)
    assert [sheet.title.split(", ")[1] for sheet in EXPERIMENT.sheets(document)] == [*["network"] * 3, *["kernels"] * 3]
    assert {(finding.name, finding.detail) for finding in EXPERIMENT.findings(document)} == {
        (name, kind)
        for name in ("gemini_requests", "gemini_chosen", "gemini_turns", "gemini_overuse")
        for kind in ("network", "kernels")
    }
    assert EXPERIMENT.subjects[bursts.KIND] == ("servers", "way")


def measured(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """A short run in three settings, which has drawn and printed something."""
    path, plot = folder / "found.json", folder / "found.png"
    short = ("--device", "soft", "--seconds", "3", "--turns-ms", "6,6", "--repetitions", "1")
    assert main(["bursts", *short, *words, "--json", str(path), "--plot", str(plot)]) == 0
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["failures"] == []
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [each["way"] for each in document["records"]] == ["slice", "6 ms", "bursts"]
    for each in document["records"]:
        assert len(each["programs"]) == servers.NR_SERVERS
        for one in each["programs"]:
            assert min(one[name] for name in ("nr_requests", "request_ms", "useful_s", "nr_turns", "used_s")) > 0
            assert one["pause_ms"] == pytest.approx(2.5 * one["length_ms"])
            assert one["overuse_s"] >= 0
            assert 0 < one["turn_ms"]["least"] <= one["turn_ms"]["mean"] <= one["turn_ms"]["most"]
    assert {each["turn_ms"]["mean"] for each in document["records"][1]["programs"]} == {6}
    printed, _, _ = capsys.readouterr().out.partition("Beside the paper")
    assert max(len(line) for line in printed.splitlines() if line.startswith("│")) <= 100
    assert "Requests by the length of turns" in printed
    assert "Turns by bursts" in section(document)
    return document


def test_a_run_of_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = measured(tmp_path, capsys)
    assert [each["length_ms"] for each in document["records"][0]["programs"]] == [36, 64, 78]


def test_a_run_of_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their lengths are measured first, and are those of all settings."""
    document = measured(tmp_path, capsys, "--servers", "network", "--batch", "1,2,3")
    lengths = {tuple(one["length_ms"] for one in each["programs"]) for each in document["records"]}
    assert len(lengths) == 1
    assert min(*lengths) > 0
    labels = [each["label"] for each in document["records"][0]["programs"]]
    assert labels == ["network, 1 image", "network, 2 images", "network, 3 images"]
