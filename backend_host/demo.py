"""`make demo`: two virtual machines share one device, and ordinary CUDA programs in them compute on it.

Everything is private and temporary: a libvirtd, a fairgv-host daemon, two domains that boot the host's kernel from
memory with the programs of `build/programs`. Nothing of the user's own machines is touched, and nothing stays behind,
after Ctrl-C neither. Each program checks its own result inside the guest and says so by its exit status; the figures
come from `fairgv-host status --json`.

Wrong when: it is read as a benchmark. Software emulation slows the guests down, not the device.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.sizes import format_time
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.guest_output import CommandResult, Progress
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.interrupts import InterruptedBySignalError, delayed_signals, raised_signals
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER

PROGRAM_FOLDER = PACKAGE_ROOT / "build/programs"
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
REGION = "64M"
STATE_PREFIX = "fairgv-demo-"
"""What the names of the daemon's folder and of its device begin with."""
DAEMON_START_LIMIT_S = 180
DAEMON_END_LIMIT_S = 30
GUESTS_LIMIT_S = 240
CAPTION = (
    "calls: requests that left the guest; round trips: those it waited for; share: of the GPU time in this table. "
    "The programs are short and seldom wait for each other, so shares follow their work here, not the weights."
)


@dataclass(frozen=True)
class Plan:
    """What one virtual machine does."""

    name: str
    weight: int
    programs: tuple[str, ...]


PLANS = (
    Plan("vm-one", 1, ("vector_add", "simple_streams", "simple_printf")),
    Plan("vm-two", 2, ("matrix_mul", "async_api", "vector_add.shared", "simple_atomics")),
)


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


@dataclass
class Record:
    """The figures of one virtual machine, one entry per program that ended."""

    before: Reading
    programs: list[Reading] = field(default_factory=list)
    ends: list[Reading] = field(default_factory=list)

    def take(self, now: Reading) -> None:
        """At the end of a program."""
        self.programs.append(now.since(self.ends[-1] if self.ends else self.before))
        self.ends.append(now)


