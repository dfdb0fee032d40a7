"""Tables and the page of results are made of documents alone, committed ones and unfinished ones."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.document import command_line, origin
from benchmarks.experiments import EXPERIMENTS
from benchmarks.newest import merged
from benchmarks.paper import claims
from benchmarks.pictures import ALL, source
from benchmarks.promises import RESULTS, promises
from benchmarks.results import beside_the_paper, documents, page, section
from benchmarks.sheet import Sheet

HEAD: dict[str, Any] = {
    "device": "softgpu",
    "date": "2026-01-02",
    "machine": "2 cores, Linux 6",
    "load_before": 0.1,
    "command": "fairgv-bench mmr",
    "guests": "process",
    "ended": None,
    "refused": [],
    "failures": [],
}


def guest(weight: int, throughput: float, alone: float = 6.0, native: float | None = 8.0) -> dict[str, Any]:
    return {
        "weight": weight,
        "throughput": throughput,
        "alone": alone,
        "alone_native": native,
        "charged_s": float(weight),
    }


def together(repetition: int, system: str, *guests: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "together",
        "mixture": "matrixMul",
        "system": system,
        "repetition": repetition,
        "guests": list(guests),
    }


def test_the_committed_documents_can_be_read_and_shown() -> None:
    found = documents(RESULTS)
    assert found
    for document in found:
        assert document["date"] in section(document)


def test_the_page_names_every_claim_and_is_made_of_files_alone() -> None:
    text = beside_the_paper([])
    assert text.count("not measured") == len(claims())
    assert "Table 4" in text
    text = page()
    assert text == page()
    for promise in promises():
        assert (f"| {promise.number} | {promise.claim} |" in text) == promise.has_bound
    for name in claims():
        assert claims()[name].what in text
    for picture in ALL:
        assert (f"pictures/{picture.name}" in text) == (source(picture) is not None)


def test_figures_come_first_and_tables_are_folded() -> None:
    text = page()
    first, folded = text.split("## All that was measured")
    assert "<details>" not in first
    assert folded.count("<details>") == folded.count("</details>") == len(merged(documents(RESULTS)))
    assert folded.rindex("\n|") < folded.rindex("</details>")


def test_a_claim_is_judged_by_the_worst_on_a_gpu() -> None:
    even = together(0, "fair", guest(1, 1.0), guest(2, 2.0), guest(3, 3.0))
    uneven = together(0, "fair", guest(1, 1.0), guest(2, 2.0), guest(3, 2.4))
    found = [
        {**HEAD, "experiment": "mmr", "device": device, "date": date, "records": [record]}
        for device, date, record in (
            ("NVIDIA H200", "2026-01-03", even),
            ("NVIDIA H200", "2026-01-02", {**uneven, "mixture": "scan"}),
            (
                "softgpu",
                "2026-01-04",
                {**uneven, "mixture": "nw", "guests": [guest(1, 0.1), guest(2, 2.0), guest(3, 3.0)]},
            ),
        )
    ]
    [row] = [line for line in beside_the_paper(found).splitlines() if "min-max ratio, three guests" in line]
    assert "| 0.800 | scan, fair; the worst of 2 | H200 | 2026-01-02 | behind |" in row


def test_guests_that_leave_the_gpu_to_each_other_are_judged_by_the_least() -> None:
    """hotspot, say, of which each gets 1.6 times its due and more: that the lightest gets most is nobody's loss."""
    runs = [together(0, "fair", guest(1, 4.8), guest(2, 4.8), guest(3, 4.8))]
    findings = EXPERIMENTS["mmr"].findings({**HEAD, "experiment": "mmr", "records": runs})
    [finding] = findings
    assert finding.name == "three_guests_least"
    assert finding.detail == "matrixMul, fair, 2.40 of one alone together"
    assert finding.ours == pytest.approx(1.6)
    assert finding.cells()[-1] == "reached"


def six(system: str, *parts: float) -> dict[str, Any]:
    """Guests by the paper's weights that get these parts of their due, of 6 alone."""
    weights = (1, 2, 2, 3, 3, 4)
    return together(0, system, *(guest(w, 6 * part * w / 15) for w, part in zip(weights, parts, strict=True)))


def test_turns_by_bursts_stand_beside_slices_of_the_same_run() -> None:
    runs = [six("fair", 1, 1, 1, 1, 1, 0.98), six("bursts", 1, 1, 1, 0.99, 1, 1)]
    document = {**HEAD, "experiment": "mmr", "records": runs}
    found = {finding.name: finding for finding in EXPERIMENTS["mmr"].findings(document)}
    assert set(found) == {"six_guests", "six_guests_overhead", "six_guests_bursts"}
    assert found["six_guests_bursts"].ours == pytest.approx(0.99)
    assert found["six_guests_bursts"].detail == "matrixMul; 0.980 with slices"
    assert EXPERIMENTS["mmr"].figures(document)["matrixMul/bursts over slices"] == pytest.approx(0.99 / 0.98)


@pytest.mark.parametrize(
    ("slices", "parts"), [("fair", (1.2, 1.2, 1.2, 1.2, 1.2, 1.0)), ("credit-hs", (1, 1, 1, 1, 1, 1))]
)
def test_bursts_say_nothing_of_programs_that_leave_the_gpu_idle_or_without_slices(
    slices: str, parts: tuple[float, ...]
) -> None:
    runs = [six(slices, 1, 1, 1, 1, 1, 1), six("bursts", *parts)]
    findings = EXPERIMENTS["mmr"].findings({**HEAD, "experiment": "mmr", "records": runs})
    assert "six_guests_bursts" not in {finding.name for finding in findings}


