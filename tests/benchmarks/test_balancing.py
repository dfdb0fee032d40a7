"""`fairgv-bench balancing`: what it says of given runs, and one small run."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.build import NAMES
from benchmarks.cli import conduct_of, main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments.balancing import SIMULATOR, balance_modes, has_loads, plot_harm, plot_load
from benchmarks.paper import claims
from benchmarks.results import beside_the_paper
from benchmarks.style import THEMES, figure_of
from scheduler.simulator.host.programs import PROGRAMS

EXPERIMENT = EXPERIMENTS["balancing"]
HEAD = {"experiment": "balancing", "device": SIMULATOR, "date": "2026-01-02", "machine": "2 cores", "command": "bench"}


def run(order: int, mode: str, interval_s: float = 5.0, **figures: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "overloaded": 0.2,
        "beyond": 0.1,
        "utilisation": 0.6,
        "mean_slowdown": 1.2,
        "unharmed": 0.7,
        "jain": 0.98,
        "equals": None,
        "joules": 100_000.0,
        "nr_moves": 0,
        "seconds": 120.0,
    }
    return {"kind": "order", "interval_s": interval_s, "balance": mode, "order": order, "gpus": 4, **plain, **figures}


def document(*runs: dict[str, Any]) -> dict[str, Any]:
    return {**HEAD, "records": list(runs)}


BEFORE = (run(0, "off"), run(1, "off", overloaded=0.4, mean_slowdown=1.4))
AFTER = (
    run(0, "balance", overloaded=0.02, utilisation=0.66, mean_slowdown=1.08, unharmed=0.9, equals=0.99, nr_moves=5),
    run(1, "balance", overloaded=0.1, utilisation=0.72, mean_slowdown=0.7, unharmed=1.0),
)


def test_findings_are_means_over_orders_beside_the_same_ones() -> None:
    """An order without its counterpart is left out."""
    said = document(*BEFORE, *AFTER, run(2, "off", overloaded=1.0), run(0, "compact", 7.0), run(0, "off", 7.0))
    found = {finding.name: finding.ours for finding in EXPERIMENT.findings(said)}
    assert found == pytest.approx(
        {
            "dcuda_overloaded": 0.12 / 0.6,
            "dcuda_utilisation": 1.38 / 1.2,
            "dcuda_unharmed": 0.95,
            "dcuda_jain": 0.98,
            "dcuda_time": 0.5,
        }
    )
    assert found.keys() <= claims().keys()
    assert claims()["dcuda_overloaded"].verdict(found["dcuda_overloaded"]) == "reached"
    assert "| simulator |" in beside_the_paper([said]).replace("  ", " ")
    figures = EXPERIMENT.figures(said)
    assert figures["5 s/balance/overloaded"] == pytest.approx(0.2)
    assert figures["5 s/balance/equals"] == 0.99
    assert "7 s/compact/equals" not in figures


def test_the_table_has_a_line_for_each_interval_and_mode() -> None:
    [sheet] = EXPERIMENT.sheets(document(*BEFORE, *AFTER, run(0, "off", 3.0)))
    assert [row[:5] for row in sheet.rows] == [
        ("5 s", "off", "2", "30.0%", "-"),
        ("5 s", "balance", "2", "6.0%", "0.200"),
        ("3 s", "off", "1", "20.0%", "-"),
    ]
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)
    assert sheet.rows[1][10] == "0.990", "of the orders that have it"


def test_pictures(tmp_path: Path) -> None:
    said = document(*BEFORE, *AFTER)
    for name, draw in (("times", EXPERIMENT.plot), ("harm", plot_harm)):
        with figure_of((8.4, 3.4), THEMES["light"]) as figure:
            draw(said, figure)
            figure.savefig(tmp_path / f"{name}.svg")
        text = (tmp_path / f"{name}.svg").read_text()
        assert "placement and moves" in text
        assert "A dot is an order of 20 programs, one in 5 s, on 4 simulated GPUs." in text
    with figure_of((8.4, 3.4), THEMES["light"]) as figure, pytest.raises(NotMeasurableError):
        EXPERIMENT.plot(document(*BEFORE), figure)


def test_the_picture_of_one_order(tmp_path: Path) -> None:
    def load(mode: str, interval_s: float, over: float) -> dict[str, Any]:
        levels = [[0.1, 0.9 - over, over]] * 4
        return {"kind": "load", "interval_s": interval_s, "balance": mode, "gpus": 4, "levels": levels}

    loads = (load("off", 7.0, 0.5), load("balance", 7.0, 0.4), load("off", 5.0, 0.2), load("balance", 5.0, 0.1))
    with figure_of((8.4, 3.2), THEMES["light"]) as figure:
        plot_load(document(*BEFORE, *AFTER, *loads), figure)
        heights = [[patch.get_height() for patch in axes.patches[::4]] for axes in figure.axes]
        figure.savefig(tmp_path / "load.svg")
    assert heights == [pytest.approx([10, 70, 20]), pytest.approx([10, 80, 10])]
    text = (tmp_path / "load.svg").read_text()
    assert "In one order GPUs are overloaded for 10.0 % of the time with moves, 20.0 % without" in text
    assert "Overloaded in the mean of 2 orders: 6.0 % and 30.0 %." in text
    with figure_of((8.4, 3.2), THEMES["light"]) as figure:
        with pytest.raises(NotMeasurableError, match="the load of GPUs"):
            plot_load(document(loads[0], loads[3]), figure)
        plot_load(document(*loads[:2]), figure)
    assert [has_loads(document(*found)) for found in (loads[:2], loads[1:3], ())] == [True, False, False]


@pytest.mark.parametrize(("parts", "nr"), [("orders,load", 4 * 9 + 4), ("orders", 4 * 9), ("load", 4)])
def test_the_load_is_of_the_first_order_alone(parts: str, nr: int) -> None:
    options = conduct_of(["balancing", "--parts", parts, "--orders", "9", "--arrivals", "7,5"]).options
    assert EXPERIMENT.nr_records(options) == nr


@pytest.mark.parametrize("text", ["off", "off,off", "off,evenly"])
def test_two_modes_are_compared(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        balance_modes(text)
    assert balance_modes("off,compact") == ["off", "compact"]


def test_each_simulated_program_can_be_run() -> None:
    assert set(PROGRAMS) == set(NAMES)


def test_one_order(tmp_path: Path) -> None:
    """On no device."""
    path, plot = tmp_path / "found.json", tmp_path / "found.png"
    words = ["balancing", "--orders", "1", "--arrivals", "7", "--gpus", "3", "--json", str(path), "--plot", str(plot)]
    assert main(words) == 0
    said = json.loads(path.read_text())
    assert said["device"] == SIMULATOR
    before, after = (record for record in said["records"] if record["kind"] == "order")
    loads = [record for record in said["records"] if record["kind"] == "load"]
    assert [(record["order"], record["balance"]) for record in (before, after)] == [(0, "off"), (0, "balance")]
    assert 0 < after["overloaded"] < before["overloaded"]
    for record, load in zip((before, after), loads, strict=True):
        assert [sum(parts) for parts in load["levels"]] == pytest.approx([1] * 3, abs=1e-4)
        assert sum(parts[2] for parts in load["levels"]) / 3 == pytest.approx(record["overloaded"], abs=1e-4)
    assert before["nr_moves"] == 0 < after["nr_moves"]
    assert plot.read_bytes().startswith(b"\x89PNG")
