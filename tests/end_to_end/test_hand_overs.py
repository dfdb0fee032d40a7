"""What `fairgv-host grants` tells of two guests that share a device, and that hand-overs are no affair of the daemon's."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.ipc import Connection
from benchmarks.workloads import spin
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

NAMES = ("one", "two")
WORKLOAD = spin(2000, 64)
STRETCH = "0 0.01 0\n"
"""A program that is told a stretch works on until it is told to end."""
STILL_S = 1.0
SLICE_NS = 30_000_000
"""So long that the 256 hand-overs that are kept are those of seconds."""
SLICES_IN_STILL = 5
"""Of 33 that fit: other programs may use the processors. With the daemon on their path there would be none."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Two guests work on and on."""
    running = start_host(tmp_path_factory.mktemp("grants"), slice_ns=SLICE_NS)
    options = ("-m", "backend_host.run", "--state-dir", str(running.state_dir))
    work = (str(WORKLOAD.path()), *WORKLOAD.arguments, "--together")
    children = [
        subprocess.Popen(
            [sys.executable, *options, "--vgpu", name, "--", *work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in NAMES
    ]
    try:
        for child in children:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.stdin.write(STRETCH)
            child.stdin.flush()
        wait_until(lambda: {each["to"] for each in hand_overs(running)} >= set(NAMES), "both have their turns")
        yield running
    finally:
        for child in children:
            child.terminate()
            child.communicate()
        stop_host(running)


def hand_overs(host: Host) -> list[dict[str, Any]]:
    answer = host_command(host.state_dir, "grants", "--json")
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_turns_alternate_and_end_with_the_slice(host: Host) -> None:
    wait_until(lambda: sum(each["why"] == "slice" for each in hand_overs(host)) >= 20, "slices have ended")
    told = [each for each in hand_overs(host) if each["why"] == "slice"]
    turns = {(each["from"], each["to"]) for each in told}
    assert turns >= {("one", "two"), ("two", "one")}
    assert turns <= set(
        itertools.product(NAMES, NAMES)
    )  # two turns in a row for who is owed them, as the other's kernel overran
    assert {each["phase"] for each in told} <= {"running", "ready", "idle"}
    assert [each["sequence"] for each in told] == sorted(each["sequence"] for each in told)
    lines = host_command(host.state_dir, "grants").stdout.splitlines()
    assert lines[0].split() == ["time", "from", "to", "why", "phase", "gap"]
    assert any(line.split()[1:4] == ["one", "two", "slice"] for line in lines)


def test_the_gpu_goes_on_while_the_daemon_stands_still(host: Host) -> None:
    """Python is not on the path of a hand-over."""
    daemon = int(host.status()["pid"])
    with Connection(host.state_dir / "control.sock") as connection:
        os.kill(daemon, signal.SIGSTOP)
        try:
            stopped_ns = time.monotonic_ns()
            time.sleep(STILL_S)
            still_ns = time.monotonic_ns()
        finally:
            os.kill(daemon, signal.SIGCONT)
        kept = connection.ask("grants")["hand_overs"]
    told = [each for each in kept if stopped_ns < each["at_ns"] < still_ns]
    assert len(told) >= SLICES_IN_STILL
    assert {each["to"] for each in told} >= set(NAMES)


def test_honest_workers_are_not_blamed(host: Host) -> None:
    """Nor is anything mended that they write, but where one lost its CPU between two words."""
    wait_until(lambda: hand_overs(host)[-1]["sequence"] > 50, "the GPU went to and fro")
    status = host.status()
    assert [vgpu["nr_expelled"] for vgpu in status["vgpus"]] == [0, 0]
    assert status["gpus"][0]["nr_mended"] * SLICES_IN_STILL < hand_overs(host)[-1]["sequence"]


def test_who_follows_sees_each_one_as_it_comes(host: Host) -> None:
    command = [
        sys.executable,
        "-m",
        "backend_host.cli",
        "--state-dir",
        str(host.state_dir),
        "grants",
        "--follow",
        "--json",
    ]
    newest = hand_overs(host)[-1]["sequence"]
    with subprocess.Popen(command, cwd=PACKAGE_ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        followed: list[dict[str, Any]] = []
        while not followed or followed[-1]["sequence"] < newest + 10:
            followed.append(json.loads(child.stdout.readline()))
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    numbers = [each["sequence"] for each in followed]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for each, following in itertools.pairwise(followed):
        is_told = each["gap_ns"] is not None or each["to"] is None or following["why"] in ("unused", "idle")
        assert is_told, f"{each}, {following} of {followed}"


def test_a_gpu_that_is_not_there(host: Host) -> None:
    answer = host_command(host.state_dir, "grants", "--gpu", "7")
    assert answer.returncode == 1
    assert answer.stderr == "fairgv-host: no Gpu of this host is called '7'; see: fairgv-host devices\n"


def test_without_a_daemon(tmp_path: Path) -> None:
    answer = host_command(tmp_path, "grants")
    assert answer.returncode == 1
    assert answer.stderr.endswith(f"start one with: fairgv-host --state-dir {tmp_path} start\n")
