"""`fairgv-host migrate` and `drain` with programs that run, as an operator sees them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.test_suspension import Program, ended

__all__ = ["ended"]  # a fixture
FOR_EVER_MS = "100000000"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
        running = start_host(tmp_path)
        yield running
        stop_host(running)


@pytest.fixture
def idle(host: Host) -> Iterator[subprocess.Popen[str]]:
    """A vGPU without a program."""
    child = host.start("/bin/sh", "-c", "echo there; read line", options=("--vgpu", "idle"), stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    yield child
    child.communicate("\n", timeout=60)


def said(host: Host, *command: str, status: int = 0) -> list[str]:
    answer = host_command(host.state_dir, *command)
    assert answer.returncode == status, answer.stdout + answer.stderr
    return [line.partition(": its programs stood still")[0] for line in (answer.stdout + answer.stderr).splitlines()]


def places(host: Host) -> dict[str, int]:
    return {vgpu["name"]: vgpu["gpu_number"] for vgpu in host.status()["vgpus"]}


def test_the_mover_is_there(host: Host) -> None:
    def gpus() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(host_command(host.state_dir, "devices", "--json").stdout)
        return found

    wait_until(lambda: all(gpu["has_mover"] is not None for gpu in gpus()), "it was tried")
    assert [(gpu["has_mover"], gpu["why_no_mover"]) for gpu in gpus()] == [(True, "")] * 2
    assert [(gpu["used_ns"], gpu["used_bytes"]) for gpu in gpus()] == [(0, 0)] * 2, "it counts for nobody"


def test_a_program_goes_on_there(host: Host) -> None:
    program = Program(host, "web")
    program.computes()
    plan = ["from GPU 0 to GPU 1 by checkpoint: one program with 50 MiB", "planned: 663 ms, of which 653 ms of pause"]
    assert said(host, "migrate", "web", "--to", "1", "--dry-run") == [f"web would move {plan[0]}", plan[1]]
    assert places(host) == {"web": 0}
    assert said(host, "migrate", "web", "--to", "1") == [f"web moves {plan[0]}", plan[1], "web is on GPU 1"]
    assert places(host) == {"web": 1}
    program.computes()
    assert said(host, "migrate", "web", "--to", "1", status=1) == [
        "fairgv-host: web cannot move to GPU 1: it is there already"
    ]
    back = json.loads(host_command(host.state_dir, "migrate", "web", "--to", "0", "--json").stdout)
    assert (back["stage"], back["plan"]["to"], back["has_changed"]) == ("done", 0, True)
    program.computes()
    assert program.passes()


def test_managed_variables_stay_without_a_pause(host: Host) -> None:
    program = Program(host, "web", program="managed_variables")
    assert program.computes() == "6\n"
    [line] = said(host, "migrate", "web", "--to", "1", "--dry-run", status=1)
    assert re.sub(r"worker \d+", "worker N", line) == (
        "fairgv-host: web cannot move to GPU 1: managed_variables (worker N) has managed variables, which drivers do not checkpoint"
    )
    assert program.computes() == "7\n"
    assert program.passes()


def test_a_vgpu_without_programs_goes(host: Host, idle: subprocess.Popen[str]) -> None:
    assert said(host, "migrate", "idle", "--to", "1") == [
        "idle moves from GPU 0 to GPU 1: it has no program",
        "idle is on GPU 1",
    ]
    assert host.guest("vector_add", options=("--vgpu", "idle")).returncode == 0
    assert places(host) == {"idle": 1}


def test_ctrl_c_leaves_it_where_it_was(host: Host) -> None:
    """A kernel that does not end keeps it from standing still."""
    busy = host.start("spin", FOR_EVER_MS, options=("--vgpu", "busy"))
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "running\n"
        command = [sys.executable, "-P", "-m", "backend_host.cli", "--state-dir", str(host.state_dir)]
        with subprocess.Popen(
            [*command, "migrate", "busy", "--to", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        ) as moving:
            assert moving.stdout is not None
            assert moving.stdout.readline().startswith("busy moves from GPU 0 to GPU 1 by checkpoint")
            moving.send_signal(signal.SIGINT)
            _, errors = moving.communicate(timeout=60)
        assert (moving.returncode, errors) == (130, "fairgv-host: busy stays on GPU 0, as it was: interrupted\n")
        assert places(host) == {"busy": 0}
        assert busy.poll() is None
    finally:
        busy.kill()
        busy.communicate()


def test_a_drained_gpu_is_left(host: Host, idle: subprocess.Popen[str]) -> None:
    bound, web, db = (
        Program(host, "bound", "--gpu", "0"),
        Program(host, "web"),
        Program(host, "db"),
    )
    wait_until(lambda: len(places(host)) == 4, "all are there")
    before = places(host)
    assert said(host, "drain", "0", status=1) == [
        "GPU 0 is drained: no vGPU comes to it until fairgv-host undrain 0",
        *(f"{name} is on GPU 1" for name in ("idle", "db", "web") if before[name] == 0),
        "bound stays: it is to be there (--gpu); to move it: fairgv-host migrate bound --to GPU",
    ]
    assert places(host) == {"idle": 1, "bound": 0, "web": 1, "db": 1}
    assert said(host, "drain", "1", status=1)[-1] == "web stays: GPU 0 is drained (until fairgv-host undrain 0)"
    said(host, "undrain", "1")
    assert said(host, "migrate", "bound", "--to", "1")[-1] == "bound is on GPU 1"
    assert said(host, "drain", "0") == ["GPU 0 is drained already: no vGPU comes to it until fairgv-host undrain 0"]
    for program in (bound, web, db):
        program.computes()
        assert program.passes()
