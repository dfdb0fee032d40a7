"""A fairgv-host for the demo alone, and what it tells of vGPUs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.vm.interrupts import delayed_signals
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER
from backend_host.walls.settings import WALLS

START_LIMIT_S = 180
END_LIMIT_S = 30


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
    """A fairgv-host of our own in the foreground, so that it is our child from the first moment on. A context manager.

    `web` is the address of the page for operators, if it is to serve that.
    """

    def __init__(self, state_dir: Path, libvirt_uri: str, web: str = "") -> None:
        self._state_dir = state_dir
        self._web = web
        self._config = state_dir / "config.toml"
        self._log = state_dir / "daemon.log"
        self._libvirt_uri = libvirt_uri
        self._softgpu_state = SHARED_MEMORY_FOLDER / state_dir.name
        """Where softgpu, if it comes to that, keeps what its processes share: a device for the demo alone, which goes with it."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        settings = {"libvirt_uri": self._libvirt_uri, "web": self._web}
        walls = f"[walls]\nallow_missing = {json.dumps(WALLS)}\n"  # its guests are its own; the log says which are not to be had
        self._config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()) + walls)
        command = [sys.executable, "-m", "backend_host.cli", "--state-dir", str(self._state_dir), "start"]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, "--config", str(self._config), "--device", "auto", "--foreground"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "FAIRGV_SOFTGPU_STATE": str(self._softgpu_state)},
                    start_new_session=True,
                )
            self._await_answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is None:
            return
        with delayed_signals():
            self._process.terminate()
            try:
                self._process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a child that it was starting just then
            for left in self._softgpu_state.parent.glob(f"{self._softgpu_state.name}.*"):
                left.unlink(missing_ok=True)

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
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.status()
                return
            except FairGVError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise FairGVError(f"the daemon does not start:\n{self.log_tail()}") from error
                time.sleep(0.1)
