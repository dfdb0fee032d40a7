"""Energy of programs that are joined: the arithmetic on made records, what is refused, NVML's child, and light programs on two softgpus."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.devices import native_environment, private_device
from benchmarks.errors import NotMeasurableError
from benchmarks.experiments import EXPERIMENTS, balancing, energy, joined
from benchmarks.experiments.energy import LIVE, PAIR, demand_of, reckoned, watts_of
from benchmarks.experiments.joined import APART, BUSY, EMPTY, IDLE, JOINED, ONE, Case, Load, measure_case
from benchmarks.guests import Setting
from benchmarks.joules import Joules, Reading
from benchmarks.paper import claims
from benchmarks.pictures import ALL, drawn
from benchmarks.style import THEMES
from scheduler.balance import COMPACT, OFF
from scheduler.simulator.host.settings import Power
from tests.backend_host.nvml.library import build_library

EXPERIMENT = EXPERIMENTS["energy"]
HEAD = {"experiment": "energy", "device": "simulator", "date": "2026-01-02"}


def live(case: Case, *watts: float, gpus: tuple[int, ...] = (), used: float = 0.0, passes: int = 0) -> dict[str, Any]:
    joules = [10 * each for each in watts]
    found = {"seconds": 10.0, "joules": joules, "gpus": list(gpus), "used": [used] * len(gpus), "passes": passes}
    return {"kind": LIVE, "case": case.name, "repetition": 0, **found}


def order(mode: str, interval_s: float, joules: float) -> dict[str, Any]:
    said = {"kind": balancing.KIND, "interval_s": interval_s, "balance": mode, "order": 0, "gpus": 4}
    return {**said, "joules": joules, "mean_slowdown": 1.1, "nr_moves": 3, "watts": [70, 120, 450]}


def pair(mode: str, joules: float) -> dict[str, Any]:
    said = {"kind": PAIR, "balance": mode, "demand": 0.2, "watts": [70, 120, 450]}
    return {**said, "joules": joules, "mean_slowdown": 1.0, "nr_moves": 1}


MEASURED = [
    live(EMPTY, 70, 72),
    live(IDLE, 110, 112, gpus=(0, 1)),
    live(BUSY, 400, 402, gpus=(0, 1), used=1.0, passes=40_000),
    live(ONE, 160, 71, gpus=(0,), used=0.2, passes=4_000),
    live(APART, 170, 170, gpus=(0, 1), used=0.2, passes=8_000),
    live(JOINED, 200, 71, gpus=(0, 0), used=0.25, passes=8_000),
]
SIMULATED = [pair(OFF, 11_000), pair(COMPACT, 9_900), order(OFF, 7.0, 1000), order(COMPACT, 7.0, 950)]
DOCUMENT = {**HEAD, "records": [*MEASURED, *SIMULATED]}


def test_what_is_said_beside_the_paper() -> None:
    found = {(each.name, each.detail): each.ours for each in EXPERIMENT.findings(DOCUMENT)}
    assert found == {
        ("dcuda_energy_light", "in simulation, 1 orders"): 0.95,
        ("dcuda_energy_light", "two light programs on two GPUs, by NVML"): pytest.approx(271 / 340),
        ("dcuda_together", "by NVML"): pytest.approx(200 / 160),
    }
    assert {name for name, _ in found} <= claims().keys()
    figures = EXPERIMENT.figures(DOCUMENT)
    assert figures["live/energy"] == pytest.approx(271 / 340)
    assert (figures["pair/energy"], figures["live/work"], figures["7 s/energy"]) == (0.9, 1.0, 0.95)
    assert figures["watts/contexts, no work"] == 111


def test_energy_is_that_of_the_work_done() -> None:
    """Who does half the work with the same energy takes twice as much."""
    slower = [live(JOINED, 170, 170, gpus=(0, 0), used=0.2, passes=4_000), MEASURED[4]]
    assert EXPERIMENT.figures({**HEAD, "records": slower})["live/energy"] == pytest.approx(2.0)


def test_the_model_goes_by_what_was_measured() -> None:
    power = watts_of(MEASURED)
    assert power == Power(71, 111, 401)
    assert reckoned(MEASURED[5], power) == pytest.approx(10 * (71 + 111 + 290 * 0.5))
    assert reckoned(MEASURED[0], power) == pytest.approx(1420)
    assert demand_of(MEASURED) == 0.2
    half = [MEASURED[0], MEASURED[1], live(BUSY, 250, 252, gpus=(0, 1), used=0.8, passes=1)]
    assert watts_of(half) == Power(71, 111, 111 + 140 / 0.8)
    assert watts_of(MEASURED[1:]) is None
    assert watts_of([live(EMPTY, 130, 130), *MEASURED[1:]]) is None, "watts rise"
    assert demand_of(MEASURED[:4]) is None


def test_tables() -> None:
    measured, simulated = EXPERIMENT.sheets(DOCUMENT)
    rows = {row[0]: row[1:] for row in measured.rows}
    assert rows[JOINED.name] == ("0 0", "200.0", "71.0", "271.0", "327.0", "25.0 %", "800", "338.8")
    assert rows[EMPTY.name] == ("-", "70.0", "72.0", "142.0", "142.0", "-", "-", "-")
    assert [row[:5] for row in simulated.rows] == [
        ("two light programs at once, two GPUs", "1", "11.0", "9.9", "0.900"),
        ("one program in 7 s, 4 GPUs", "1", "1.0", "0.9", "0.950"),
    ]
    assert EXPERIMENT.sheets({**HEAD, "records": []}) == []
    assert all(len(row) == len(sheet.columns) for sheet in (measured, simulated) for row in sheet.rows)


def test_pictures_begin_with_their_finding() -> None:
    [picture] = [picture for picture in ALL if picture.name == "energy"]
    both = drawn(picture, DOCUMENT, THEMES["light"]).decode()
    assert "Two light programs take 20.3 % less energy on one GPU than on two" in both
    alone = drawn(picture, {**HEAD, "records": SIMULATED}, THEMES["light"]).decode()
    assert "GPUs take 5.0 % less energy where programs are joined, with one program in 7 s" in alone
    with pytest.raises(NotMeasurableError, match="nothing was measured"):
        EXPERIMENT.plot({**HEAD, "records": []}, None)


def test_softgpu_has_no_power(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["energy", "--device", "soft", "--parts", "live"]) == 1
    assert "softgpu has no power" in capsys.readouterr().err
    path = tmp_path / "found.json"
    assert main(["energy", "--device", "soft", "--parts", "live,pair", "--json", str(path)]) == 0
    said = json.loads(path.read_text())
    [refused] = said["refused"]
    assert "softgpu has no power" in refused
    assert (said["device"], said["failures"]) == (balancing.SIMULATOR, [])
    before, after = said["records"]
    assert (before["nr_moves"], after["nr_moves"]) == (0, 1)
    assert after["joules"] < before["joules"]


def test_devices_by_their_numbers() -> None:
    """As softgpu's driver tells them."""
    code = "import json; from benchmarks.devices import device_uuids; print(json.dumps(device_uuids()))"
    environment = native_environment("soft", FAIRGV_SOFTGPU_DEVICES="2")
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    first, second = json.loads(ended.stdout)
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first)
    assert first != second


