"""Guests as virtual machines: small ones that boot from memory under a libvirtd of our own, each with a vGPU that was attached
before it booted. Daemons come and go while they run. With a doorbell a machine has the kernel module, too.

A machine runs a shell that reads command lines from its serial console, so that it boots once for many programs. A program's standard input is
the console, too: what a measurement tells it is typed. Without KVM the machines are emulated, and so are the programs' own instructions:
ratios to native then say nothing but that it works.
"""

import contextlib
import secrets
import select
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from backend_host.config import Config
from backend_host.ipc import Connection
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.guest_output import Progress
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, PROGRAM_FOLDER, GuestCommand, GuestImage, build_image
from backend_host.vm.kernel import find_kernel
from backend_host.vm.private_libvirt import PrivateLibvirt
from benchmarks.errors import ProgramFailedError
from benchmarks.guests.kernel_module import MODULE_IN_GUEST, build_module
from benchmarks.guests.pinning import Pinning
from benchmarks.guests.process import change, daemon, move, read_accounts
from benchmarks.guests.session import Account, Finished, Moved, left_s

BOOT_LIMIT_S = 300.0
LIFE_S = 4 * 3600
LEAD_S = 2.0
MEMORY_MIB = 768
REGION_BYTES = 64 << 20
END_OF_INPUT = b"\x04"
INTERRUPT_LIMIT_S = 20.0


def _script(token: str) -> str:
    """Each line of the console is run; a line with the token tells how it ended, and before them all that lines are taken."""
    return (
        f'exec 3</dev/console\n/bin/busybox stty -F /dev/console -echo\nprintf "\\n{token} 0\\n"\n'
        f'while IFS= read -r line <&3; do\n    eval "$line" <&3\n    printf "\\n{token} %d\\n" $?\ndone\n'
    )


class MachineRunning:
    """The program that one machine runs now."""

    def __init__(self, guest: Guest, token: str, name: str, nr_read: int | None = None) -> None:
        """Lines before `nr_read` are not its own; None: all that have come are not, as the program is only told to start."""
        self._guest, self._token, self._name = guest, token, name
        self._nr_read = len(self._lines()) if nr_read is None else nr_read
        self._is_over = False

    def read_line(self, deadline_s: float) -> str:
        """See `Running`."""
        while not (lines := [line for line in self._lines()[self._nr_read :] if line]):
            self._receive(deadline_s)
        self._nr_read += self._lines()[self._nr_read :].index(lines[0]) + 1
        if lines[0].startswith(self._token):
            raise ProgramFailedError(f"{self._name} ended too early, exit status {lines[0].split()[1]}")
        return lines[0]

    def tell(self, line: str) -> None:
        """See `Running`."""
        self._guest.send(f"{line}\n".encode())

    def finish(self, limit_s: float) -> Finished:
        """See `Running`. Output and errors come on the same console."""
        deadline_s = time.monotonic() + limit_s
        while True:
            lines = self._lines()[self._nr_read :]
            ends = [number for number, line in enumerate(lines) if line.startswith(self._token)]
            if ends:
                self._is_over = True
                return Finished("\n".join(lines[: ends[0]]), "", int(lines[ends[0]].split()[1]))
            self._receive(deadline_s)

    def stop(self) -> None:
        """See `Running`: ends the program's input, as all programs that are told something end then."""
        if not self._is_over:
            self._guest.send(END_OF_INPUT)
            with contextlib.suppress(ProgramFailedError):
                self.finish(INTERRUPT_LIMIT_S)

    def _lines(self) -> list[str]:
        return self._guest.results()[-1].output.split("\n")

    def _receive(self, deadline_s: float) -> None:
        ready, _, _ = select.select([self._guest], [], [], left_s(deadline_s))
        if not ready:
            raise ProgramFailedError(f"{self._name} says nothing any more")
        if self._guest.receive() is None:
            raise ProgramFailedError(f"{self._name}: the machine ended:\n{self._guest.output.console()}")


