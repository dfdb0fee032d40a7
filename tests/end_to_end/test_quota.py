"""Turns by bursts, with real programs: one that works for a while and pauses has a turn that is as long as its bursts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.build import build
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

SLICE_NS = 6_000_000
KERNEL_US, NR_KERNELS = 4000, 4
BURST_NS = KERNEL_US * NR_KERNELS * 1000


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = start_host(tmp_path, quota="bursts", slice_ns=SLICE_NS)
    yield host
    stop_host(host)


def entry(host: Host, name: str) -> dict[str, Any]:
    return next((each for each in host.status()["vgpus"] if each["name"] == name), {"clients": []})


def test_a_turn_is_as_long_as_a_burst(host: Host) -> None:
    """Four kernels of 4 ms, then a pause. On a machine that is busy a burst takes longer; one whose program is off its processor between two
    launches counts as two, and its turns follow that for a while."""
    command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--vgpu", "bursts", "--"]
    shape = ["--kernel-us", str(KERNEL_US), "--queue", str(NR_KERNELS), "--sleep-us", "30000", "--seconds", "600"]
    child = subprocess.Popen([*command, str(build("spin")), *shape], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(each["nr_bursts"] > 8 for each in entry(host, "bursts")["clients"]), "it has bursts")
        wait_until(lambda: entry(host, "bursts")["turn_ns"] > BURST_NS * 3 // 4, "its turns follow")
        told = entry(host, "bursts")
        assert told["clients"][0]["burst_ns"] > BURST_NS * 3 // 4, json.dumps(told)
        assert told["clients"][0]["burst_gap_ns"] > 0
    finally:
        child.terminate()
        child.wait()
