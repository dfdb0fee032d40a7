"""A space on NVIDIA's driver: two vGPUs compute at the same time and compute right, and what a fault costs whom. Needs root, and MPS."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError
from backend_host.space.mps import CONTROL
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.space_programs import BEST_EFFORT, CRITICAL, program, space, worker

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which(CONTROL) is None, reason="MPS is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user for each space"),
]

OUTSIDE = ("--vgpu", "outside")


def mps_processes() -> set[int]:
    found = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().startswith("nvidia-cuda-mps"):
                found.add(int(comm.parent.name))
    return found


@pytest.fixture
def host() -> Iterator[Host]:
    """In a folder that the space's user may enter."""
    before = mps_processes()
    folder = Path(tempfile.mkdtemp(prefix="fairgv-space-"))
    folder.chmod(0o711)
    running = start_host(folder, device="cuda", vgpu=Entitlement(gpu="0"), space="mps")
    yield running
    with contextlib.suppress(FairGVError):
        stop_host(running)
    print(running.log())
    wait_until(lambda: mps_processes() <= before, "MPS has quit")
    shutil.rmtree(folder)


def start(host: Host, options: tuple[str, ...]) -> subprocess.Popen[str]:
    """A program that may be told an error; it computes by now."""
    child = host.start("restless", stdin=subprocess.PIPE, options=options)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def end(child: subprocess.Popen[str]) -> int:
    """How it ends, told to or not."""
    child.communicate(timeout=60)
    return int(child.returncode)


def test_both_compute_right_at_the_same_time(host: Host) -> None:
    with program(host, BEST_EFFORT), program(host, CRITICAL):
        told = space(host)
        assert (told["way"], told["why_turns"]) == ("mps", ""), host.log()
        assert told["multiprocessors"] > 0
        for name in ("fast", "slow"):
            environment = Path(f"/proc/{worker(host, name)}/environ").read_text().split("\0")
            assert any(word.startswith("CUDA_MPS_PIPE_DIRECTORY=") for word in environment)
        assert "no page of its space" not in host.log()
        assert space(host)["nr_faults"] == 0
    wait_until(lambda: host.status()["spaces"] == [], "it goes with its last vGPU")


def test_a_program_that_is_killed_costs_its_neighbour_nothing(host: Host) -> None:
    victim = start(host, BEST_EFFORT)
    with program(host, CRITICAL):
        victim.kill()
        victim.communicate()
        wait_until(lambda: [vgpu["name"] for vgpu in host.status()["vgpus"]] == ["fast"], "its vGPU is gone")
        assert host.guest("vector_add", options=CRITICAL).returncode == 0
        assert space(host)["nr_faults"] == 0


def test_a_fault_ends_programs_of_the_space_and_no_others(host: Host) -> None:
    with program(host, OUTSIDE):
        neighbour = start(host, BEST_EFFORT)
        keeper = host.start("/bin/cat", stdin=subprocess.PIPE, options=CRITICAL)
        assert "synchronize: cudaErrorIllegalAddress" in host.guest("fault", options=CRITICAL).stdout
        wait_until(lambda: space(host)["nr_faults"] >= 1, "the space starts anew", 5)
        assert "MPS does not tell whose fault that was" in host.log()
        assert host.guest("vector_add", options=CRITICAL).returncode == 0
        assert end(neighbour) != 0, "it was told of the fault"
        keeper.communicate(timeout=60)


def test_a_worker_that_is_killed_in_a_kernel_costs_no_one_outside(host: Host) -> None:
    with program(host, OUTSIDE):
        victim = start(host, BEST_EFFORT)
        neighbour = start(host, CRITICAL)
        os.kill(worker(host, "slow"), signal.SIGKILL)
        assert end(victim) != 0
        end(neighbour)
        assert host.guest("vector_add", options=CRITICAL).returncode == 0
        assert host.guest("vector_add", options=BEST_EFFORT).returncode == 0
