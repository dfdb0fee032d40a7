"""A fairgv-host for the demo alone, and what it tells of vGPUs."""

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backend_host.cli import host_command
from backend_host.config import load_config
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.launching import launch, wait_for_end, wait_for_start
from backend_host.state_dir import read_log_tail
from backend_host.vm.interrupts import delayed_signals


@dataclass(frozen=True)
class Reading:
    """What one vGPU had done at a moment."""

    nr_calls: int = 0
    nr_round_trips: int = 0
    used_ns: int = 0

    def plus(self, other: "Reading") -> "Reading":
        """Both together."""
        return Reading(
            self.nr_calls + other.nr_calls, self.nr_round_trips + other.nr_round_trips, self.used_ns + other.used_ns
        )

    def since(self, earlier: "Reading") -> "Reading":
        """What was done in between."""
        return Reading(
            self.nr_calls - earlier.nr_calls,
            self.nr_round_trips - earlier.nr_round_trips,
            self.used_ns - earlier.used_ns,
        )


class PrivateDaemon:
    """A fairgv-host of our own, which ends when we do, however that comes about, and leaves nothing then. A context manager.

    `web` is the address of the page for operators, if it is to serve that.
    """

    def __init__(self, state_dir: Path, libvirt_uri: str, web: str = "") -> None:
        self._state_dir = state_dir
        self._config = load_config(
            None,
            state_dir=state_dir,
            device="auto",
            libvirt_uri=libvirt_uri,
            web=web,
            is_private=True,
            goes_around=True,
        )
        self._daemon: tuple[int, socket.socket] | None = None

    def __enter__(self) -> Self:
        softgpu = {
            "FAIRGV_SOFTGPU_STATE": str(self._state_dir / "device")
        }  # if it comes to that: it goes with the folder
        try:
            with delayed_signals():
                self._daemon = launch(self._config, os.environ | softgpu)
            wait_for_start(self._config, self._daemon[1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._daemon is None:
            return
        pid, other_end = self._daemon
        with delayed_signals(), other_end:
            os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(FairGVError):
                wait_for_end(pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # and a child that it was starting just then
            os.waitpid(pid, 0)

    def command(self, *arguments: str) -> str:
        """One `fairgv-host` command, as a user would type it. Raises FairGVError with what it says."""
        answer = host_command(self._state_dir, *arguments)
        if answer.returncode:
            raise FairGVError(
                answer.stderr.strip().removeprefix("fairgv-host: ") or f"fairgv-host {arguments[0]} failed"
            )
        return answer.stdout.strip()

    def status(self) -> dict[str, Any]:
        """What `status --json` prints, without starting a command each time."""
        with Connection(self._state_dir / "control.sock") as connection:
            return connection.ask("status")

    def reading(self, vgpu: str) -> Reading:
        """The figures of one vGPU."""
        for entry in self.status()["vgpus"]:
            if entry["name"] == vgpu:
                totals = entry["totals"]
                return Reading(totals["nr_calls"], totals["nr_round_trips"], entry["used_ns"])
        raise FairGVError(f"the daemon does not know {vgpu} any more; its log ends with:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of what the daemon and its workers said."""
        return read_log_tail(self._config.log_path)
