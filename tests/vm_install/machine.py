"""A fresh Debian that a test has booted with a real systemd, and types into: one boot for all tests, which go on where the one before ended.

It is emulated, on any machine: nothing in it runs at the speed of a host, so tests wait for what happens, and the longest limit is minutes.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from backend_host.vm.accelerator import find_emulator
from tests.vm.guest_shell import Answer, GuestShell, shell_command
from tests.vm.plain_qemu import PlainQemu
from tests.vm_install.image import make_base, make_disk

BOOT_LIMIT_S = LINE_LIMIT_S = 600
MEMORY_MIB = 3072


@dataclass
class Debian:
    """Its shell, as root."""

    shell: GuestShell

    def run(self, line: str, limit_s: float = LINE_LIMIT_S) -> Answer:
        """One line, to its end."""
        return self.shell.run(line, limit_s)

    def says(self, line: str, limit_s: float = LINE_LIMIT_S) -> str:
        """What a line prints that must go well."""
        answer = self.run(line, limit_s)
        assert answer.exit_code == 0, f"{line}: {answer.exit_code}\n{answer.output}"
        return answer.output

    def wait_until(self, line: str, is_so: Callable[[str], bool] = bool) -> str:
        """Asks again and again until the line's output is so; returns it."""
        for _ in range(LINE_LIMIT_S):
            if is_so(said := self.run(line).output):
                return said
            self.run("sleep 1")
        raise AssertionError(f"{line} still says:\n{said}")

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        """Looks again and again."""
        for _ in range(LINE_LIMIT_S):
            if is_so():
                return
            self.run("sleep 1")
        raise AssertionError(f"in vain: {what}")

    def as_user(self, name: str, line: str) -> Answer:
        """A line of an ordinary user's who has just logged in. By its path, or the shell takes busybox's, which knows no users."""
        return self.run(f"/usr/bin/setpriv --reuid={name} --regid={name} --init-groups sh -c {shlex.quote(line)}")

    def json(self, line: str) -> Any:
        """The JSON that a command prints, whatever its status."""
        return json.loads(self.run(line).output)

    def property(self, name: str, unit: str = "fairgv.service") -> str:
        """What systemd says of a unit."""
        return self.says(f"systemctl show --value --property={name} {unit}")


@contextmanager
def booted(folder: Path, packages: tuple[str, ...], files: Mapping[PurePosixPath, Path]) -> Iterator[Debian]:
    """With these packages of the distribution, and these files."""
    image = make_disk(make_base(packages), folder, files, shell_command())
    disk = f"file={folder}/disk.img,if=virtio,format=raw,cache=unsafe"
    options = ["-no-reboot", "-smp", "2", "-m", str(MEMORY_MIB), "-drive", disk]
    with PlainQemu(find_emulator(), image, folder, options) as qemu:
        shell = GuestShell(qemu)
        shell.await_boot(BOOT_LIMIT_S)
        yield Debian(shell)