@pytest.mark.parametrize(
    ("program", "background", "name", "ours"),
    [
        (3.0, 3.0, "mixed", 2.0),
        (2.0, 3.0, "mixed", 3.0),
        (5.4, 3.6, "mixed_least", 1.2),
        (6.0, 2.4, "mixed_least", 0.8),
    ],
)
def test_a_program_beside_a_background(program: float, background: float, name: str, ours: float) -> None:
    """Alone each does 6."""
    run = together(0, "fair", guest(1, program), guest(1, background))
    run |= {"program": "hotspot", "background_us": 207.0}
    [finding] = EXPERIMENTS["mixed"].findings({**HEAD, "experiment": "mixed", "records": [run]})
    assert finding.name == name
    assert finding.ours == pytest.approx(ours)


def test_shares_are_shown_by_weights() -> None:
    runs = [together(0, "fair", guest(1, 1.0), guest(2, 2.0)), together(0, "fair", guest(1, 1.0), guest(1, 1.0))]
    first, second = EXPERIMENTS["mmr"].sheets({**HEAD, "experiment": "mmr", "records": runs})
    assert (first.title[-3:], second.title[-3:]) == ("1:2", "1:1")
    assert len(first.rows) == len(second.rows) == 1


def test_shares_of_a_known_document() -> None:
    runs = [
        together(0, "fair", guest(1, 1.0), guest(2, 2.0), guest(3, 3.0)),
        together(1, "fair", guest(1, 1.0), guest(2, 2.0), guest(3, 2.4)),
        together(0, "native", *({**guest(weight, float(weight)), "charged_s": None} for weight in (1, 2, 3))),
    ]
    document = {**HEAD, "experiment": "mmr", "records": runs}
    [sheet] = EXPERIMENTS["mmr"].sheets(document)
    fair, native = sheet.rows
    assert fair[2].startswith("0.900 ± ")
    assert fair[3].startswith("0.900 ± ")  # the mean of 1 and 2.4/3
    assert fair[4].startswith("1.000 ± 0.000")
    assert fair[5].startswith("1.407 ± ")  # the mean of 8/6 and 8/5.4
    assert fair[6].startswith("80.0 40.0 30.0 (ideal 60 30 20)")
    assert native[2:5] == ("1.000", "1.000", "-")
    [finding] = EXPERIMENTS["mmr"].findings(document)
    assert finding.ours == pytest.approx(0.9)
    assert finding.cells()[-1] == "behind"


def test_who_holds_the_device_without_use_pays_as_for_use() -> None:
    waiting = {**guest(1, 1.0), "charged_s": 0.75, "held_s": 0.25}
    document = {**HEAD, "experiment": "mmr", "records": [together(0, "fair", waiting, guest(2, 2.0))]}
    [sheet] = EXPERIMENTS["mmr"].sheets(document)
    assert sheet.rows[0][4].startswith("1.000")


def share(way: str, *guests: dict[str, Any]) -> dict[str, Any]:
    mine = [{**each, "alone_native": None} for each in guests]
    return {"kind": "share", "way": way, "kernel_s": 10.0, "repetition": 0, "guests": mine}


def test_shares_of_long_kernels_of_a_known_document() -> None:
    """Measured weight by weight, shown way by way; natively there are neither weights nor charges."""
    runs = [
        share("in parts", guest(1, 3.0), guest(1, 3.0)),
        share("whole without PTX", guest(1, 1.5), guest(1, 3.0)),
        share("native", *({**guest(1, 2.0), "charged_s": None} for _ in range(2))),
        share("in parts", guest(1, 1.5), guest(3, 4.5)),
    ]
    document = {**HEAD, "experiment": "slicing", "records": runs}
    [sheet] = EXPERIMENTS["slicing"].sheets(document)
    assert [row[:2] for row in sheet.rows] == [
        ("in parts", "1:1"),
        ("in parts", "1:3"),
        ("whole without PTX", "1:1"),
        ("native", "-"),
    ]
    even, weighted, whole, native = sheet.rows
    assert even[2:] == ("0.500", "0.500", "1.000", "0.98", "1.000", "1.000", "1")
    assert weighted[2:5] == ("0.250", "0.750", "1.000")
    assert whole[2:5] == ("0.250", "0.500", "0.500")
    assert native[4:7] == ("1.000", "-", "-")
    assert "endless kernels of 10 s" in section(document)


def test_an_older_document_without_native_runs() -> None:
    runs = [together(0, "fair", guest(1, 1.0, native=None), guest(2, 2.0, native=None))]
    [sheet] = EXPERIMENTS["mmr"].sheets({**HEAD, "experiment": "mmr", "records": runs})
    assert sheet.rows[0][5] == "2.000"


def test_an_unfinished_document_says_so() -> None:
    document = {**HEAD, "experiment": "mmr", "ended": "interrupted", "records": []}
    assert EXPERIMENTS["mmr"].sheets(document) == []
    assert "not whole: interrupted" in origin(document)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_document_without_records_makes_no_table(name: str) -> None:
    assert EXPERIMENTS[name].sheets({**HEAD, "experiment": name, "records": []}) == []
    assert EXPERIMENTS[name].findings({**HEAD, "experiment": name, "records": []}) == []


def test_a_grid_on_a_page() -> None:
    text = Sheet("Title", ("name", "figure"), (("a|b", "1.5"), ("c", "-")), ("A note.",)).on_page()
    assert text == "### Title\n\nA note.\n\n| name | figure |\n|---|---:|\n| a\\|b | 1.5 |\n| c | - |\n"


def test_a_command_line_is_told_without_its_outputs() -> None:
    words = ["mmr", "--json", "a b.json", "--seconds", "2"]
    assert command_line("fairgv-bench", words, Path("a b.json"), None) == "fairgv-bench mmr --seconds 2"
