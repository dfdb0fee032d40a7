"""Requests and limits: the arithmetic on made records, and one short run on softgpu. No share and no time is asserted of that."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, joins, lengths, limited
from benchmarks.guests.process import NativeSession
from benchmarks.paper import claims
from benchmarks.results import section

EXPERIMENT = EXPERIMENTS["elastic"]


def record(*parts: float, goal: float = 50.0) -> dict[str, Any]:
    """One program alone that has these parts of the GPU, second by second; it is charged a tenth of the GPU more."""
    nr_ended, used_s, looks, samples = 0.0, 0.0, [[2.0, 0.0]], [{"at_s": 2.0, "used_s": [0.0]}]
    for second, part in enumerate(parts):
        nr_ended, used_s = nr_ended + 1000 * part, used_s + part + 0.1
        looks.append([3.0 + second, nr_ended])
        samples.append({"at_s": 3.0 + second, "used_s": [used_s]})
    stretch = {"event": "A joins", "begin_s": 2.0, "end_s": 2.0 + len(parts), "goals": [[0, goal]]}
    program = {"name": "A", "request": 30, "limit": 60, "looks": looks}
    return {"kind": joins.KIND, "kernel_us": 1000.0, "programs": [program], "stretches": [stretch], "samples": samples}


def limits(*programs: tuple[int, float, float, float]) -> dict[str, Any]:
    keys = ("limit", "goal", "kernels", "used")
    return {
        "kind": limited.KIND,
        "seed": 0,
        "set": 0,
        "programs": [dict(zip(keys, each, strict=True)) for each in programs],
    }


def test_goals_are_those_of_gemini() -> None:
    a, b, c = joins.BOUNDS
    assert joins.goals_of({0: a}) == {0: 60}
    assert joins.goals_of({0: a, 1: b}) == {0: 50, 1: 50}
    assert joins.goals_of({0: a, 1: b, 2: c}) == {0: 30, 1: 40, 2: 30}
    assert joins.goals_of({0: a, 2: c}) == {0: 60, 2: 40}


def test_a_share_is_what_ended_kernels_lasted() -> None:
    one = record(0.2, 0.4, 0.6)
    assert joins.share(one, 0, 2.0, 3.0) == pytest.approx(20)
    assert joins.share(one, 0, 2.5, 4.5) == pytest.approx(40)
    assert joins.charged(one, 0, 3.0, 5.0) == pytest.approx(60)


def test_deviations_leave_out_the_first_second() -> None:
    one = record(0.1, 0.48, 0.47, 0.52)
    [stretch] = joins.stretches(one)
    assert joins.deviation(one, stretch, 0) == pytest.approx(-1)
    assert joins.farthest(one, stretch, 0) == pytest.approx(3)
    above = record(0.9, 0.52, 0.52)
    assert joins.deviation(above, joins.stretches(above)[0], 0) == pytest.approx(2)


def test_a_short_stretch_leaves_half_for_settling_and_has_no_windows() -> None:
    short = joins.Stretch("A joins", 2.0, 2.8, {0: 50.0})
    assert short.settled_s == pytest.approx(2.4)
    assert short.windows_s == []
    one = record(0.5)
    assert joins.farthest(one, short, 0) is None
    assert joins.settling_s(one, short, 0) is None
    assert joins.deviation(one, short, 0) == pytest.approx(0)


def test_settling_is_until_the_first_second_within_a_point() -> None:
    def settled(*parts: float) -> float | None:
        one = record(*parts)
        return joins.settling_s(one, joins.stretches(one)[0], 0)

    assert settled(0.5, 0.1, 0.1) == 0
    assert settled(0.1, 0.3, 0.5, 0.5) == pytest.approx(2)
    # The second that begins 0.9 s after the change has 0.1 * 0.3 + 0.9 * 0.505 of the GPU.
    assert settled(0.3, 0.505, 0.505) == pytest.approx(1)
    assert settled(0.42, 0.5) == pytest.approx(0.9)
    assert settled(0.1, 0.2, 0.3) is None


def test_the_sheet_has_the_worst_of_all_repetitions() -> None:
    document = {"records": [record(0.5, 0.5, 0.5), record(0.1, 0.48, 0.46)]}
    [sheet] = EXPERIMENT.sheets(document)
    [row] = sheet.rows
    assert row[:4] == ("A joins", "A", "30 to 60", "50.0")
    assert row[4].startswith("48.5 ± ")
    assert row[5:7] == ("-3.0", "4.0")
    assert row[9] == "not"
    assert EXPERIMENT.figures(document) == {
        "joins/farthest": pytest.approx(3),
        "joins/farthest part": pytest.approx(0),
    }


def test_a_part_is_of_what_all_were_charged() -> None:
    """On a machine that is too slow for both: A has 28 % and B 42 %, which are to have 40 and 60."""
    one = record(0.18, 0.18, 0.18)
    stretch = joins.Stretch("B joins", 2.0, 5.0, {0: 40.0, 1: 60.0})
    one["samples"] = [
        {"at_s": each["at_s"], "used_s": [*each["used_s"], 1.5 * each["used_s"][0]]} for each in one["samples"]
    ]
    assert joins.charged(one, 0, 3.0, 5.0) == pytest.approx(28)
    assert [joins.part(one, stretch, guest) for guest in (0, 1)] == pytest.approx([40, 60])


def one_limit(way: str, used: float, held: float, done: float) -> dict[str, Any]:
    return {"kind": lengths.KIND, "way": way, "limit": 30, "used": used, "held": held, "done": done}


def test_one_program_is_off_its_limit_by_all_that_it_was_charged() -> None:
    document = {
        "records": [
            one_limit("5 ms", 29.0, 0.5, 28.0),
            one_limit("50 us", 30.25, 0.0, 30.0),
            one_limit("5 ms", 30.0, 0.25, 30.0),
        ]
    }
    assert lengths.farthest(document) == {"5 ms": pytest.approx(0.5), "50 us": pytest.approx(0.25)}
    figures = EXPERIMENT.figures(document)
    assert figures["lengths/5 ms/farthest"] == pytest.approx(0.5)
    findings = EXPERIMENT.findings(document)
    assert {finding.name for finding in findings} == {"gemini_one_limit"}
    assert claims()["gemini_one_limit"].worst(findings).ours == pytest.approx(0.005)
    [sheet] = EXPERIMENT.sheets(document)
    assert sheet.rows[1] == ("kernels of 50 us", "30", "30.25", "0.25", "30.0")


def test_softgpu_has_no_kernel_without_ptx() -> None:
    assert set(lengths.ways_on("cuda")) - set(lengths.ways_on("soft")) == {"10 s, withdrawn"}


def test_limits_are_the_same_for_the_same_seed() -> None:
    sets = limited.sets_of(30, 7)
    assert sets == limited.sets_of(30, 7)
    assert sets[:3] == limited.sets_of(3, 7)
    assert sets != limited.sets_of(30, 8)
    assert {len(each) for each in sets} == {limited.NR_PROGRAMS}
    assert all(1 <= limit <= 100 for each in sets for limit in each)


def test_the_goal_is_the_limit_where_limits_leave_something() -> None:
    assert limited.goals([10, 20, 5, 1, 30]) == [10, 20, 5, 1, 30]
    assert limited.goals([100, 100, 100, 100, 100]) == [20] * 5
    assert limited.goals([10, 80, 80, 80, 15]) == [10, 25, 25, 25, 15]


def test_deviations_of_limits_are_parts_of_the_goal() -> None:
    document = {"records": [limits((10, 10.0, 9.5, 10.0), (50, 40.0, 30.0, 42.0))]}
    assert limited.deviations(document, "kernels") == pytest.approx([0.05, 0.25])
    assert limited.deviations(document, "used") == pytest.approx([0, 0.05])
    figures = EXPERIMENT.figures(document)
    assert figures["limits/kernels/small"] == 0.5
    assert figures["limits/used/small"] == 1
    assert figures["limits/kernels/largest"] == pytest.approx(0.25)
    together, sets = EXPERIMENT.sheets(document)
    assert together.rows[0] == ("kernels that ended", "2", "50", "0.150", "0.250")
    assert sets.rows == (("1", "10 50", "10 40", "10 30", "0.250", "0.050"),)


def test_native_programs_have_no_bounds() -> None:
    with pytest.raises(NotMeasurableError, match="no requests and no limits"):
        NativeSession({}).set_bounds(0, 30, 60)


def test_a_run_has_all_stretches_and_all_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plot = tmp_path / "found.json", tmp_path / "found.png"
    words = ("--device", "soft", "--parts", "joins,limits", "--seconds", "1.5", "--sets", "1", "--seed", "3")
    assert main(["elastic", *words, "--json", str(path), "--plot", str(plot)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert plot.read_bytes().startswith(b"\x89PNG")
    joined, random = document["records"]
    found = joins.stretches(joined)
    assert [each.event for each in found] == ["A joins", "B joins", "C joins", "B leaves", "A leaves"]
    assert [sorted(each.goals) for each in found] == [[0], [0, 1], [0, 1, 2], [0, 2], [2]]
    for stretch in found:
        assert stretch.end_s > stretch.begin_s
        for guest in stretch.goals:
            assert joins.share(joined, guest, stretch.begin_s, stretch.end_s) > 0
    for program in joined["programs"]:
        times, counts = zip(*program["looks"], strict=True)
        assert list(times) == sorted(times)
        assert list(counts) == sorted(counts)
    assert [each["limit"] for each in random["programs"]] == limited.sets_of(1, 3)[0]
    assert all(each["kernels"] > 0 and each["used"] > 0 for each in random["programs"])
    printed = capsys.readouterr().out
    own, *_ = printed.partition("Beside the paper")
    assert max(len(line) for line in own.splitlines() if line.startswith("│")) <= 110
    assert "Limits of five programs" in printed
    assert "Requests and limits" in section(document)


def test_a_run_of_one_program_has_all_lengths(tmp_path: Path) -> None:
    path, plot = tmp_path / "found.json", tmp_path / "found.png"
    words = ("--device", "soft", "--parts", "lengths", "--seconds", "2")
    assert main(["elastic", *words, "--json", str(path), "--plot", str(plot)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [each["way"] for each in document["records"]] == list(lengths.ways_on("soft"))
    assert all(each["used"] > 0 and each["done"] > 0 for each in document["records"])
    assert "One program alone under a limit" in section(document)
