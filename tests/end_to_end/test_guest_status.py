"""`fairgv-guest status`: what a guest is shown of its own vGPU, by the figures that the host has of it, and nothing of others."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from ivshmem.region import ClientState
from tests.backend_host.played_machine import memory_file
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until

REGION_BYTES = 64 << 20
GUEST = PACKAGE_ROOT / "frontend_guest/package/fairgv-guest"
CLIENTS_OFFSET, NAME_OFFSET = 69632, 88  # docs/region.md


@pytest.fixture
def patient_host(tmp_path: Path) -> Iterator[Host]:
    """Its watchdog lets a kernel keep a neighbour waiting for as long as a test takes."""
    running = start_host(tmp_path, watchdog_s=0)
    yield running
    stop_host(running)


def status(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "FAIRGV_REGION": str(path),
        "FAIRGV_GUEST_FOLDER": str(PACKAGE_ROOT / "build/guest"),
    }
    command = ["sh", str(GUEST), "status", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def told(path: Path) -> dict[str, Any]:
    answer = status(path, "--json")
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def attach(host: Host, path: Path, name: str, *options: str) -> None:
    answer = host_command(host.state_dir, "attach", "--shm", str(path), name, *options)
    assert answer.returncode == 0, answer.stderr


def start(path: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(PACKAGE_ROOT / "build/guest"), "FAIRGV_REGION": str(path)}
    return subprocess.Popen([str(PROGRAMS / program), *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def vgpu(host: Host, name: str) -> dict[str, Any]:
    [found] = [each for each in host.status()["vgpus"] if each["name"] == name]
    entry: dict[str, Any] = found
    return entry


def test_what_a_guest_is_shown(patient_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path, memory_file(nr_bytes=REGION_BYTES) as other:
        attach(patient_host, path, "web", "--weight", "3", "--memory", "1G", "--request", "10", "--limit", "90.5")
        attach(patient_host, other, "db")
        idle = told(path)
        assert (idle["weight"], idle["quota_bytes"], idle["request"], idle["limit"]) == (3, 1 << 30, 10.0, 90.5)
        assert (idle["entitled_share"], idle["programs"], idle["is_host_alive"]) == (None, [], True)
        assert "nothing now" in status(path).stdout
        with start(path, "spin", "60000") as child, start(other, "spin", "60000") as neighbour:
            wait_until(lambda: told(path)["entitled_share"] is not None, "it is active")
            wait_until(lambda: len(told(path)["programs"]) == 1, "its program is served")
            found = told(path)
            assert [program["program"] for program in found["programs"]] == ["spin"], "and no program of others"
            assert 0 < found["entitled_share"] <= 0.905
            text = status(path).stdout
            assert re.search(r"^weight +3$", text, re.MULTILINE)
            assert re.search(r"^ +\d+  spin ", text, re.MULTILINE)
            assert " of 1.0 GiB" in text
            assert max(map(len, text.splitlines())) <= 80
            for each in (child, neighbour):
                each.kill()
        wait_until(lambda: vgpu(patient_host, "web")["clients"] == [], "its program is gone")
        ended = vgpu(patient_host, "web")
        wait_until(lambda: told(path)["used_ns"] == ended["used_ns"], "the host's account of GPU time is told")
        found = told(path)
        assert (found["wait_ns"], found["nr_waits"]) == (
            ended["totals"]["wait_ns"],
            sum(ended["totals"]["nr_waits"].values()),
        )


def test_a_change_is_told(own_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path:
        attach(own_host, path, "web")
        assert told(path)["weight"] == 1
        assert " of " not in status(path).stdout, "no quota"
        assert host_command(own_host.state_dir, "set", "web", "--weight", "7").returncode == 0
        wait_until(lambda: told(path)["weight"] == 7, "the new weight is told")


def test_programs_of_a_hostile_name(own_host: Host) -> None:
    """Any program of the machine may write its entry: what is printed is a line of text, and JSON."""
    with memory_file(nr_bytes=REGION_BYTES) as path:
        attach(own_host, path, "web")
        with path.open("r+b") as file, start(path, "spin", "60000") as child:
            wait_until(lambda: len(told(path)["programs"]) == 1, "the program is served")
            index = next(
                place
                for place in range(64)
                if os.pread(file.fileno(), 1, CLIENTS_OFFSET + 320 * place)[0] == ClientState.READY
            )
            os.pwrite(file.fileno(), b'\x1b[2J"\\\n' + b"\xff" * 57, CLIENTS_OFFSET + 320 * index + NAME_OFFSET)
            [program] = told(path)["programs"]
            assert program["program"] == "?[2J???" + "?" * 56
            text = status(path).stdout
            assert text.isprintable() or set(text) - {"\n"} <= set(map(chr, range(32, 127)))
            assert max(map(len, text.splitlines())) <= 80
            child.kill()


@pytest.mark.parametrize("options", [("--jsn",), ("--json", "more")])
def test_what_it_does_not_know(options: tuple[str, ...]) -> None:
    answer = status(Path("/nowhere"), *options)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "usage: fairgv-guest status [--json]\n"


def test_without_a_vgpu_it_says_why(own_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path:
        answer = status(path)
        assert answer.returncode == 1
        assert "is not initialised" in answer.stderr
        attach(own_host, path, "web")
        assert host_command(own_host.state_dir, "detach", "web").returncode == 0
        answer = status(path)
        assert answer.returncode == 1
        assert "serves this machine's vGPU no more" in answer.stderr
    assert "cannot open the region" in status(path).stderr


def test_a_daemon_that_died_is_told_of(own_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path:
        attach(own_host, path, "web")
        with path.open("rb") as file:
            frozen = os.pread(file.fileno(), REGION_BYTES, 0)
        with memory_file(nr_bytes=REGION_BYTES) as copy:
            with copy.open("r+b") as file:
                file.write(frozen)
            assert told(copy)["is_host_alive"] is False
            assert "does not answer: what it told is old" in status(copy).stdout
