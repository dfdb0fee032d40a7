"""A kernel that never ends costs its program its worker, and nobody else anything."""

import os
from collections.abc import Iterator

import pytest

from backend_host.cli import host_command
from backend_host.debts import BAN_AFTER
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

FOR_EVER_MS = "100000000"


@pytest.fixture
def strict_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One that waits for a second only."""
    running = start_host(tmp_path_factory.mktemp("strict"), watchdog_s=1)
    yield running
    stop_host(running)


def test_a_kernel_that_never_ends(strict_host: Host) -> None:
    guilty = strict_host.start("spin", FOR_EVER_MS, options=("--vgpu", "guilty"))
    assert guilty.stdout is not None
    assert guilty.stdout.readline() == "running\n"
    wait_until(lambda: bool(strict_host.status()["vgpus"][0]["clients"]), "it is served")
    keeper = strict_host.start("/bin/sleep", "600", options=("--vgpu", "guilty"))
    innocent = strict_host.guest("vector_add", options=("--vgpu", "innocent"))
    assert innocent.returncode == 0, innocent.stdout + innocent.stderr
    output, errors = guilty.communicate(timeout=60)
    assert guilty.returncode == 1
    assert output.startswith("synchronize: cudaErrorLaunchTimeout\n")
    assert "kept the GPU from others for too long" in errors
    log = strict_host.log()
    assert "WARNING fairgv.watchdog" in log
    assert "ERROR fairgv.watchdog" in log
    [vgpu] = [entry for entry in strict_host.status()["vgpus"] if entry["name"] == "guilty"]
    assert vgpu["nr_timed_out"] == 1
    again = strict_host.guest("vector_add", options=("--vgpu", "guilty"))
    assert again.returncode == 0, again.stdout + again.stderr
    keeper.terminate()
    keeper.communicate()


def test_who_does_it_again_and_again_is_banned(strict_host: Host) -> None:
    """The user is, as a vGPU of fairgv-run goes with its program. Its next program is refused."""
    for nr in range(BAN_AFTER):
        guilty = strict_host.start("spin", FOR_EVER_MS)
        assert guilty.stdout is not None
        assert guilty.stdout.readline() == "running\n"
        waiting = strict_host.start("vector_add")
        guilty.communicate(timeout=60)
        waiting.communicate(timeout=120)
        [debt] = strict_host.status()["debts"]
        assert (debt["debtor"], debt["nr_timed_out"]) == (f"user {os.geteuid()}", nr + 1)
    refused = strict_host.guest("vector_add")
    assert refused.returncode != 0
    shown = host_command(strict_host.state_dir, "status").stdout
    assert "banned until fairgv-host unban" in shown
    lifted = host_command(strict_host.state_dir, "unban", str(os.geteuid()))
    assert (lifted.returncode, lifted.stdout) == (0, f"user {os.geteuid()} is forgiven\n")
    assert strict_host.guest("vector_add").returncode == 0
    again = host_command(strict_host.state_dir, "unban", str(os.geteuid()))
    assert again.returncode == 1
    assert "has a debt or a ban" in again.stderr
