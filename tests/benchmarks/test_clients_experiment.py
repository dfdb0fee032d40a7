"""What sharing costs: the arithmetic on made records, and one short run on softgpu. No time is asserted of that."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.experiments import EXPERIMENTS, beside_native, clients
from benchmarks.results import section

EXPERIMENT = EXPERIMENTS["clients"]


def of_clients(nr: int, each: float, repetition: int = 0) -> dict[str, Any]:
    record = {"kind": clients.CLIENTS, "program": "matrixMul", "nr_clients": nr, "repetition": repetition}
    return {**record, "unit": "rounds/s", "throughputs": [each] * nr}


def of_programs(system: str, parts: tuple[float, ...]) -> dict[str, Any]:
    programs = [
        {"program": name, "unit": "rounds/s", "throughput": 10 * part, "alone": 10.0}
        for name, part in zip(clients.FIVE, parts, strict=True)
    ]
    return {"kind": clients.PROGRAMS, "system": system, "repetition": 0, "programs": programs}


DOCUMENT = {
    "records": [
        of_clients(1, 80),
        of_clients(2, 40),
        of_clients(8, 9.5),
        of_programs("elastic", (0.2, 0.3, 0.5, 0.2, 0.3)),
        of_programs("native", (0.2, 0.2, 0.2, 0.2, 0.2)),
        of_clients(1, 100, 1),
        of_clients(8, 12, 1),
    ]
}


def test_a_loss_is_of_what_one_client_does_in_the_same_repetition() -> None:
    assert clients.losses(DOCUMENT) == {"matrixMul": {2: [0.0], 8: pytest.approx([0.05, 0.04])}}
    assert clients.losses({"records": DOCUMENT["records"][1:3]}) == {}


def test_programs_that_leave_the_gpu_to_each_other_take_less_than_one_after_the_other() -> None:
    assert clients.over_serial(DOCUMENT) == {"elastic": pytest.approx([1 / 1.5]), "native": pytest.approx([1.0])}


def of_alone(program: str, native: float, slices: float, bursts: float) -> dict[str, Any]:
    reached = {"native": native, "slices": slices, "bursts": bursts}
    return {"kind": beside_native.KIND, "program": program, "repetition": 0, "unit": "rounds/s", **reached}


def test_programs_alone_are_told_by_the_slowest_and_the_mean() -> None:
    document = {"records": [of_alone("scan", 8, 8, 10), of_alone("cfd", 9, 8, 10), of_alone("cfd", 13, 10, 10)]}
    assert beside_native.ratios(document) == {"scan": [0.8], "cfd": [0.9, 1.3]}
    figures = EXPERIMENT.figures(document)
    assert figures["alone/slowest over native"] == pytest.approx(1.1)
    assert figures["alone/mean over native"] == pytest.approx((0.8 * 1.1) ** 0.5)
    assert figures["alone/mean over slices"] == pytest.approx((0.8 * 0.9) ** 0.5)
    [finding] = EXPERIMENT.findings(document)
    assert (finding.name, finding.detail) == ("gemini_alone", "cfd; 0.938 in the geometric mean")
    assert finding.ours == pytest.approx(1.1)
    [sheet] = EXPERIMENT.sheets(document)
    assert sheet.rows[0] == ("scan", "1.000", "0.800", "0.800")
    assert sheet.rows[-1][0] == "geometric mean"


def test_figures_and_findings_are_of_both_parts() -> None:
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["clients/loss of eight"] == pytest.approx(0.045)
    assert figures["programs/native/over serial"] == pytest.approx(1.0)
    assert figures["programs/over the driver's"] == pytest.approx(1 / 1.5)
    found = {finding.name: finding.ours for finding in EXPERIMENT.findings(DOCUMENT)}
    assert found == {"gemini_clients": pytest.approx(0.045), "gemini_programs": pytest.approx(1 / 1.5)}
    assert EXPERIMENT.figures({"records": []}) == {}


def test_sheets_have_a_row_for_each_number_of_clients_and_each_system() -> None:
    together, beside = EXPERIMENT.sheets(DOCUMENT)
    assert [row[:3] for row in together.rows] == [("matrixMul", "2", "50"), ("matrixMul", "8", "12.5")]
    assert [row[0] for row in beside.rows] == ["elastic", "native"]
    assert beside.rows[0][1] == "0.20 0.30 0.50 0.20 0.30"


def test_a_run_has_all_clients(tmp_path: Path) -> None:
    path, plot = tmp_path / "found.json", tmp_path / "found.png"
    words = ["--device", "soft", "--seconds", "1", "--parts", "alone,clients", "--program", "scan"]
    words += ["--alone", "scan", "--alone-seconds", "0.2"]
    assert main(["clients", *words, "--json", str(path), "--plot", str(plot)]) == 0
    document = json.loads(path.read_text())
    assert document["failures"] == []
    one, *several = document["records"]
    assert one["program"] == "scan"
    assert min(one[system] for system in beside_native.SYSTEMS) > 0
    assert [record["nr_clients"] for record in several] == list(clients.NR_CLIENTS)
    assert all(len(record["throughputs"]) == record["nr_clients"] for record in several)
    assert "clients" in section(document)
    assert plot.read_bytes().startswith(b"\x89PNG")
