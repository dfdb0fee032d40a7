"""Programs as processes of this host: natively, and as guests of a daemon of their own through `fairgv-run`."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend_host.children import ending_with_us
from backend_host.config import PACKAGE_ROOT, Config
from backend_host.ipc import Connection
from backend_host.launching import daemon_for_now
from backend_host.vm.interrupts import delayed_signals
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.guests.pinning import Pinning
from benchmarks.guests.session import Account, Finished, Moved, left_s

END_LIMIT_S = 10.0
LEAD_S = 0.5
"""From the last program's first kernel to the stretch: by then the shares are what they stay."""


class ProcessRunning:
    """A child in a process group of its own, so that Ctrl-C reaches us alone and we end it in order. It ends with us when we cannot."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], name: str) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as this object
        prepare = ending_with_us()
        with delayed_signals():
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=environment,
                cwd=PACKAGE_ROOT,
                process_group=0,
                preexec_fn=prepare,  # noqa: PLW1509 - it takes no lock
            )

    def read_line(self, deadline_s: float) -> str:
        """See `Running`."""
        assert self._child.stdout is not None
        readable, _, _ = select.select([self._child.stdout], [], [], left_s(deadline_s))
        if not readable:
            raise ProgramFailedError(f"{self._name} says nothing; {self._said()}")
        line = self._child.stdout.readline()
        if not line:
            self.finish(END_LIMIT_S).checked(self._name)
            raise ProgramFailedError(f"{self._name} ended too early")
        return line.rstrip("\n")

    def tell(self, line: str) -> None:
        """See `Running`. A program that has ended is found out by `finish`."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()

    def has_said(self) -> bool:
        """Tells whether a line can be read without waiting, or the end of its output. Lines that come together may be told as one."""
        assert self._child.stdout is not None
        return bool(select.select([self._child.stdout], [], [], 0)[0])

    def end_input(self) -> None:
        """Nothing more is told to it."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.stdin = None

    def finish(self, limit_s: float) -> Finished:
        """See `Running`."""
        try:
            output, _ = self._child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailedError(f"{self._name} has not ended within {limit_s:.0f} s; {self._said()}") from None
        self._errors.seek(0)
        return Finished(output, self._errors.read(), self._child.returncode)

    def stop(self) -> None:
        """See `Running`. `fairgv-run` passes the signal on."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def kill(self) -> None:
        """Ends it without a word; with `fairgv-run` the program that that runs, too."""
        self._child.kill()

    def _said(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"it said: {lines[-1]}" if lines else "no error either"


class NativeSession:
    """Programs on the device library itself, which shares the device among them as it likes."""

    lead_s = LEAD_S

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def start(
        self, index: int, program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ProcessRunning:
        """See `Session`; natively guests are only told apart by their number."""
        name = f"{program.name}, native"
        return ProcessRunning([str(program), *arguments], {**self._environment, **(environment or {})}, name)

    def accounts(self) -> tuple[Account, ...]:
        """See `Session`."""
        return ()

    def set_weight(self, index: int, weight: int) -> None:
        """See `Session`."""
        raise NotMeasurableError("the device itself knows no weights")

    def set_bounds(self, index: int, request: float, limit: float) -> None:
        """See `Session`."""
        raise NotMeasurableError("the device itself knows no requests and no limits")

    def move(self, index: int, gpu: int, mover: str) -> Moved:
        """See `Session`."""
        raise NotMeasurableError("the device itself moves no programs")


class ProcessSession:
    """Guests as processes. Their vGPUs are kept open from here, so that accounts outlive programs."""

    lead_s = LEAD_S

    def __init__(
        self,
        config: Config,
        entitlements: Mapping[str, Mapping[str, object]],
        pinning: Pinning | None,
        stack: contextlib.ExitStack,
    ) -> None:
        """`entitlements`: of each vGPU, by its name, by the keys that requests have."""
        self._state_dir, self._pinning = config.state_dir, pinning
        self._names = list(entitlements)
        for name, entitlement in entitlements.items():
            holder = stack.enter_context(Connection(config.socket_path))
            asked = {"memory_bytes": 0, "region_bytes": config.region_bytes, **entitlement}
            opened = holder.ask("open", name=name, **asked)
            os.close(opened["fd"])

    def start(
        self, index: int, program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ProcessRunning:
        """See `Session`."""
        options = ["--state-dir", str(self._state_dir), "--vgpu", self._names[index]]
        command = [sys.executable, "-m", "backend_host.run", *options, "--", str(program), *arguments]
        with self._pinning.guests() if self._pinning else contextlib.nullcontext():
            return ProcessRunning(
                command, {**os.environ, **(environment or {})}, f"{program.name}, {self._names[index]}"
            )

    def accounts(self) -> tuple[Account, ...]:
        """See `Session`."""
        return read_accounts(self._state_dir, self._names)

    def set_weight(self, index: int, weight: int) -> None:
        """See `Session`."""
        change(self._state_dir, self._names[index], weight=weight)

    def set_bounds(self, index: int, request: float, limit: float) -> None:
        """See `Session`."""
        change(self._state_dir, self._names[index], request=request, limit=limit)

    def move(self, index: int, gpu: int, mover: str) -> Moved:
        """See `Session`."""
        return move(self._state_dir, self._names[index], gpu, mover)


@dataclass(frozen=True)
class ProcessGuests:
    """See `Guests`."""

    config: Config
    weights: Sequence[int]
    pinning: Pinning | None

    @contextlib.contextmanager
    def session(self, **settings: object) -> Iterator[ProcessSession]:
        """See `Guests`."""
        config = replace(self.config, **settings)  # type: ignore[arg-type] # names and values of settings
        with daemon(config, self.pinning), contextlib.ExitStack() as stack:
            entitlements = {f"vgpu-{index}": {"weight": weight} for index, weight in enumerate(self.weights)}
            yield ProcessSession(config, entitlements, self.pinning, stack)


@contextlib.contextmanager
def daemon(config: Config, pinning: Pinning | None) -> Iterator[None]:
    """A daemon for the block."""
    with contextlib.ExitStack() as stack:
        with pinning.rest() if pinning else contextlib.nullcontext():
            stack.enter_context(daemon_for_now(config))
        yield


def change(state_dir: Path, name: str, **entitlement: float) -> None:
    """What the vGPU of this name may have, by the keys that requests have."""
    with Connection(state_dir / "control.sock") as connection:
        connection.ask("set", name=name, **entitlement)


def move(state_dir: Path, name: str, gpu: int, mover: str) -> Moved:
    """Moves the vGPU of this name, by this mover. NotMeasurableError when it stays where it is."""
    command = [
        sys.executable,
        "-m",
        "backend_host.cli",
        "--state-dir",
        str(state_dir),
        "migrate",
        name,
        "--to",
        str(gpu),
        "--mover",
        mover,
    ]
    began_s = time.monotonic()
    ended = subprocess.run([*command, "--json"], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began_s
    if ended.returncode != 0:
        said = json.loads(ended.stdout)["reason"] if ended.stdout else ended.stderr.strip()
        raise NotMeasurableError(f"{name} does not move to GPU {gpu}: {said}")
    return Moved(json.loads(ended.stdout)["pause_ns"] / 1e9, took_s)


def read_accounts(state_dir: Path, names: Sequence[str]) -> tuple[Account, ...]:
    """Of the vGPUs of these names."""
    with Connection(state_dir / "control.sock") as connection:
        vgpus: dict[str, Any] = {vgpu["name"]: vgpu for vgpu in connection.ask("status")["vgpus"]}
    found = (vgpus[name] for name in names)
    return tuple(
        Account(
            each["used_ns"],
            each["held_ns"],
            each["nr_grants"],
            each["totals"]["nr_launches"],
            each["totals"]["nr_parts"],
            each["coscheduling"]["nr_boosts"],
            each["turn_ns"],
            each["totals"]["overuse_ns"],
            each["totals"]["swapped_out_bytes"],
            each["totals"]["swapped_in_bytes"],
            each["totals"]["nr_gave_way"],
            each["gpu_number"],
        )
        for each in found
    )
