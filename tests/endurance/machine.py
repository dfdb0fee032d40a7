"""A virtual machine among the victims: a small guest under QEMU, in a libvirt of the run's own, whose program checks its results.

It is attached and booted for a round, and taken away after it; the daemon learns of both as it does of anybody's domains. Where KVM boots
nothing QEMU emulates, and a round takes the half minute more that a boot then takes.
Wrong when: the machine is so loaded that an emulated guest does not boot in two minutes: the round counts as failed beside.
"""

import contextlib
import signal
from collections.abc import Iterator

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.connection import load_libvirt
from backend_host.vm.errors import VmError
from backend_host.vm.guest import Guest as Domain
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, PROGRAM_FOLDER, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_name, region_path
from tests.children import is_there
from tests.end_to_end.host import PROGRAMS, Host
from tests.endurance import processes
from tests.endurance.programs import Ended, Ending, ending_of, send
from tests.vm.guest_shell import GuestShell, shell_command

NAME = "machine"
"""Of the domain, and so of its vGPU."""
IN_THE_GUEST = ("spin", "matrix_mul", "vector_add")
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"


class Machine:
    """One domain, attached to whichever daemon is there."""

    def __init__(self, libvirt: PrivateLibvirt, domain: Domain) -> None:
        self.libvirt = libvirt
        self.domain = domain
        self.shell = GuestShell(domain)
        self._pid = 0

    def acquaint(self, host: Host) -> None:
        """Afterwards the daemon has what it opens for its first domain and keeps: the connection to libvirt."""
        self._attach(host)
        host_command(host.state_dir, "detach", NAME)

    def boot(self, host: Host) -> None:
        """With a vGPU of this daemon's. Raises VmError."""
        self._attach(host)
        self.domain.start()
        self.shell.await_boot()

    def end(self, host: Host) -> list[str]:
        """Takes the domain away, whatever became of it; what is left of it then."""
        with contextlib.suppress(load_libvirt().libvirtError):
            self.domain.domain.destroy()
        answer = host_command(host.state_dir, "detach", NAME)
        path = region_path(region_name(self.domain.uuid))
        left = [f"region {path}"] if path.exists() else []
        return left + ([f"detach: {answer.stderr}"] if answer.returncode != 0 else [])

    def is_up(self) -> bool:
        """Whether its QEMU is there."""
        return is_there(self.pid())

    def pid(self) -> int:
        """Of its QEMU; of the last one when it is off, 0 when there was none."""
        with contextlib.suppress(OSError, ValueError):
            self._pid = int((self.libvirt.folder / f"run/libvirt/qemu/run/{NAME}.pid").read_text())
        return self._pid

    def signal(self, number: int) -> None:
        """To QEMU."""
        if pid := self.pid():
            send(pid, number)

    def libvirtd(self) -> int:
        """Its process."""
        return int((self.libvirt.folder / "run/libvirt/libvirtd.pid").read_text())

    def _attach(self, host: Host) -> None:
        self._pid = 0
        answer = host_command(host.state_dir, "attach", NAME, "--memory", "64M", "--region", "64M")
        if answer.returncode != 0:
            raise VmError(answer.stderr.strip())


class MachineProgram:
    """A program in the machine's background; of programs.py's kind. One at a time."""

    vgpu = NAME

    def __init__(self, machine: Machine, *program: str) -> None:
        self.machine = machine
        line = " ".join([str(PROGRAM_FOLDER / program[0]), *program[1:]])
        machine.shell.run(f"{line} >/tmp/said 2>&1 &")

    def has_ended(self) -> bool:
        """Nobody in here is told; the machine may have."""
        return not self.machine.is_up()

    def signal(self, number: int) -> None:
        """Typed, without an answer: the machine may have been stopped."""
        with contextlib.suppress(OSError):
            self.machine.shell.type(f"kill -{signal.Signals(number).name[3:]} $!")

    def end(self, limit_s: float) -> Ended:
        try:
            answer = self.machine.shell.run("wait $!; code=$?; cat /tmp/said; (exit $code)", limit_s)
        except (VmError, OSError) as error:
            return Ended(Ending.HANG if self.machine.is_up() else Ending.ERROR, str(error))
        return Ended(ending_of(answer.exit_code, answer.output), f"status {answer.exit_code}\n{answer.output}")

    def kill(self) -> None:
        """With its machine, when that ends."""


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """Defined, and off. Raises VmError where something is missing, with the remedy."""
    files = {PROGRAM_FOLDER / name: PROGRAMS / name for name in IN_THE_GUEST}
    with processes.reaping("qemu-system-x86"), PrivateLibvirt() as libvirt:
        image = build_image(libvirt.folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})
        with Domain(libvirt, NAME, image, choose_accelerator()) as domain:
            yield Machine(libvirt, domain)
