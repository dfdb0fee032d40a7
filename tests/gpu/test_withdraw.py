"""A long kernel that is taken off a GPU for a neighbour, again and again: what it computes, and what a worker killed meanwhile leaves."""

import json
import os
import re
import signal
import subprocess

import pytest

from benchmarks.build import build
from tests.end_to_end.host import Host, wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

LIMIT_S = 30
TRIAL_ROUNDS = 2_000_000
KERNEL_MS = 2000
NEIGHBOUR = ("--kernel-us", "50", "--queue", "64", "--seconds")


def read(output: str) -> tuple[str, float]:
    """Digest and milliseconds."""
    found = re.fullmatch(r"digest (\w+) in ([\d.]+) ms\n", output)
    assert found, output
    return found[1], float(found[2])


@pytest.fixture(scope="module")
def rounds(gpu_host: Host) -> int:
    """Of a kernel of about KERNEL_MS."""
    return int(TRIAL_ROUNDS * KERNEL_MS / read(gpu_host.native("long_kernel", str(TRIAL_ROUNDS)).stdout)[1])


@pytest.fixture(scope="module")
def alone(gpu_host: Host, rounds: int) -> tuple[str, float]:
    """Digest and milliseconds of the kernel natively."""
    return read(gpu_host.native("long_kernel", str(rounds)).stdout)


@pytest.fixture(scope="module")
def digest(alone: tuple[str, float]) -> str:
    return alone[0]


def start_neighbour(host: Host, seconds: float) -> subprocess.Popen[str]:
    return host.start(build("spin"), *NEIGHBOUR, str(seconds), options=("--vgpu", "neighbour"))


def start_long(host: Host, rounds: int) -> subprocess.Popen[str]:
    return host.start("long_kernel", str(rounds), options=("--vgpu", "long"))


def entry(host: Host, name: str) -> dict[str, int]:
    """What the vGPU's clients did so far, and the worker of the last; empty without it."""
    for vgpu in host.status()["vgpus"]:
        if vgpu["name"] == name:
            pids = [client["worker_pid"] for client in vgpu["clients"]]
            return {
                **{key: value for key, value in vgpu["totals"].items() if key != "whole"},
                "pid": pids[-1] if pids else 0,
            }
    return {}


def start_both(host: Host, rounds: int, seconds: float) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """The long kernel, while the neighbour is at work for so long; returns when they take turns."""
    neighbour = start_neighbour(host, seconds)
    wait_until(lambda: entry(host, "neighbour").get("nr_launches", 0) > 0, "the neighbour works", LIMIT_S)
    long = start_long(host, rounds)
    wait_until(lambda: entry(host, "long").get("nr_withdrawn", 0) > 3, "they take turns", LIMIT_S)
    return long, neighbour


def finish(neighbour: subprocess.Popen[str]) -> None:
    output, errors = neighbour.communicate(timeout=LIMIT_S)
    assert neighbour.returncode == 0, errors
    assert json.loads(output)["kernels"] > 0


def test_it_computes_the_same(gpu_host: Host, rounds: int, digest: str) -> None:
    long, neighbour = start_both(gpu_host, rounds, 4 * KERNEL_MS / 1000)
    output, errors = long.communicate(timeout=LIMIT_S)
    finish(neighbour)
    assert read(output)[0] == digest, errors
    print(f"alone {KERNEL_MS} ms, beside the neighbour {read(output)[1]:.0f} ms")


@pytest.mark.parametrize("after_ms", [0, 7, 20])
def test_a_worker_that_is_killed_is_not_noticed(gpu_host: Host, rounds: int, after_ms: int) -> None:
    """At several moments, since nobody can tell whether its work is off the GPU at one of them."""
    long, neighbour = start_both(gpu_host, 20 * rounds, 2.0)
    pid = entry(gpu_host, "long")["pid"]
    with pytest.raises(subprocess.TimeoutExpired):
        long.wait(after_ms / 1000)
    os.kill(pid, signal.SIGKILL)
    long.communicate(timeout=LIMIT_S)
    assert long.returncode != 0
    finish(neighbour)
    answer = gpu_host.guest("vector_add")
    assert answer.returncode == 0, answer.stderr
