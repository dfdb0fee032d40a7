"""What goes wrong gives a CUDA error and a line on the host, hangs nobody, leaks nothing.

The cases without a worker (no region, another version, no daemon, a full region) are in tests/frontend_guest; these need the whole house.
"""

import contextlib
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.launching import wait_for_end
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until

LONG_MS = "60000"


def vgpu_of(host: Host, name: str) -> dict[str, Any]:
    """The status of one vGPU."""
    [entry] = [vgpu for vgpu in host.status()["vgpus"] if vgpu["name"] == name]
    found: dict[str, Any] = entry
    return found


@pytest.fixture
def keeper(own_host: Host) -> Any:
    """Holds the vGPU `kept` open, so that it outlives the programs that use it."""
    child = own_host.start("/bin/sleep", "600", options=("--vgpu", "kept"))
    wait_until(lambda: bool(own_host.status()["vgpus"]), "the vGPU is there")
    yield child
    child.terminate()
    child.communicate()


def start_long_kernel(host: Host) -> subprocess.Popen[str]:
    """A program whose kernel runs for a minute; returns when it was launched."""
    child = host.start("spin", LONG_MS, options=("--vgpu", "kept"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    wait_until(lambda: len(vgpu_of(host, "kept")["clients"]) == 1, "the client is served")
    return child


def assert_nothing_is_left(host: Host, name: str) -> None:
    """Every client of the vGPU is gone with all that it held."""
    wait_until(lambda: not vgpu_of(host, name)["clients"], "the worker ended")
    wait_until(lambda: vgpu_of(host, name)["memory_bytes"] == 0, "device memory was given back")
    wait_until(lambda: host.guest("vector_add", options=("--vgpu", name)).returncode == 0, "the next program works")


@pytest.mark.usefixtures("keeper")
def test_a_worker_killed_during_a_call(own_host: Host) -> None:
    child = start_long_kernel(own_host)
    [client] = vgpu_of(own_host, "kept")["clients"]
    os.kill(client["worker_pid"], signal.SIGKILL)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "synchronize: cudaErrorDevicesUnavailable" in output
    assert errors.count("fairgv: ") == 1, errors
    assert "worker of client" in own_host.log()
    assert_nothing_is_left(own_host, "kept")


@pytest.mark.usefixtures("keeper")
def test_a_program_killed_during_a_call(own_host: Host) -> None:
    child = start_long_kernel(own_host)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child_of(child.pid), signal.SIGKILL)
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGKILL
    assert_nothing_is_left(own_host, "kept")


def test_a_kernel_that_faults_hurts_only_its_program(own_host: Host) -> None:
    neighbour = own_host.start("spin", "3000")
    faulty = own_host.guest("fault")
    assert faulty.returncode == 0, faulty.stdout
    assert "synchronize: cudaErrorIllegalAddress" in faulty.stdout
    output, errors = neighbour.communicate(timeout=60)
    assert neighbour.returncode == 0, output + errors


def test_an_image_that_is_none(own_host: Host) -> None:
    result = own_host.guest("bad_image")
    assert result.returncode == 0, result.stdout
    assert "CUDA_ERROR_INVALID_IMAGE" in result.stdout


@pytest.mark.usefixtures("keeper")
def test_200_clients_one_after_another(own_host: Host) -> None:
    before = vgpu_of(own_host, "kept")
    loop = f"for i in $(seq 200); do {PROGRAMS}/empty_launch 1 >/dev/null || exit 1; done"
    child = own_host.start("/bin/sh", "-c", loop, options=("--vgpu", "kept"))
    output, errors = child.communicate(timeout=280)
    assert child.returncode == 0, output + errors
    wait_until(lambda: not vgpu_of(own_host, "kept")["clients"], "all workers ended")
    after = vgpu_of(own_host, "kept")
    assert after["totals"]["nr_clients"] == 200
    assert after["memory_bytes"] == 0
    wait_until(
        lambda: vgpu_of(own_host, "kept")["region_free_bytes"] == before["region_free_bytes"], "all pages are back"
    )


def test_stopping_the_daemon_ends_programs_with_an_error(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    child = host.start("spin", LONG_MS)
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    stop_host(host)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "synchronize: cudaErrorDevicesUnavailable" in output
    assert "fairgv: " in errors


def test_a_daemon_that_dies_leaves_running_programs_alone(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    stop = tmp_path / "stop"
    child = host.start("spin", "0", str(stop))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    pid = host.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    stop.touch()
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, output + errors
    again = start_host(tmp_path)
    assert again.guest("vector_add").returncode == 0
    stop_host(again)


def test_a_worker_that_dies_with_the_grant_after_the_daemon_stops_nobody(tmp_path: Path) -> None:
    """The dead one's marks are cleared by whoever waits: no worker can send a signal, so it has to learn of the death otherwise."""
    host = start_host(tmp_path)
    holder = host.start("spin", LONG_MS, options=("--vgpu", "holder"))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "running\n"
    [client] = vgpu_of(host, "holder")["clients"]
    other = host.start("spin", "100", options=("--vgpu", "other"))
    assert other.stdout is not None
    assert other.stdout.readline() == "running\n"
    os.kill(host.status()["pid"], signal.SIGKILL)
    os.kill(client["worker_pid"], signal.SIGKILL)
    output, errors = other.communicate(timeout=60)
    assert other.returncode == 0, output + errors
    holder.communicate(timeout=60)


def test_a_daemon_short_of_descriptors_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Whichever step finds none: the program is refused, or served. A worker that nobody could tell of its client left it waiting for ever."""
    host = start_host(tmp_path, nr_warm_workers=0)
    daemon = host.status()["pid"]
    keeper = host.start("/bin/sleep", "600", options=("--vgpu", "kept"))
    wait_until(lambda: bool(host.status()["vgpus"]), "the vGPU is there")
    before = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
    for nr_free in range(1, 20):
        nr_open = 1 + max(int(path.name) for path in Path(f"/proc/{daemon}/fd").iterdir())
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, (nr_open + nr_free, before[1]))
        result = host.guest("vector_add", options=("--vgpu", "kept"))
        assert result.returncode == 0 or "fairgv" in result.stderr, result.stdout + result.stderr
        fresh = host.guest("vector_add")
        assert fresh.returncode == 0 or "fairgv" in fresh.stderr, fresh.stdout + fresh.stderr
    assert "Traceback" not in host.log()
    resource.prlimit(daemon, resource.RLIMIT_NOFILE, before)
    assert_nothing_is_left(host, "kept")
    keeper.terminate()
    keeper.communicate()
    stop_host(host)


def test_commands_without_a_daemon_say_what_to_do(tmp_path: Path) -> None:
    for command in ("status", "stop", "list"):
        answer = host_command(tmp_path, command)
        assert answer.returncode == 1
        assert f"start one with: fairgv-host --state-dir {tmp_path} start\n" in answer.stderr
        assert len(answer.stderr.splitlines()) == 1


def test_a_second_daemon_is_refused(own_host: Host) -> None:
    answer = host_command(own_host.state_dir, "start", "--device", "soft")
    assert answer.returncode == 1
    assert "already runs" in answer.stderr
    assert own_host.guest("vector_add").returncode == 0


def child_of(pid: int) -> int:
    """The only child of a process."""
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.usefixtures("keeper")
def test_a_worker_killed_while_a_host_function_runs(own_host: Host, tmp_path: Path) -> None:
    child = own_host.start("host_functions", "held", str(tmp_path / "go"), options=("--vgpu", "kept"))
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    [client] = vgpu_of(own_host, "kept")["clients"]
    os.kill(client["worker_pid"], signal.SIGKILL)
    assert child.stdout.readline() == "cudaErrorDevicesUnavailable\n"
    (tmp_path / "go").touch()
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output) == (0, "the function has returned\n"), errors
    assert_nothing_is_left(own_host, "kept")


@pytest.mark.usefixtures("keeper")
def test_others_compute_while_a_host_function_runs(own_host: Host, tmp_path: Path) -> None:
    child = own_host.start("host_functions", "held", str(tmp_path / "go"), options=("--vgpu", "kept"))
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    used_ns = vgpu_of(own_host, "kept")["used_ns"]
    assert own_host.guest("vector_add").returncode == 0
    assert vgpu_of(own_host, "kept")["used_ns"] == used_ns
    (tmp_path / "go").touch()
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output) == (0, "cudaSuccess\nthe function has returned\n"), errors


@pytest.mark.usefixtures("keeper")
def test_a_program_ends_while_a_host_function_runs(own_host: Host) -> None:
    result = own_host.guest("host_functions", "forever", options=("--vgpu", "kept"))
    assert (result.returncode, result.stdout) == (0, "running\n"), result.stderr
    assert_nothing_is_left(own_host, "kept")


def test_a_host_function_behind_a_failed_kernel(own_host: Host) -> None:
    guest = own_host.guest("host_functions", "fault")
    native = own_host.native("host_functions", "fault")
    assert (guest.returncode, guest.stdout) == (native.returncode, native.stdout), guest.stderr