class MachineSession:
    """Booted machines, one for each guest."""

    lead_s = LEAD_S

    def __init__(self, config: Config, guests: Sequence[Guest], token: str) -> None:
        self._state_dir, self._guests, self._token = config.state_dir, guests, token

    def start(
        self, index: int, program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> MachineRunning:
        """See `Session`."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
        line = shlex.join([str(PROGRAM_FOLDER / program.name), *arguments])
        guest = self._guests[index]
        running = MachineRunning(guest, self._token, f"{program.name}, {guest.name}")
        running.tell(" ".join([*variables, line]))
        return running

    def accounts(self) -> tuple[Account, ...]:
        """See `Session`."""
        return read_accounts(self._state_dir, [guest.name for guest in self._guests])

    def set_weight(self, index: int, weight: int) -> None:
        """See `Session`."""
        change(self._state_dir, self._guests[index].name, weight=weight)

    def set_bounds(self, index: int, request: float, limit: float) -> None:
        """See `Session`."""
        change(self._state_dir, self._guests[index].name, request=request, limit=limit)

    def move(self, index: int, gpu: int, mover: str) -> Moved:
        """See `Session`."""
        return move(self._state_dir, self._guests[index].name, gpu, mover)


@dataclass(frozen=True)
class Machines:
    """See `Guests`: booted, and served by whichever daemon is there."""

    config: Config
    guests: Sequence[Guest]
    token: str
    pinning: Pinning | None

    @contextlib.contextmanager
    def session(self, **settings: object) -> Iterator[MachineSession]:
        """See `Guests`."""
        config = replace(self.config, **settings)  # type: ignore[arg-type] # names and values of settings
        with daemon(config, self.pinning):
            yield MachineSession(config, self.guests, self.token)


@contextlib.contextmanager
def machines(
    config: Config, weights: Sequence[int], programs: Sequence[Path], pinning: Pinning | None, *, has_doorbell: bool
) -> Iterator[Machines]:
    """A libvirtd and a booted machine for each weight, with these programs in it. VmError names what is missing."""
    choice = choose_accelerator()
    token = f"@bench-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        libvirt = stack.enter_context(PrivateLibvirt())
        config = replace(config, libvirt_uri=libvirt.uri, region_bytes=REGION_BYTES)
        guests = []
        for index in range(len(weights)):
            name = f"vm-{index}"
            image = _image(libvirt, name, token, Path(config.guest_library), programs, has_module=has_doorbell)
            amend = _pinned(pinning)
            guests.append(stack.enter_context(Guest(libvirt, name, image, choice, memory_mib=MEMORY_MIB, amend=amend)))
        with daemon(config, pinning), Connection(config.socket_path) as connection:
            for guest, weight in zip(guests, weights, strict=True):
                settings = {"weight": weight, "memory_bytes": 0, "region_bytes": REGION_BYTES}
                connection.ask("attach", domain=guest.name, has_doorbell=has_doorbell, **settings)
                guest.start()
        begun = (Progress.BEGUN, len(guests[0].image.commands) - 1)
        follow_guests(guests, BOOT_LIMIT_S, until=lambda _, news: begun in news)
        for guest in guests:
            # The shell's first line may have come together with the news that it has begun.
            MachineRunning(guest, token, f"the shell of {guest.name}", nr_read=0).finish(BOOT_LIMIT_S)
        yield Machines(config, guests, token, pinning)


def _image(
    libvirt: PrivateLibvirt, name: str, token: str, library: Path, programs: Sequence[Path], *, has_module: bool
) -> GuestImage:
    """The shell is the last of its commands."""
    folder = libvirt.folder / name
    folder.mkdir(mode=0o755)
    libvirt.hand_over(folder)
    kernel = find_kernel()
    commands = [GuestCommand("shell", None, ("/bin/busybox", "sh", "-c", _script(token)), timeout_s=LIFE_S)]
    files = {PurePosixPath(GUEST_LIBRARY_PATH): library}
    files |= {PROGRAM_FOLDER / program.name: program for program in programs}
    if has_module:
        commands.insert(0, GuestCommand("insmod", None, ("/bin/busybox", "insmod", str(MODULE_IN_GUEST))))
        files[MODULE_IN_GUEST] = build_module(kernel.release)
    return build_image(folder, commands, files, kernel=kernel)


def _pinned(pinning: Pinning | None) -> Callable[[str], str]:
    """What puts that into a definition."""
    tuned = f"</vcpu>{pinning.cputune() if pinning else ''}"
    return lambda definition: definition.replace("</vcpu>", tuned)
