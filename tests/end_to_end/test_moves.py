"""vGPUs that move to another Gpu while their programs run: programs notice nothing, and nothing is left of what could not be."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.cli import host_command
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.travel import (
    KEPT,
    PAUSES,
    Program,
    begin_to_move,
    devices,
    end_programs,
    go_together,
    migrate,
    neighbours_run_on,
    number,
    vgpu,
)

NR_MOVES = 4


@pytest.fixture(scope="module")
def host(two_devices: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = start_host(tmp_path_factory.mktemp("moves"))
    yield host
    stop_host(host)


@pytest.fixture
def own_host(two_devices: None, tmp_path: Path) -> Iterator[Host]:
    """For a test that ends its daemon."""
    host = start_host(tmp_path)
    yield host
    end_programs()
    stop_host(host)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_programs()


def test_a_program_that_keeps_addresses_of_every_kind_notices_nothing(host: Host) -> None:
    program = Program(host, "web", KEPT)
    native = subprocess.run(
        [str(host.native(KEPT).args[0])],
        input="\n" * (NR_MOVES + 1),
        env=host.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines(keepends=True)
    assert program.computes() == native[1]
    for nth in range(NR_MOVES):
        assert migrate(host, "web")["pause_ns"] > 0
        assert program.computes() == native[2 + nth]
    assert program.ends() == ["launches: 1", "PASS"]


def test_its_account_its_memory_and_its_place_go_along(host: Host) -> None:
    program = Program(host, "web")
    program.computes()
    before = vgpu(host, "web")
    migrate(host, "web")
    after = vgpu(host, "web")
    assert before["gpu_number"] + after["gpu_number"] == 1
    assert after["used_ns"] >= before["used_ns"] > 0
    assert after["memory_bytes"] == before["memory_bytes"]
    assert after["totals"]["nr_launches"] == before["totals"]["nr_launches"]
    program.computes()
    assert vgpu(host, "web")["used_ns"] > after["used_ns"]
    assert devices(host)[after["gpu_number"]]["vgpus"] == ["web"]
    assert devices(host)[before["gpu_number"]]["used_bytes"] == 0
    program.ends()


def test_the_guests_device_stays_what_it_was(host: Host) -> None:
    """Also for programs that begin there."""
    waits = Program(host, "web")
    before = host.guest("device_query", options=("--vgpu", "web"))
    migrate(host, "web")
    after = host.guest("device_query", options=("--vgpu", "web"))
    assert (before.returncode, before.stdout) == (after.returncode, after.stdout)
    assert {client["program"] for client in vgpu(host, "web")["clients"]} == {PAUSES}
    waits.ends()


def test_all_programs_of_a_vgpu_go_together(host: Host) -> None:
    go_together(host, (PAUSES, KEPT, PAUSES), 1, lambda: migrate(host, "web"))


def test_neighbours_on_both_gpus_run_on(host: Host) -> None:
    neighbours_run_on(host, KEPT, lambda: migrate(host, "moves"))


def test_work_that_does_not_end_keeps_it_where_it_is(host: Host) -> None:
    child = host.start("spin", "60000", options=("--vgpu", "web"))
    try:
        assert child.stdout is not None
        assert child.stdout.readline(), "its kernel has begun"
        here = number(host, "web")
        answer = host_command(host.state_dir, "migrate", "web", "--to", str(1 - here))
        assert answer.returncode == 1
        assert f"web stays on GPU {here}: " in answer.stderr
        assert "its work on the GPU does not end" in answer.stderr
        assert (number(host, "web"), devices(host)[1 - here]["vgpus"]) == (here, [])
    finally:
        child.terminate()
        child.communicate()


def test_the_next_daemon_finds_it_where_it_went(own_host: Host) -> None:
    host = own_host
    program = Program(host, "web", KEPT)
    program.computes()
    migrate(host, "web")
    before = vgpu(host, "web")
    assert host_command(host.state_dir, "restart").returncode == 0
    program.computes()
    now = vgpu(host, "web")
    assert now["gpu_number"] == before["gpu_number"]
    assert now["used_ns"] > before["used_ns"]
    migrate(host, "web")
    program.computes()
    assert program.ends()[-1] == "PASS"


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_worker_that_dies_on_its_way_leaves_nothing(host: Host, stage: str) -> None:
    """At whatever it is when that stage is seen."""
    program = Program(host, "web")
    program.computes()
    [client] = vgpu(host, "web")["clients"]
    moving = begin_to_move(host, "web", stage)
    os.kill(client["worker_pid"], signal.SIGKILL)
    moving.communicate(timeout=60)
    wait_until(lambda: not vgpu(host, "web")["clients"], "its worker is gone")
    assert program.child.poll() is None, "it learns of that at its next call"


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_daemon_that_dies_in_a_move_leaves_nobody_standing(own_host: Host, stage: str) -> None:
    """The program goes on, or has its device's error, and its vGPU is on one Gpu."""
    host = own_host
    program = Program(host, "web")
    program.computes()
    daemon_pid = host.status()["pid"]
    moving = begin_to_move(host, "web", stage)
    os.kill(daemon_pid, signal.SIGKILL)
    wait_for_end(daemon_pid)
    moving.communicate(timeout=60)
    start_host(host.state_dir)
    output, _ = program.child.communicate("\n", timeout=60)
    assert output.splitlines()[-1] in ("PASS", "FAIL"), "it hangs for nobody"


def test_drain_under_load(host: Host) -> None:
    """Three guests on each of two Gpus, and then all on one."""
    everybody = {f"web-{nth}": Program(host, f"web-{nth}", (PAUSES, KEPT)[nth % 2]) for nth in range(6)}
    for nth, name in enumerate(everybody):
        if number(host, name) != nth // 3:
            migrate(host, name)
    for each in everybody.values():
        each.computes()
    drained = host_command(host.state_dir, "drain", "0")
    try:
        assert drained.returncode == 0, drained.stdout + drained.stderr
        assert [len(gpu["vgpus"]) for gpu in devices(host)] == [0, 6]
        for each in everybody.values():
            each.computes()
            assert each.ends()[-1] == "PASS"
    finally:
        assert host_command(host.state_dir, "undrain", "0").returncode == 0
