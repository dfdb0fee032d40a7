"""A private daemon for tests, and programs run natively and through it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT, load_config
from backend_host.ipc import Connection
from backend_host.launching import start_in_background, wait_for_end
from backend_host.state_dir import SOCKET
from backend_host.walls.check import check
from backend_host.walls.settings import PLAIN, WallSettings
from tests.programs.build import NAMES, NOT_CARRIED, SHARED

PROGRAMS = PACKAGE_ROOT / "build/programs"
SOFTGPU = PACKAGE_ROOT / "build/softgpu"
TIMEOUT_S = 120
PROGRAM_NAMES = [*(name for name in NAMES if name not in NOT_CARRIED), *(f"{name}.shared" for name in SHARED)]
WALLS = WallSettings(
    cache_dir=str(PACKAGE_ROOT / "build/tenants"),
    allow_missing=tuple(finding.wall for finding in check(PLAIN) if finding.reason),
)
"""All that this machine has."""
NOT_COMPARED = re.compile(r"\d+(\.\d+)? (ms|us|GB/s|MB/s)")
"""Measurements differ from run to run; everything else must not."""


def comparable(result: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """Exit status and output without measurements."""
    return result.returncode, NOT_COMPARED.sub("#", result.stdout)


@dataclass(frozen=True)
class Host:
    """One running daemon."""

    state_dir: Path
    device: str

    def environment(self, **more: str) -> dict[str, str]:
        """What a native program of the same device is run with; a program through FairGV ignores it."""
        native = {"LD_LIBRARY_PATH": str(SOFTGPU), **own_device(self.state_dir)} if self.device == "soft" else {}
        return {**os.environ, **native, **more}

    def native(self, program: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Runs a test program directly on the device library; one that hangs is ended, with what it printed until then."""
        command = [str(PROGRAMS / program), *arguments]
        child = subprocess.Popen(
            command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            output, errors = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            output, errors = child.communicate()
        return subprocess.CompletedProcess(command, child.returncode, output, errors)

    def start(
        self, program: str | Path, *arguments: str, options: tuple[str, ...] = (), stdin: int | None = None
    ) -> subprocess.Popen[str]:
        """Starts a test program as a guest."""
        command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(self.state_dir), *options, "--"]
        return subprocess.Popen(
            [*command, str(PROGRAMS / program), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def guest(
        self, program: str | Path, *arguments: str, options: tuple[str, ...] = (), timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs a test program as a guest to its end."""
        child = self.start(program, *arguments, options=options)
        try:
            output, errors = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.terminate()
            child.communicate()
            raise
        return subprocess.CompletedProcess(child.args, child.returncode, output, errors)

    def status(self) -> dict[str, Any]:
        """What `fairgv-host status --json` prints, which takes a hundred times as long."""
        with Connection(self.state_dir / SOCKET) as connection:
            return connection.ask("status")

    def log(self) -> str:
        """What daemon and workers said."""
        return (self.state_dir / "daemon.log").read_text()


def own_device(state_dir: Path) -> dict[str, str]:
    """Gives a host a softgpu that is not the machine's: a kernel of another test would keep its guests waiting."""
    return {"FAIRGV_SOFTGPU_STATE": str(state_dir / "softgpu")}


def start_host(state_dir: Path, device: str = "soft", **settings: object) -> Host:
    """A daemon of its own for a test, with a device of its own; end it with `stop_host`."""
    settings = {"adopt": "attached", "walls": WALLS, **settings}  # never what runs on this machine already
    with pytest.MonkeyPatch.context() as environment:
        for name, value in own_device(state_dir).items():
            environment.setenv(name, value)
        start_in_background(load_config(None, state_dir=state_dir, device=device, **settings))
    return Host(state_dir, device)


def stop_host(host: Host) -> None:
    """Stops it and waits until it is gone."""
    with Connection(host.state_dir / "control.sock") as connection:
        pid = int(connection.ask("stop")["pid"])
        wait_for_end(pid)


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    """Polls for a condition that another process brings about; AssertionError naming it when it never comes."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)
