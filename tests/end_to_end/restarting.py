"""A daemon that is killed or restarted under programs, as the tests of restarts do it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from backend_host.cli import host_command
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host


def kill(host: Host) -> None:
    pid = int(host.status()["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)


def start_next(host: Host, **settings: Any) -> None:
    start_host(host.state_dir, watchdog_s=0, **settings)


def kill_and_start(host: Host) -> None:
    kill(host)
    start_next(host)


def restart(host: Host) -> None:
    answer = host_command(host.state_dir, "restart")
    assert answer.returncode == 0, answer.stderr


def vgpus(host: Host) -> dict[str, Any]:
    return {vgpu["name"]: vgpu for vgpu in host.status()["vgpus"]}


def worker_pids(host: Host, name: str) -> list[int]:
    return [client["worker_pid"] for client in vgpus(host)[name]["clients"]]


class Program:
    """One that computes until it is told to stop, in the vGPU of this name; `its_end` tells how it ended."""

    def __init__(self, host: Host, name: str) -> None:
        self._stop = host.state_dir / f"stop-{name}"
        self._child = host.start("steady", str(self._stop), options=("--vgpu", name))
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "running\n"

    def its_end(self) -> tuple[int, str]:
        """Without a word to it: what it came to by itself."""
        output, errors = self._child.communicate(timeout=60)
        return self._child.returncode, output + errors

    def passes(self) -> bool:
        """Whether it went well up to now."""
        self._stop.touch()
        return self.its_end() == (0, "PASS\n")


def go_on(host: Host, used: dict[str, int]) -> bool:
    """Whether each has used more of the GPU than that."""
    return all(vgpus(host)[name]["used_ns"] > used_ns for name, used_ns in used.items())


def events(host: Host, kind: str) -> list[str]:
    lines = host_command(host.state_dir, "events", "--json").stdout.splitlines()
    return [record["text"] for record in map(json.loads, lines) if record["event"] == kind]
