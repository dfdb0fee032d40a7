"""Every promise names tests and figures that there are, and is shown as kept or missed by the figure itself."""

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT
from benchmarks import results, specification
from benchmarks.promises import Promise, groups, promises
from benchmarks.specification import MOST_BYTES, SPECIFICATION, last_figure

AT_LEAST = Promise("F1", "a claim", "at least", 0.99, figures=("decisions: */us",))
AT_MOST = replace(AT_LEAST, relation="at most", value=20.0, unit="us")


def names_in(path: str) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse((PACKAGE_ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.number)
def test_each_is_held_by_something_that_is_there(promise: Promise) -> None:
    assert promise.claim
    assert promise.held or promise.command
    assert promise.number[0] in groups()
    for node in promise.held:
        path, _, name = node.partition("::")
        assert name in names_in(path), node


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.number)
def test_each_figure_is_there_and_each_bound_can_be_measured(promise: Promise) -> None:
    figure = promise.figure()  # raises LookupError
    assert (figure is not None) == bool(promise.figures)
    if promise.has_bound:
        assert promise.relation in ("at least", "at most")
        assert promise.command
        assert promise.value == promise.value
    else:
        assert not promise.figures


def test_numbers_are_in_order_and_each_group_has_some() -> None:
    found = [(promise.number[0], int(promise.number[1:])) for promise in promises()]
    assert found == sorted(found, key=lambda number: (list(groups()).index(number[0]), number[1]))
    assert {letter for letter, _ in found} == set(groups())
    assert len(set(found)) == len(found)


def test_the_page_is_short_and_has_every_row() -> None:
    text = SPECIFICATION.read_text()
    assert len(text.encode()) <= MOST_BYTES
    for promise in promises():
        assert f"\n|{promise.number}|" in text


@pytest.mark.parametrize(
    ("promise", "value", "is_kept", "cell"),
    [
        (AT_LEAST, 0.99, True, "0.99"),
        (AT_LEAST, 0.9877, False, "0.988"),
        (AT_LEAST, 0.98996, False, "0.98996"),
        (AT_LEAST, 1.5961, True, "1.6"),
        (AT_MOST, 6.7523, True, "6.75 us"),
        (AT_MOST, 20.04, False, "20.04 us"),
    ],
)
def test_a_figure_is_shown_as_it_is_judged(promise: Promise, value: float, is_kept: bool, cell: str) -> None:
    assert promise.keeps(value) == is_kept
    assert promise.cell(value) == cell


def document(folder: Path, name: str, date: str, **throughputs: float) -> None:
    """Guests 1:1 of one program each, by what they reach of 1 alone."""
    guests = [{"weight": 1, "throughput": each, "alone": 1.0, "alone_native": 1.0} for each in throughputs.values()]
    record: dict[str, Any] = {"kind": "together", "mixture": "spin", "system": "fair", "guests": guests}
    text = json.dumps({"experiment": "mmr", "device": "NVIDIA H200", "date": date, "records": [record]})
    (folder / f"{name}.json").write_text(text)


def test_the_worst_figure_counts_with_its_own_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document(tmp_path, "even", "2026-01-03", one=0.5, other=0.5)
    document(tmp_path, "uneven", "2026-01-02", one=0.25, other=0.5)
    promise = replace(AT_LEAST, figures=("even: */fair/min-max ratio", "uneven: spin/fair/min-max ratio"))
    figure = promise.figure(tmp_path)
    assert figure is not None
    assert (figure.value, figure.device, figure.date) == (0.5, "H200", "2026-01-02")
    mean = replace(promise, combine="geometric mean").figure(tmp_path)
    assert mean is not None
    assert mean.value == pytest.approx(0.5**0.5)
    assert mean.date == "2026-01-03"
    monkeypatch.setattr(Promise, "figure", lambda _: figure)
    assert last_figure(promise) == "0.5, H200 2026-01-02 [missed]"
    assert last_figure(replace(promise, value=0.5)) == "0.5, H200 2026-01-02"


def test_a_bound_without_a_figure_is_pending() -> None:
    assert last_figure(replace(AT_LEAST, figures=())) == "[pending]"


@pytest.mark.parametrize("reference", ["nowhere: *", "even: */nothing"])
def test_a_figure_that_is_not_there_is_named(tmp_path: Path, reference: str) -> None:
    document(tmp_path, "even", "2026-01-03", one=0.5, other=0.5)
    with pytest.raises(LookupError, match=reference.replace("*", r"\*")):
        replace(AT_LEAST, figures=(reference,)).figure(tmp_path)


def test_a_stale_page_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "PAGE", tmp_path / "results.md")
    monkeypatch.setattr(results, "SPECIFICATION", tmp_path / "SPECIFICATION.md")
    assert results.main([]) == 0
    assert results.main(["--check"]) == 0
    assert (tmp_path / "SPECIFICATION.md").read_text() == specification.specification()
    (tmp_path / "SPECIFICATION.md").write_text("F4: yes\n")
    assert results.main(["--check"]) == 1
    assert "SPECIFICATION.md is stale: run python -m benchmarks.results" in capsys.readouterr().err
