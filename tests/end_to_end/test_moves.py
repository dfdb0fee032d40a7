"""vGPUs that move to another Gpu while their programs run: programs notice nothing, and nothing is left of what could not be."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from backend_host.cli import host_command
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

NR_MOVES = 4
KEPT, PAUSES = "kept_addresses", "pauses"


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")


@pytest.fixture
def host(two_devices: None, tmp_path: Path) -> Iterator[Host]:
    """On which moves have been tried, as a daemon does at its start."""
    host = start_host(tmp_path)
    wait_until(lambda: has_mover(host), "moves were tried")
    yield host
    stop_host(host)


@pytest.fixture(autouse=True)
def programs() -> Iterator[list["Program"]]:
    """None outlives its test."""
    started: list[Program] = []
    Program.all = started
    yield started
    for program in started:
        with program.child as child:
            child.kill()


class Program:
    """One that computes once for each line, and says a line of it."""

    all: ClassVar[list["Program"]] = []

    def __init__(self, host: Host, vgpu: str, name: str = PAUSES) -> None:
        self.all.append(self)
        self.child = host.start(name, options=("--vgpu", vgpu, "--gpu", "0"), stdin=subprocess.PIPE)
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self.child.stdout is not None
        return str(self.child.stdout.readline())

    def computes(self) -> str:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self._line()

    def ends(self) -> list[str]:
        """The lines that it said last."""
        output, errors = self.child.communicate(timeout=60)
        assert self.child.returncode == 0, (output, errors)
        return output.splitlines()


def has_mover(host: Host) -> bool:
    """Of each Gpu it is known."""
    return all(gpu["mover"] is not None for gpu in devices(host))


def devices(host: Host) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(host_command(host.state_dir, "devices", "--json").stdout)
    return found


def migrate(host: Host, vgpu: str, to: int) -> dict[str, Any]:
    answer = host_command(host.state_dir, "migrate", vgpu, "--to", str(to), "--json")
    assert answer.stdout, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    assert (answer.returncode, told["stage"]) == (0, "done"), told
    return told


def vgpu(host: Host, name: str) -> dict[str, Any]:
    [found] = [each for each in host.status()["vgpus"] if each["name"] == name]
    return dict(found)


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
    for number in range(NR_MOVES):
        told = migrate(host, "web", (number + 1) % 2)
        assert told["pause_ns"] > 0
        assert program.computes() == native[2 + number]
    assert program.ends() == ["launches: 1", "PASS"]


def test_its_account_its_memory_and_its_place_go_along(host: Host) -> None:
    program = Program(host, "web")
    program.computes()
    before = vgpu(host, "web")
    migrate(host, "web", 1)
    after = vgpu(host, "web")
    assert (before["gpu_number"], after["gpu_number"]) == (0, 1)
    assert after["used_ns"] >= before["used_ns"] > 0
    assert after["memory_bytes"] == before["memory_bytes"]
    assert after["totals"]["nr_launches"] == before["totals"]["nr_launches"]
    program.computes()
    assert vgpu(host, "web")["used_ns"] > after["used_ns"]
    assert [gpu["vgpus"] for gpu in devices(host)] == [[], ["web"]]
    assert devices(host)[0]["used_bytes"] == 0
    program.ends()


def test_the_guests_device_stays_what_it_was(host: Host) -> None:
    """Also for programs that begin there."""
    waits = Program(host, "web")
    before = host.guest("device_query", options=("--vgpu", "web"))
    migrate(host, "web", 1)
    after = host.guest("device_query", options=("--vgpu", "web"))
    assert (before.returncode, before.stdout) == (after.returncode, after.stdout)
    assert {client["program"] for client in vgpu(host, "web")["clients"]} == {PAUSES}
    waits.ends()


def test_all_programs_of_a_vgpu_go_together(host: Host) -> None:
    programs = [Program(host, "web", name) for name in (PAUSES, KEPT, PAUSES)]
    for each in programs:
        each.computes()
    told = migrate(host, "web", 1)
    assert told["plan"]["nr_programs"] == 3
    for each in programs:
        each.computes()
        assert each.ends()[-1] == "PASS"


def test_a_neighbour_on_either_gpu_runs_on(host: Host) -> None:
    neighbours = [Program(host, "old", KEPT)]
    neighbours[0].computes()
    migrate(host, "old", 1)
    neighbours.append(Program(host, "stays", KEPT))
    moves = Program(host, "web")
    for to in (1, 0):
        for each in (*neighbours, moves):
            each.computes()
        migrate(host, "web", to)
    for each in (*neighbours, moves):
        each.computes()
        assert each.ends()[-1] == "PASS"


def test_work_that_does_not_end_keeps_it_where_it_is(host: Host) -> None:
    child = host.start("spin", "60000", options=("--vgpu", "web", "--gpu", "0"))
    try:
        wait_until(lambda: vgpu(host, "web")["totals"]["nr_launches"] > 0, "it works")
        answer = host_command(host.state_dir, "migrate", "web", "--to", "1")
        assert answer.returncode == 1
        assert "web stays on GPU 0: " in answer.stderr
        assert vgpu(host, "web")["gpu_number"] == 0
        assert [gpu["vgpus"] for gpu in devices(host)] == [["web"], []]
    finally:
        child.terminate()
        child.communicate()


def test_the_next_daemon_finds_it_where_it_went(host: Host) -> None:
    program = Program(host, "web", KEPT)
    program.computes()
    migrate(host, "web", 1)
    used_ns = vgpu(host, "web")["used_ns"]
    assert host_command(host.state_dir, "restart").returncode == 0
    program.computes()
    now = vgpu(host, "web")
    assert now["gpu_number"] == 1
    assert now["used_ns"] > used_ns
    wait_until(lambda: has_mover(host), "moves were tried")
    migrate(host, "web", 0)
    program.computes()
    assert program.ends()[-1] == "PASS"


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_worker_that_dies_on_its_way_leaves_nothing(host: Host, stage: str) -> None:
    """At whatever it is when that stage is seen."""
    program = Program(host, "web")
    program.computes()
    [client] = vgpu(host, "web")["clients"]
    moving = subprocess.Popen(
        [*host_words(host), "migrate", "web", "--to", "1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: (stage_of(host, "web") or stage) in (stage, "returning", "done", "aborted"), f"it is {stage}")
    os.kill(client["worker_pid"], signal.SIGKILL)
    moving.communicate(timeout=60)
    wait_until(lambda: not vgpu(host, "web")["clients"], "its worker is gone")
    program.child.kill()
    program.child.communicate()
    wait_until(lambda: not host.status()["vgpus"], "its vGPU is gone")
    assert [(gpu["vgpus"], gpu["used_bytes"]) for gpu in devices(host)] == [([], 0), ([], 0)]
    again = Program(host, "again", KEPT)
    migrate(host, "again", 1)
    again.computes()
    assert again.ends()[-1] == "PASS"


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_daemon_that_dies_in_a_move_leaves_nobody_standing(host: Host, stage: str) -> None:
    """The program goes on, or has its device's error: and its vGPU is on one Gpu."""
    program = Program(host, "web")
    program.computes()
    daemon_pid = host.status()["pid"]
    moving = subprocess.Popen(
        [*host_words(host), "migrate", "web", "--to", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: (stage_of(host, "web") or stage) in (stage, "returning", "done"), f"it is {stage}")
    os.kill(daemon_pid, signal.SIGKILL)
    wait_for_end(daemon_pid)
    moving.communicate(timeout=60)
    assert host_command(host.state_dir, "start", "--device", "soft").returncode == 0
    program.child.communicate("\n", timeout=60)
    wait_until(lambda: not host.status()["vgpus"], "its vGPU is gone")
    assert [(gpu["vgpus"], gpu["used_bytes"]) for gpu in devices(host)] == [([], 0), ([], 0)]


def test_drain_under_load(host: Host) -> None:
    """Three guests on each of two Gpus, and then all on one."""
    stay = [Program(host, f"stay-{number}") for number in range(3)]
    for number in range(3):
        migrate(host, f"stay-{number}", 1)
    leave = [Program(host, f"leave-{number}", name) for number, name in enumerate((PAUSES, KEPT, PAUSES))]
    for each in (*stay, *leave):
        each.computes()
    drained = host_command(host.state_dir, "drain", "0")
    assert drained.returncode == 0, drained.stdout + drained.stderr
    assert sorted(len(gpu["vgpus"]) for gpu in devices(host)) == [0, 6]
    for each in (*stay, *leave):
        each.computes()
        assert each.ends()[-1] == "PASS"


def host_words(host: Host) -> list[str]:
    from sys import executable  # noqa: PLC0415

    return [executable, "-m", "backend_host.cli", "--state-dir", str(host.state_dir)]


def stage_of(host: Host, name: str) -> str | None:
    """Of its move, None before there is one."""
    from backend_host.errors import FairGVError  # noqa: PLC0415
    from backend_host.ipc import Connection  # noqa: PLC0415

    try:
        with Connection(host.state_dir / "control.sock") as connection:
            return str(connection.ask("migration", name=name)["migration"]["stage"])
    except FairGVError:
        return None
