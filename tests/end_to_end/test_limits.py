"""A limit from the command line, with a real program: it holds while nobody else wants the GPU, is told, and changes while the program runs."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backend_host.cli import host_command
from benchmarks.build import build
from tests.end_to_end.host import Host, wait_until

NAME, LIMIT = "small", 20
S = 1_000_000_000


class Program:
    """It launches kernels of 2 ms for as long as it lives."""

    def __init__(self, host: Host, *options: str) -> None:
        self.host = host
        command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--vgpu", NAME]
        program = [str(build("spin")), "--kernel-us", "2000", "--queue", "16", "--seconds", "600"]
        self.child = subprocess.Popen([*command, *options, "--", *program], stdout=subprocess.DEVNULL)

    def entry(self) -> dict[str, Any]:
        found: dict[str, Any] = next((each for each in self.host.status()["vgpus"] if each["name"] == NAME), {})
        return found

    def used_ns(self) -> int:
        return int(self.entry().get("used_ns", 0))

    def held_back_ns(self) -> int:
        return int(self.entry()["totals"]["limited_ns"]) if self.entry() else 0

    def set(self, *options: str) -> subprocess.CompletedProcess[str]:
        return host_command(self.host.state_dir, "set", NAME, *options)

    def end(self) -> None:
        self.child.terminate()
        self.child.wait()


@pytest.fixture
def program(host: Host) -> Iterator[Program]:
    program = Program(host, "--limit", str(LIMIT), "--request", "7.5")
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(program.end)
        wait_until(lambda: program.held_back_ns() > 0, "its limit holds it back")
        yield program


def test_nobody_else_wants_the_gpu_and_the_limit_holds(program: Program) -> None:
    """At most the limit's part of the time, and a slice, and kernels that were on their way: load can only make it less."""
    begun_ns, before_ns = time.monotonic_ns(), program.used_ns()
    wait_until(lambda: program.used_ns() - before_ns > S // 2, "it has worked on", timeout_s=120)
    used_ns, passed_ns = program.used_ns() - before_ns, time.monotonic_ns() - begun_ns
    assert used_ns <= passed_ns * LIMIT / 100 + 100_000_000


def test_it_is_told(program: Program) -> None:
    entry = program.entry()
    assert (entry["request"], entry["limit"]) == (7.5, LIMIT)
    assert list(entry["recent_shares"]) == ["1", "10", "60"]
    listed = host_command(program.host.state_dir, "list", "--long").stdout
    assert "7.5 %" in listed
    assert f"{LIMIT} %" in listed
    assert f"{NAME}: held back by its limit for" in host_command(program.host.state_dir, "status").stdout
    whys = [
        json.loads(line)["why"] for line in host_command(program.host.state_dir, "grants", "--json").stdout.splitlines()
    ]
    assert "limit" in whys


def test_it_is_taken_away_while_the_program_runs(program: Program) -> None:
    """What was to be paid back is forgiven."""
    assert program.set("--limit", "0.1").returncode == 1, "below its request"
    assert program.set("--request", "0", "--limit", "0.1").returncode == 0
    before_ns = program.held_back_ns()
    wait_until(lambda: program.held_back_ns() > before_ns, "it is held back for long")
    assert program.set("--limit", "100").returncode == 0
    used_ns = program.used_ns()
    wait_until(lambda: program.used_ns() - used_ns > S // 5, "it works again")
    held_back_ns = program.held_back_ns()
    used_ns = program.used_ns()
    wait_until(lambda: program.used_ns() - used_ns > S // 5, "it works on")
    assert program.held_back_ns() == held_back_ns


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--limit", "0"], "a limit is a percentage from 0.1 to 100, for none, with one decimal at most, not '0'"),
        (["--request", "30.25"], "a request is a percentage from 0, for none, to 100, with one decimal at most"),
        (["--request", "50"], "--request 50 % is above --limit 20 %"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(program: Program, options: list[str], sentence: str) -> None:
    answer = program.set(*options)
    assert answer.returncode != 0
    assert sentence in answer.stderr
    assert program.entry()["limit"] == LIMIT
