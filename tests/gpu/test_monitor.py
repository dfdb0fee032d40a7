"""What NVML says of a device reaches `devices --json`, metrics and `doctor`, and costs its programs nothing."""

import json

import pytest

from backend_host.cli import host_command
from backend_host.nvml.figures import MEASURED
from tests.end_to_end.host import Host, wait_until

pytestmark = pytest.mark.gpu


def figures(host: Host) -> dict[str, int | None]:
    [gpu, *_] = json.loads(host_command(host.state_dir, "devices", "--json").stdout)
    found: dict[str, int | None] = gpu["figures"]
    return found


def test_figures_come_and_move(gpu_host: Host) -> None:
    pytest.importorskip("pynvml")
    wait_until(lambda: figures(gpu_host)["power_mw"] is not None, "NVML answers")
    before = figures(gpu_host)
    known = {name for name in MEASURED if before[name] is not None}
    assert known >= {"power_mw", "energy_mj", "sm_mhz", "memory_mhz", "temperature_c"}
    assert before["power_mw"] is not None
    assert 10_000 < before["power_mw"] < 2_000_000
    assert gpu_host.guest("spin", "3000").returncode == 0
    energy = before["energy_mj"]
    assert energy is not None
    wait_until(lambda: (figures(gpu_host)["energy_mj"] or 0) > energy, "energy grows")


def test_an_illegal_address_is_an_xid_and_no_failure(gpu_host: Host) -> None:
    """Xid 31 is the program's own."""
    pytest.importorskip("pynvml")
    wait_until(lambda: figures(gpu_host)["power_mw"] is not None, "NVML answers")
    gpu_host.guest("fault")
    [gpu, *_] = gpu_host.status()["gpus"]
    assert gpu["failed"] == ""
    assert gpu_host.guest("vector_add").returncode == 0


def test_demand_of_a_program_that_never_pauses(gpu_host: Host) -> None:
    child = gpu_host.start("spin", "20000", options=("--vgpu", "busy"))
    try:
        wait_until(lambda: any((vgpu["demand"] or 0) > 0.5 for vgpu in gpu_host.status()["vgpus"]), "it is known")
    finally:
        child.terminate()
        child.communicate()


def test_doctor_says_whether_nvml_answers(gpu_host: Host) -> None:
    pytest.importorskip("pynvml")
    checks = json.loads(host_command(gpu_host.state_dir, "doctor", "--json").stdout)
    [found] = [check for check in checks if check["check"] == "monitor"]
    assert (found["state"], found["text"]) == ("pass", "NVML answers")