class PrivateDaemon:
    """A fairgv-host of our own in the foreground, so that it is our child from the first moment on. A context manager."""

    def __init__(self, state_dir: Path, libvirt_uri: str) -> None:
        self._state_dir = state_dir
        self._config = state_dir / "config.toml"
        self._log = state_dir / "daemon.log"
        self._libvirt_uri = libvirt_uri
        self._softgpu_state = SHARED_MEMORY_FOLDER / state_dir.name
        """Where softgpu, if it comes to that, keeps what its processes share: a device for the demo alone, which goes with it."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._config.write_text(f"libvirt_uri = {json.dumps(self._libvirt_uri)}\n")
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
                self._process.wait(DAEMON_END_LIMIT_S)
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
        deadline = time.monotonic() + DAEMON_START_LIMIT_S
        while True:
            try:
                self.status()
                return
            except FairGVError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise FairGVError(f"the daemon does not start:\n{self.log_tail()}") from error
                time.sleep(0.1)


class Demo:
    """One run. `run` gives the exit status."""

    def __init__(self, console: Console, plans: Sequence[Plan] = PLANS) -> None:
        self._console = console
        self._plans = plans
        self._started = time.monotonic()

    def run(self) -> int:
        """Raises FairGVError when something prevents the run; 1 when a verdict is not PASS."""
        missing = [path for path in (GUEST_LIBRARY, *self._programs()) if not path.exists()]
        if missing:
            names = ", ".join(str(path.relative_to(PACKAGE_ROOT)) for path in missing)
            raise FairGVError(f"not built: {names}; run make setup")
        self._say("looking whether this machine boots guests with KVM (once; the answer is remembered)")
        choice = choose_accelerator()
        self._say(choice.reason)
        with ExitStack() as stack:
            libvirt = stack.enter_context(PrivateLibvirt())
            self._say("a libvirtd of our own runs")
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=STATE_PREFIX)))
            state_dir.chmod(0o711)
            daemon = stack.enter_context(PrivateDaemon(state_dir, libvirt.uri))
            device = daemon.status()["device"]
            self._say(f"fairgv-host runs on {device['name']} ({device['library']})")
            guests = []
            for plan in self._plans:
                folder = libvirt.folder / plan.name
                folder.mkdir(mode=0o755)
                libvirt.hand_over(folder)
                commands = [GuestCommand(name, PROGRAM_FOLDER / name) for name in plan.programs]
                image = build_image(folder, commands, {PurePosixPath(GUEST_LIBRARY_PATH): GUEST_LIBRARY})
                guests.append(stack.enter_context(Guest(libvirt, plan.name, image, choice)))
                daemon.command("attach", plan.name, "--weight", str(plan.weight), "--gpu", "0", "--region", REGION)
                self._say(f"{plan.name}: defined, vGPU of weight {plan.weight} attached")
            try:
                records = self._boot(daemon, guests)
            except InterruptedBySignalError:
                self._say("interrupted; cleaning up")
                raise
            return self._report(guests, records, daemon)

    def _programs(self) -> list[Path]:
        return sorted({PROGRAM_FOLDER / name for plan in self._plans for name in plan.programs})

    def _boot(self, daemon: PrivateDaemon, guests: list[Guest]) -> dict[str, Record]:
        records = {guest.name: Record(daemon.reading(guest.name)) for guest in guests}

        def on_news(guest: Guest, progress: Progress, number: int) -> None:
            match progress:
                case Progress.READY:
                    self._say(f"{guest.name}: booted")
                case Progress.BEGUN:
                    self._say(f"{guest.name}: {guest.image.commands[number].name} runs")
                case Progress.ENDED:
                    records[guest.name].take(daemon.reading(guest.name))
                    self._say(f"{guest.name}: {guest.image.commands[number].name}: {_verdict(guest.results()[number])}")
                case Progress.DONE:
                    self._say(f"{guest.name}: powers off")

        for guest in guests:
            guest.start()
            self._say(f"{guest.name}: started")
        try:
            follow_guests(guests, GUESTS_LIMIT_S, on_news)
        except FairGVError as error:
            self._say(f"[red]{escape(str(error))}[/red]")
        return records

    def _report(self, guests: list[Guest], records: dict[str, Record], daemon: PrivateDaemon) -> int:
        all_ns = sum(reading.used_ns for record in records.values() for reading in record.programs)
        device = daemon.status()["device"]["name"]
        table = Table(title=f"Two virtual machines, one device: {device}", caption=CAPTION, caption_justify="left")
        table.add_column("VM")
        table.add_column("program", no_wrap=True)
        table.add_column("verdict")
        for heading in ("calls", "round trips", "GPU time", "share"):
            table.add_column(heading, justify="right")
        is_right = True
        for plan, guest in zip(self._plans, guests, strict=True):
            readings = records[guest.name].programs
            for number, result in enumerate(guest.results()):
                is_right = is_right and result.exit_code == 0
                figures = _cells(readings[number], all_ns) if number < len(readings) else ["-"] * 4
                table.add_row(guest.name, result.command.name, _verdict(result), *figures)
            total = functools.reduce(Reading.plus, readings, Reading())
            table.add_row(guest.name, f"all, weight {plan.weight}", "", *_cells(total, all_ns), style="bold")
            table.add_section()
        self._console.print(table)
        if not is_right:
            self._explain(guests, daemon)
        return 0 if is_right else 1

    def _explain(self, guests: list[Guest], daemon: PrivateDaemon) -> None:
        for guest in guests:
            for result in guest.results():
                if result.exit_code != 0:
                    self._console.rule(f"{guest.name}: {result.command.name}")
                    self._console.print(result.output or "(no output)", markup=False)
            if not guest.output.is_done:
                self._console.rule(f"{guest.name}: console")
                self._console.print(guest.output.console(), markup=False)
        self._console.rule("the daemon's log")
        self._console.print(daemon.log_tail(), markup=False)

    def _say(self, text: str) -> None:
        self._console.print(
            f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )


def _cells(reading: Reading, all_ns: int) -> list[str]:
    share = f"{reading.used_ns / all_ns:.0%}" if all_ns else "-"
    return [str(reading.nr_calls), str(reading.nr_round_trips), format_time(reading.used_ns), share]


def _verdict(result: CommandResult) -> str:
    match result.exit_code:
        case 0:
            return "[green]PASS[/green]"
        case None:
            return "[red]not finished[/red]"
        case code:
            return f"[red]FAIL ({code})[/red]"


def main() -> int:
    """Exit status: 0 all verdicts are PASS, 1 one is not or the demo cannot run, 128 + N ended by signal N."""
    console = Console()
    try:
        with raised_signals():
            return Demo(console).run()
    except FairGVError as error:
        Console(stderr=True).print(f"demo: {error}", markup=False, highlight=False)
        return 1
    except InterruptedBySignalError as interruption:
        console.print("ended; everything is cleaned up")
        return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main())
