"""Two programs of PyTorch in two vGPUs of one GPU: both compute what they compute natively, and one that is killed is not noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from tests.end_to_end.host import Host, wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

PROGRAM = PACKAGE_ROOT / "benchmarks/frameworks/torch_train.py"
COMMAND = (sys.executable, str(PROGRAM), "200")
LIMIT_S = 180


def results(output: str) -> list[str]:
    """What was computed, without times."""
    return [line for line in output.splitlines() if line and not line.startswith("time ")]


@pytest.fixture(scope="module")
def native() -> list[str]:
    pytest.importorskip("torch")
    output = subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    assert len(results(output)) == 2
    return results(output)


def start(host: Host, name: str) -> subprocess.Popen[str]:
    return host.start(Path(COMMAND[0]), *COMMAND[1:], options=("--vgpu", name, "--memory", "20G"))


def launches(host: Host, name: str) -> int:
    """Of the clients of one vGPU so far."""
    return sum(vgpu["totals"]["nr_launches"] for vgpu in host.status()["vgpus"] if vgpu["name"] == name)


def test_both_compute_what_they_compute_alone(gpu_host: Host, native: list[str]) -> None:
    children = [start(gpu_host, name) for name in ("left", "right")]
    outputs = [child.communicate(timeout=LIMIT_S) for child in children]
    for output, errors in outputs:
        assert results(output) == native, errors


def test_one_that_is_killed_is_not_noticed(gpu_host: Host, native: list[str]) -> None:
    victim, other = start(gpu_host, "victim"), start(gpu_host, "other")
    wait_until(lambda: launches(gpu_host, "victim") > 1000 and launches(gpu_host, "other") > 1000, "both train", 120)
    victim.kill()
    victim.communicate()
    output, errors = other.communicate(timeout=LIMIT_S)
    assert results(output) == native, errors
    wait_until(lambda: "victim" not in [vgpu["name"] for vgpu in gpu_host.status()["vgpus"]], "its vGPU is gone")
