"""Programs that arrive and end: their steps are the simulation's, arithmetic on made records, what is refused, two programs on two softgpus."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, arrivals
from benchmarks.style import THEMES, figure_of
from scheduler.balance import BALANCE, OFF
from scheduler.simulator.host.programs import PROGRAMS
from scheduler.simulator.workloads import Launch, Sleep

EXPERIMENT = EXPERIMENTS["arrivals"]
HEAD = {"experiment": "arrivals", "device": "some GPU", "date": "2026-01-02"}


def record(mode: str, order: int, slowdown: float, simulated: float, *said: float | None) -> dict[str, Any]:
    names = dict.fromkeys(arrivals.FIGURES, 0.5)
    return {
        "kind": arrivals.KIND,
        "balance": mode,
        "order": order,
        "gpus": 2,
        "interval_s": 5.0,
        "programs": 2,
        "part": 0.5,
        "starts_s": 0.2,
        "real": {**names, "mean_slowdown": slowdown, "nr_moves": 0.0},
        "simulated": {**names, "mean_slowdown": simulated, "nr_moves": 0.0},
        "demands": [{"program": "scan", "own": 0.5, "said": each} for each in said],
    }


DOCUMENT = {
    **HEAD,
    "records": [
        record(OFF, 0, 1.2, 1.1, 0.53, None),
        record(OFF, 1, 1.4, 1.3, 0.47),
        record(BALANCE, 0, 1.1, 1.1, 0.56),
        record(BALANCE, 1, 1.1, 1.1, 0.5),
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_the_steps_of_the_simulation(name: str) -> None:
    program = PROGRAMS[name]
    rows = list(arrivals.rows_of(program, 3))
    steps = list(program.steps(random.Random(f"3/{name}")))
    kernels = [ns for step in steps if isinstance(step, Launch) for ns in step.kernels_ns]
    first, *pauses = [step.duration_ns for step in steps if isinstance(step, Sleep)]
    assert [ns for _, *some in rows for ns in some] == kernels
    assert len(rows) == program.nr_cycles
    assert rows[0][0] == 0  # it begins when it begins
    assert first == program.starts_ns
    assert [pause_ns for pause_ns, *_ in rows[1:] if program.demand < 1] == pauses


def test_figures_are_means_over_orders() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["off/mean_slowdown"] == pytest.approx(1.3 / 1.2)
    assert figures["balance/mean_slowdown"] == 1.0
    assert figures["demand/close"] == 0.75  # one of the four that were known is 6 % off
    assert "off/nr_moves" not in figures  # of none is no ratio


def test_tables_and_the_plot_say_both(tmp_path: Path) -> None:
    whole, demand = EXPERIMENT.sheets(DOCUMENT)
    assert ("off", "time over alone", "1.300", "1.200", "1.08") in whole.rows
    assert "2 orders of 2 programs, one in 5 s, on 2 GPUs" in whole.notes[0]
    assert demand.rows == (("scan", "50.0%", "51.5%", "6.0", "4"),)
    assert "75% of all runs" in demand.notes[0]
    with figure_of((9, 5), THEMES["light"]) as figure:
        EXPERIMENT.plot(DOCUMENT, figure)
        assert "1.30 and 1.10 times as long as alone" in figure.texts[0].get_text().replace("\n", " ")


def test_nothing_measured_is_nothing_to_show() -> None:
    assert EXPERIMENT.sheets({"records": []}) == []
    assert EXPERIMENT.figures({"records": []}) == {}
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({"records": []}, None)


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("--programs", "21"), 1, "--programs: there are 20"),
        (("--interval", "0"), 2, "not above 0"),
        (("--balance", "off"), 2, "two modes are compared at least"),
        (("--gpus", "0"), 2, "not a whole number above 0"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if status == 2:
        with pytest.raises(SystemExit) as ended:
            main(["arrivals", "--device", "soft", *words])
        assert ended.value.code == status
    else:
        assert main(["arrivals", "--device", "soft", *words]) == status
    assert complaint in capsys.readouterr().err


def test_programs_run_beside_their_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that come at once go to a device each; with moves and without."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    path = tmp_path / "found.json"
    words = ("--device", "soft", "--orders", "1", "--programs", "2", "--part", "0.02", "--interval", "0.5")
    assert main(["arrivals", *words, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    assert [each["balance"] for each in document["records"]] == [OFF, BALANCE]
    for each in document["records"]:
        assert each["real"]["utilisation"] > 0
        assert each["real"]["seconds"] > 0.5 + each["starts_s"] / 2
        assert set(each["real"]) == set(each["simulated"]) == set(arrivals.FIGURES)
        assert len(each["demands"]) == 2