def test_a_host_of_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "device_uuids", lambda: ["GPU-1"])
    assert energy.why_not("cuda").endswith("that takes 2 GPUs, and there is 1")


class MadeUp:
    """100 W and 50 W."""

    def read(self) -> Reading:
        now_s = time.monotonic()
        return Reading(now_s, (100 * now_s, 50 * now_s))


def test_light_programs_apart_and_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the balancing of a daemon, on softgpu with made-up power."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    monkeypatch.setattr(joined, "SETTLE_S", 0.1)
    load = Load(mib=8, changed=10, passes=1, pause_ms=60)
    with private_device("soft"):
        found = {case.name: measure_case(case, load, Setting("soft"), MadeUp(), 0.5) for case in (EMPTY, APART, JOINED)}
    assert found[EMPTY.name]["gpus"] == []
    assert found[EMPTY.name]["passes"] == 0 < min(found[case.name]["passes"] for case in (APART, JOINED))
    assert sorted(found[APART.name]["gpus"]) == [0, 1]
    assert len(set(found[JOINED.name]["gpus"])) == 1
    for record in found.values():
        assert record["joules"] == pytest.approx([100 * record["seconds"], 50 * record["seconds"]])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml")
    folder = tmp_path_factory.mktemp("nvml")
    build_library(folder)
    return folder


def test_nvml_is_asked_in_a_child(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_CASE", "answers")
    with Joules(["GPU-1", "GPU-1"]) as meter:
        first, second = meter.read(), meter.read()
    assert first.joules == second.joules == ((1 << 40) / 1000,) * 2
    assert first.at_s < second.at_s
    monkeypatch.setattr(energy, "device_uuids", lambda: ["GPU-1", "GPU-1", "GPU-2"])
    assert energy.why_not("cuda") == "", "of the first two"


@pytest.mark.parametrize(
    ("case", "uuid", "why"),
    [("no driver", "GPU-1", "NVML tells no energy: Driver Not Loaded"), ("answers", "GPU-2", "tells no energy")],
)
def test_why_there_is_no_energy(library: Path, monkeypatch: pytest.MonkeyPatch, case: str, uuid: str, why: str) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_CASE", case)
    with pytest.raises(NotMeasurableError, match=why):
        Joules([uuid])


def test_without_the_package_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(energy, "device_uuids", lambda: ["GPU-1", "GPU-2"])
    assert energy.why_not("cuda").endswith("the Python package nvidia-ml-py is not installed")
