"""What `make demo` does, from its first line to its last: programs that end, then programs without end, whose shares are looked at."""

import functools
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.markup import escape

from backend_host.config import PACKAGE_ROOT
from backend_host.demo import endless, shares
from backend_host.demo.daemon import PrivateDaemon
from backend_host.demo.programs import PLANS, Plan, Record, table, verdict
from backend_host.demo.shares import Stretch
from backend_host.errors import FairGVError
from backend_host.top.figures import Looks, ordered
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.guest import Guest, NewsCallback, follow_guests
from backend_host.vm.guest_output import Progress
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.interrupts import InterruptedBySignalError, delayed_signals
from backend_host.vm.private_libvirt import PrivateLibvirt

PROGRAM_FOLDER = PACKAGE_ROOT / "build/programs"
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
REGION = "64M"
STATE_PREFIX = "fairgv-demo-"
"""What the names of the daemon's folder and of its device begin with."""
GUESTS_LIMIT_S = 240
END_LIMIT_S = 120
SECONDS = 15
"""Of the first stretch; that with another weight is half of it."""
NEW_WEIGHT = 4


class Demo:
    """One run. `run` gives the exit status."""

    def __init__(self, console: Console, seconds: int = SECONDS, plans: Sequence[Plan] = PLANS) -> None:
        self._console = console
        self._seconds = (seconds, (seconds + 1) // 2)
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
            with delayed_signals():  # else one that comes between its making and its keeping leaves it
                state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=STATE_PREFIX)))
            state_dir.chmod(0o711)
            web = _free_address()
            daemon = stack.enter_context(PrivateDaemon(state_dir, libvirt.uri, web))
            device = daemon.status()["device"]
            library = device["library"].removeprefix(f"{PACKAGE_ROOT}/")
            self._say(f"fairgv-host runs on {device['name']} ({library})")
            guests = []
            for plan in self._plans:
                folder = libvirt.folder / plan.name
                folder.mkdir(mode=0o755)
                libvirt.hand_over(folder)
                commands = [GuestCommand(name, PROGRAM_FOLDER / name) for name in plan.programs]
                limit_s = GUESTS_LIMIT_S + 2 * sum(self._seconds) + END_LIMIT_S
                commands.append(endless.command(device["kind"], limit_s))
                files = {PurePosixPath(GUEST_LIBRARY_PATH): GUEST_LIBRARY, **endless.FILES}
                image = build_image(folder, commands, files)
                guests.append(stack.enter_context(Guest(libvirt, plan.name, image, choice)))
                daemon.command("attach", plan.name, "--weight", str(plan.weight), "--gpu", "0", "--region", REGION)
                self._say(f"{plan.name}: defined, vGPU of weight {plan.weight} attached")
            try:
                return self._play(daemon, guests, _ways_to_look(state_dir, web))
            except InterruptedBySignalError:
                self._say("interrupted; cleaning up")
                raise

    def _programs(self) -> list[Path]:
        return sorted({endless.PROGRAM, *(PROGRAM_FOLDER / name for plan in self._plans for name in plan.programs)})

    def _play(self, daemon: PrivateDaemon, guests: list[Guest], ways: Sequence[str]) -> int:
        """Both acts; the second one where the first went well."""
        records = {guest.name: Record(daemon.reading(guest.name)) for guest in guests}
        on_news = functools.partial(self._tell, daemon, records)
        if self._run_programs(daemon, guests, records, on_news) and self._share(daemon, guests, ways, on_news):
            return 0
        self._explain(guests, daemon)
        return 1

    def _tell(
        self, daemon: PrivateDaemon, records: Mapping[str, Record], guest: Guest, progress: Progress, number: int
    ) -> None:
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

    def _run_programs(
        self, daemon: PrivateDaemon, guests: list[Guest], records: Mapping[str, Record], on_news: NewsCallback
    ) -> bool:
        """Until all have ended, and those without end compute; whether all is well."""
        for guest in guests:
            guest.start()
            self._say(f"{guest.name}: started")
        try:
            follow_guests(guests, GUESTS_LIMIT_S, on_news, until=lambda guest, _: endless.is_computing(guest))
        except FairGVError as error:
            self._complain(error)
        results = [guest.results()[:-1] for guest in guests]
        self._console.print(table(daemon.status()["device"]["name"], self._plans, results, list(records.values())))
        is_right = all(result.exit_code == 0 for each in results for result in each)
        return is_right and all(map(endless.is_computing, guests))

    def _share(self, daemon: PrivateDaemon, guests: list[Guest], ways: Sequence[str], on_news: NewsCallback) -> bool:
        """Two stretches with a change in between; whether the programs ended well. What the shares were is told, and no matter of success."""
        self._say("both machines compute without end; to look on meanwhile:")
        for way in ways:
            self._console.print(f"{'':10}{way}", markup=False, highlight=False, soft_wrap=True)
        try:
            first = self._show(daemon, self._seconds[0])
            change = ("set", guests[0].name, "--weight", str(NEW_WEIGHT))
            self._say(f"fairgv-host {' '.join(change)}, while they run")
            daemon.command(*change)
            second = self._show(daemon, self._seconds[1])
            for guest in guests:
                endless.end(guest)
            follow_guests(guests, END_LIMIT_S, on_news)
        except FairGVError as error:
            self._complain(error)
            return False
        self._console.print(shares.table([first, second]))
        self._console.print(shares.judged([first, second]), highlight=False)
        self._console.print(
            "On hosts of your own: fairgv-host top shows such bars (docs/top.md), fairgv-host start --web 127.0.0.1:9401 a page (docs/web.md).",
            highlight=False,
        )
        return all(guest.results()[-1].exit_code == 0 for guest in guests)

    def _show(self, daemon: PrivateDaemon, seconds: int) -> Stretch:
        """Looks each second."""
        looks = Looks()
        before = status = daemon.status()
        looks.add(before)
        with shares.live(self._console, self._say) as show:
            for second in range(1, seconds + 1):
                time.sleep(1)
                status = daemon.status()
                show(f"{second} of {seconds} s", ordered(looks.add(status).vgpus, "name"))
        return Stretch.between(before, status)

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

    def _complain(self, error: FairGVError) -> None:
        self._say(f"[red]{escape(str(error))}[/red]")

    def _say(self, text: str) -> None:
        self._console.print(
            f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )


def _free_address() -> str:
    """Of loopback. Wrong when: somebody takes the port before the daemon does; it does not start then, and says why."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def _ways_to_look(state_dir: Path, web: str) -> list[str]:
    """While the demo runs: the live view, and the page."""
    command = os.path.relpath(Path(sys.executable).with_name("fairgv-host"))
    return [f"{command} --state-dir {state_dir} top", f"http://{web}"]
