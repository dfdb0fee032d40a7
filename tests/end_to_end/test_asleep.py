"""Suspended programs whose contexts leave the device, too: what they took of it others can have, and they notice nothing."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from tests.end_to_end.host import SOFTGPU, Host, start_host, stop_host, wait_until
from tests.end_to_end.restarting import kill_and_start, restart
from tests.end_to_end.test_suspension import Program, ended

__all__ = ["ended"]  # a fixture

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="who asks for a worker is root")

SPAN_BYTES = 16 << 20
VARIABLE_BYTES = 16 << 20
"""Of slumbers, like what follows: in the span, and where the driver put it."""
LEFT = """
import sys
from backend_host.move.checkpoint import Driver
driver = Driver(sys.argv[1])
print(driver.left(driver.devices[int(sys.argv[2])]))
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = start_host(tmp_path)
    yield host
    with contextlib.suppress(FairGVError):
        stop_host(host)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """It has two devices."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    host = start_host(tmp_path)
    yield host
    stop_host(host)


def left_bytes(host: Host, device: int = 0) -> int:
    """Of a device, by its own word."""
    command = [sys.executable, "-c", LEFT, str(SOFTGPU / "libcuda.so.1"), str(device)]
    said = subprocess.run(command, env=host.environment(), cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True)
    result, left = said.stdout.strip(" ()\n").split(", ")
    assert result == "0"
    return int(left)


def vgpu(host: Host, name: str = "web") -> dict[str, Any]:
    [found] = [each for each in host.status()["vgpus"] if each["name"] == name]
    return dict(found)


def slumbers(host: Host, name: str = "web") -> Program:
    return Program(host, name, program="slumbers")


def suspend(host: Host, name: str = "web") -> str:
    said = host_command(host.state_dir, "suspend", name)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def sleep(host: Host, name: str = "web") -> None:
    """All of its programs."""
    said = suspend(host, name)
    assert ", and the contexts of " in said, said
    assert vgpu(host, name)["nr_asleep"] == len(vgpu(host, name)["clients"])


def native(host: Host, nr_lines: int) -> list[str]:
    """What it says natively, after its first line."""
    child = subprocess.run(
        [str(PACKAGE_ROOT / "build/programs/slumbers")],
        env=host.environment(),
        input="\n" * nr_lines,
        capture_output=True,
        text=True,
        check=True,
    )
    return child.stdout.splitlines(keepends=True)[1 : 1 + nr_lines]


def test_nothing_of_it_is_on_the_device(host: Host) -> None:
    empty = left_bytes(host)
    program = slumbers(host)
    for line in native(host, 3):
        assert program.computes() == line
        with_it = left_bytes(host)
        assert empty - with_it >= SPAN_BYTES + VARIABLE_BYTES
        sleep(host)
        assert left_bytes(host) == empty
        assert "has the contexts of 1 of its 1 programs there" in host_command(host.state_dir, "status").stdout.replace(
            "\n", " "
        )
    said = host_command(host.state_dir, "resume", "web")
    assert (said.returncode, said.stdout) == (0, "web is on the device with all of its memory\n"), said.stderr
    assert (left_bytes(host), vgpu(host)["nr_asleep"]) == (with_it, 0)
    assert program.passes()


def test_contexts_with_managed_variables_stay_and_it_is_told_why(host: Host) -> None:
    program = Program(host, "web", program="managed_variables")
    assert program.computes() == "6\n"
    assert "contexts" in suspend(host)
    assert vgpu(host)["why_awake"] == "its program has managed variables, which drivers do not checkpoint"
    assert program.computes() == "7\n"
    assert program.passes()


def test_it_notices_nothing_at_any_moment(host: Host) -> None:
    """A program that works is refused, and one that calls meanwhile comes back."""
    program, moments = slumbers(host), random.Random(34)
    answers = []
    for line in native(host, 12):
        program.asks()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.child.wait(moments.choice((0.001, 0.02, 0.1, 0.4)))
        command = subprocess.Popen(
            [sys.executable, "-m", "backend_host.cli", "--state-dir", str(host.state_dir), "suspend", "web"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert program.says() == line
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(moments.choice((0.2, 0.6, 1.0, 1.5, 2.0, 60.0)))
        answers.append(command)
    said = [answer.communicate(timeout=60)[0] for answer in answers]
    assert any("and the contexts of one program" in each for each in said), said
    assert program.passes()


def test_another_has_the_room_of_its_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes back while another has it waits, and its restore is not tried."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_MEMORY", "64M")
    host = start_host(tmp_path)
    try:
        web = slumbers(host)
        lines = native_lines(2)
        assert web.computes() == lines[0]
        sleep(host)
        db = Program(host, "db")
        db.computes()
        web.asks()
        wait_until(lambda: not web.is_suspended(), "it called")
        said = host_command(host.state_dir, "resume", "web")
        assert said.returncode == 1
        assert "the contexts of one program are off the device still: GPU 0 has no room for the 16" in said.stderr
        assert vgpu(host)["why_asleep"].startswith("GPU 0 has no room for the 16")
        db.computes()
        assert db.passes()
        assert web.says() == lines[1]
        assert web.passes()
    finally:
        stop_host(host)


def native_lines(nr: int) -> list[str]:
    """As the program has them: three more in each word of the variable each time, and all of that is added up."""
    sums = (3 * each * (each + 1) // 2 * (4 << 20) + each * 256 * 256 for each in range(1, nr + 1))
    return [f"{each}: {total}\n" for each, total in enumerate(sums, 1)]


def test_one_that_calls_wakes_alone(host: Host) -> None:
    one, other = slumbers(host), slumbers(host)
    for program in (one, other):
        program.computes()
    sleep(host)
    assert one.computes() == native_lines(2)[1]
    assert vgpu(host)["nr_asleep"] == 1
    assert host_command(host.state_dir, "resume", "web").returncode == 0
    assert vgpu(host)["nr_asleep"] == 0
    assert one.passes()
    assert other.passes()


@pytest.mark.parametrize("way", [kill_and_start, restart])
def test_it_sleeps_on_through_a_restart(host: Host, way: Callable[[Host], None]) -> None:
    program = slumbers(host)
    program.computes()
    sleep(host)
    left = left_bytes(host)
    way(host)
    assert (vgpu(host)["nr_asleep"], left_bytes(host)) == (1, left)
    assert program.computes() == native_lines(2)[1]
    assert program.passes()


def test_a_daemon_may_die_while_contexts_are_on_their_way(host: Host) -> None:
    """The next one finds out how far they are."""
    program, moments = slumbers(host), random.Random(34)
    for line in native_lines(4):
        assert program.computes() == line
        command = subprocess.Popen(
            [sys.executable, "-m", "backend_host.cli", "--state-dir", str(host.state_dir), "suspend", "web"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(program.is_suspended, "it is suspended")
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(moments.uniform(0.3, 1.5))
        kill_and_start(host)
        command.wait()
    assert program.passes()


def test_its_worker_may_die_asleep(host: Host) -> None:
    empty = left_bytes(host)
    program = slumbers(host)
    program.computes()
    sleep(host)
    os.kill(vgpu(host)["clients"][0]["worker_pid"], signal.SIGKILL)
    program.child.communicate("\n", timeout=60)
    assert program.child.returncode != 0
    assert left_bytes(host) == empty
    other = slumbers(host)
    assert other.computes() == native_lines(1)[0]
    assert other.passes()


def test_its_program_may_end_asleep(host: Host) -> None:
    program = slumbers(host)
    program.computes()
    sleep(host)
    worker = vgpu(host)["clients"][0]["worker_pid"]
    program.child.kill()
    program.child.communicate(timeout=60)
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "its worker has ended")


def test_it_moves_asleep_as_it_would_awake(two: Host) -> None:
    """Its contexts come back for that, and leave the other device after it."""
    empty = left_bytes(two, 1)
    program = slumbers(two)
    program.computes()
    sleep(two)
    said = host_command(two.state_dir, "migrate", "web", "--to", "1")
    assert said.returncode == 0, said.stdout + said.stderr
    wait_until(lambda: vgpu(two)["nr_asleep"] == 1, "it sleeps again")
    assert (vgpu(two)["gpu_number"], vgpu(two)["is_suspended"]) == (1, True)
    assert left_bytes(two, 1) == empty
    said = host_command(two.state_dir, "drain", "1")
    assert said.returncode == 0, said.stdout + said.stderr
    assert (vgpu(two)["gpu_number"], vgpu(two)["is_suspended"]) == (0, True)
    assert program.computes() == native_lines(2)[1]
    assert program.passes()
