"""Spaces, whole, on softgpu: programs of one space begin as the space's, share its page, and end as any; what breaks is made anew."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.space_programs import BEST_EFFORT, CRITICAL, processes, program, space, vgpu, worker


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    running = start_host(tmp_path, space="mps")
    yield running
    with contextlib.suppress(FairGVError):
        stop_host(running)
    wait_until(lambda: processes(running) == {}, "no process of the space is left")


def own_client(host: Host) -> int:
    """The daemon's own process in the space."""
    found = [pid for pid, each in processes(host).items() if "backend_host.space.client" in each["arguments"]]
    return found[0] if len(found) == 1 else 0


def shared_files(pid: int) -> set[str]:
    """Memory files that a process maps, by their inodes."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:" in line}


def test_programs_of_a_space_begin_as_its_own_and_share_its_page(host: Host) -> None:
    with program(host, BEST_EFFORT), program(host, CRITICAL):
        found = processes(host)
        fast, slow = worker(host, "fast"), worker(host, "slow")
        assert found[fast]["FAIRGV_SOFTGPU_SPACE"] == found[slow]["FAIRGV_SOFTGPU_SPACE"]
        assert "CUDA_MPS_CLIENT_PRIORITY" not in found[fast]
        assert found[slow]["CUDA_MPS_CLIENT_PRIORITY"] == "1", "best effort stands behind"
        common = shared_files(fast) & shared_files(slow) & shared_files(own_client(host))
        assert common, "all map the page"
        assert "no page of its space" not in host.log()
        told = space(host)
        assert (told["name"], told["way"], told["why_turns"]) == ("web", "softgpu", "")
        assert (told["critical"], told["best_effort"], told["fair"]) == ("fast", ["slow"], [])
        assert told["multiprocessors"] > 0
        shown = host_command(host.state_dir, "space").stdout
        assert "best effort: slow" in shown
        assert json.loads(host_command(host.state_dir, "space", "--json").stdout)[0]["name"] == "web"
        assert told["nr_faults"] == 0
        assert vgpu(host, "fast")["vgpu_class"] == "critical"


def test_workers_of_a_space_are_one_user_without_privileges(host: Host) -> None:
    with program(host, BEST_EFFORT), program(host, CRITICAL):
        pids = [worker(host, "fast"), worker(host, "slow"), own_client(host)]
        lines = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in pids]
        users = {line for each in lines for line in each if line.startswith("Uid:")}
        privileges = {line.split()[1] for each in lines for line in each if line.startswith(("CapPrm", "CapEff"))}
        assert len(users) == 1
        assert privileges == {"0" * 16}
        assert vgpu(host, "slow")["space"] == "web"


def test_a_space_goes_with_its_last_vgpu(host: Host) -> None:
    with program(host, CRITICAL):
        assert own_client(host) > 0
    wait_until(lambda: host.status()["spaces"] == [], "it has no vGPU")
    wait_until(lambda: processes(host) == {}, "its processes have ended")
    assert host.guest("vector_add", options=CRITICAL).returncode == 0, "it begins anew"


def test_the_end_of_its_own_process_costs_no_program_anything(host: Host) -> None:
    with program(host, BEST_EFFORT), program(host, CRITICAL):
        before = own_client(host)
        os.kill(before, signal.SIGKILL)
        assert host.guest("vector_add", options=CRITICAL).returncode == 0, "a new program finds the space in order"
        after = own_client(host)
        assert after not in (0, before)
        assert shared_files(after) & shared_files(worker(host, "fast")), "the page is the same"
        assert space(host)["nr_faults"] == 1
    assert "the space web starts anew: its process has ended" in host.log()


def test_the_end_of_a_worker_costs_its_program_alone(host: Host) -> None:
    other = host.start("restless", stdin=subprocess.PIPE, options=BEST_EFFORT)
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    with program(host, CRITICAL):
        os.kill(worker(host, "slow"), signal.SIGKILL)
        other.communicate(timeout=60)
        assert other.returncode != 0
        assert host.guest("vector_add", options=CRITICAL).returncode == 0
    assert "the space web starts anew" not in host.log()


def test_a_daemon_that_dies_leaves_its_spaces_to_the_next_one(host: Host) -> None:
    with program(host, BEST_EFFORT), program(host, CRITICAL):
        page = shared_files(worker(host, "fast")) & shared_files(worker(host, "slow")) & shared_files(own_client(host))
        pid = int(host.status()["pid"])
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        wait_until(lambda: own_client(host) == 0, "the daemon's own process ends with it")
        start_host(host.state_dir, space="mps")
        wait_until(lambda: own_client(host) > 0, "the next one has a process of its own there")
        wait_until(lambda: bool(shared_files(own_client(host)) & page), "the page is the same")
        assert space(host)["critical"] == "fast"
    wait_until(lambda: processes(host) == {}, "its processes have ended")


def test_a_space_has_one_critical_vgpu(host: Host) -> None:
    with program(host, CRITICAL):
        refused = host.guest("vector_add", options=("--vgpu", "faster", *CRITICAL[2:]))
        assert refused.returncode == 1
        assert "fast is the critical vGPU of the space web on GPU 0, and a space has one" in refused.stderr
        changed = host_command(host.state_dir, "set", "fast", "--class", "fair")
        assert changed.returncode == 1
        assert "--class: programs of fast began as those of a critical vGPU: end them first" in changed.stderr
        assert host_command(host.state_dir, "set", "fast", "--qos", "3ms", "--most", "20").returncode == 0
        assert (space(host)["qos"], space(host)["most"]) == ("3ms", 20.0)
    assert host.log().count("a space has one") == 1


def test_classes_change_while_no_program_runs(host: Host) -> None:
    holder = host.start("/bin/cat", stdin=subprocess.PIPE, options=("--vgpu", "kept", "--space", "web"))
    wait_until(lambda: bool(host.status()["vgpus"]), "it is there")
    assert host_command(host.state_dir, "set", "kept", "--class", "best-effort").returncode == 0
    with program(host, ("--vgpu", "kept")):
        assert processes(host)[worker(host, "kept")]["CUDA_MPS_CLIENT_PRIORITY"] == "1"
    holder.communicate(timeout=60)
    assert holder.returncode == 0


def test_without_spaces_each_takes_turns(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    try:
        refused = host.guest("vector_add", options=BEST_EFFORT)
        assert refused.returncode == 1
        assert "is started by fairgv-host start --space mps" in refused.stderr
        assert host.guest("vector_add", options=("--class", "critical", "--qos", "2")).returncode == 0
        assert host.status()["spaces"] == []
    finally:
        stop_host(host)


def test_best_effort_gets_on_beside_a_critical_one_that_never_rests(host: Host) -> None:
    with program(host, CRITICAL):
        for _ in range(2):
            assert host.guest("vector_add", options=BEST_EFFORT).returncode == 0
        assert worker(host, "fast")
