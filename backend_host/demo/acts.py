"""What `make demo` does, from its first line to its last."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.markup import escape

from backend_host.config import PACKAGE_ROOT
from backend_host.demo.daemon import PrivateDaemon
from backend_host.demo.programs import PLANS, Plan, Record, table, verdict
from backend_host.errors import FairGVError
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.guest_output import Progress
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.interrupts import InterruptedBySignalError
from backend_host.vm.private_libvirt import PrivateLibvirt

PROGRAM_FOLDER = PACKAGE_ROOT / "build/programs"
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
REGION = "64M"
STATE_PREFIX = "fairgv-demo-"
"""What the names of the daemon's folder and of its device begin with."""
GUESTS_LIMIT_S = 240


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
                    self._say(f"{guest.name}: {guest.image.commands[number].name}: {verdict(guest.results()[number])}")
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
        results = [guest.results() for guest in guests]
        self._console.print(table(daemon.status()["device"]["name"], self._plans, results, list(records.values())))
        is_right = all(result.exit_code == 0 for each in results for result in each)
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
