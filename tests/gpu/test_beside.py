"""Programs that copy, several at once on a GPU: their copies go beside the kernels of others, and all compute what they should."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.build import build
from tests.end_to_end.host import Host, wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

LIMIT_S = 120
SIZES = {"srad_v1": 1024, "hotspot": 1024, "histogram": 16_000_000, "scan": 1 << 22}
COPYING = ("srad_v1", "hotspot")
"""In each round; the others have their data where it is after the first."""
SECONDS = "4"
NEIGHBOUR = ("--kernel-us", "50", "--queue", "64", "--seconds", "8")


def start(host: Host, name: str, program: Path) -> subprocess.Popen[str]:
    """It compares what it has computed in the end with what the CPU computes."""
    arguments = ("--json", "--seconds", SECONDS, "--size", str(SIZES[name]))
    return host.start(program, *arguments, options=("--vgpu", name))


def nr_beside(host: Host, name: str) -> int:
    """Copies of the vGPU without a turn; 0 while it is not there."""
    return sum(vgpu["totals"]["nr_copies_beside"] for vgpu in host.status()["vgpus"] if vgpu["name"] == name)


def test_programs_that_copy_beside_each_other_compute_the_same(gpu_host: Host) -> None:
    """And beside one that always has kernels, so that there is somebody whose turn it is."""
    built = {name: build(name) for name in ("spin", *SIZES)}  # first: the neighbour works for seconds only
    neighbour = gpu_host.start(built["spin"], *NEIGHBOUR, options=("--vgpu", "neighbour"))
    running = {name: start(gpu_host, name, built[name]) for name in SIZES}
    wait_until(
        lambda: all(nr_beside(gpu_host, name) > 0 for name in COPYING), "copies go beside others' kernels", LIMIT_S
    )
    for name, program in running.items():
        output, errors = program.communicate(timeout=LIMIT_S)
        assert program.returncode == 0, (name, output, errors)
    neighbour.communicate(timeout=LIMIT_S)
    assert neighbour.returncode == 0
