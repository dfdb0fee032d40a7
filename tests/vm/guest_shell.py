"""A shell inside a guest that a test types into, so that one boot serves many steps.

It is the guest's only command: it reads lines from the console and reports each one's exit status in a line that begins with a token.
A line may start something in the background; it stays a child of that shell, so a later line can kill it or wait for it.

Wrong when: a line needs an answer on its standard input, which is the console too.
"""

import secrets
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backend_host.vm.errors import VmError
from backend_host.vm.guest_output import CommandResult, Progress
from backend_host.vm.initramfs import GuestCommand

BOOT_LIMIT_S = 120
LINE_LIMIT_S = 60
LIFE_S = 3600
TOKEN = f"@shell-{secrets.token_hex(8)}"

_SCRIPT = f"""\
exec 3</dev/console
/bin/busybox stty -F /dev/console -echo
number=0
echo "{TOKEN} 0 0"
while IFS= read -r line <&3; do
    eval "$line"
    printf '\\n{TOKEN} %d %d\\n' $((number += 1)) $?
done
"""


def shell_command() -> GuestCommand:
    """Give this, and only this, to `build_image`; programs go into its `files`."""
    return GuestCommand("shell", None, ("/bin/busybox", "sh", "-c", _SCRIPT), timeout_s=LIFE_S)


@dataclass(frozen=True)
class Answer:
    """What a line printed, standard error included, and how it ended."""

    output: str
    exit_code: int


class Console(Protocol):
    """What of a `Guest` the shell needs."""

    name: str

    def fileno(self) -> int: ...
    def receive(self) -> list[tuple[Progress, int]] | None: ...
    def send(self, data: bytes) -> None: ...
    def results(self) -> Sequence[CommandResult]: ...


class GuestShell:
    """The far end of `shell_command` in a started guest."""

    def __init__(self, guest: Console) -> None:
        self._guest = guest
        self._number = 0

    def await_boot(self, limit_s: float = BOOT_LIMIT_S) -> None:
        """Returns when the guest takes lines; after a start and after a reset. Raises VmError."""
        deadline = time.monotonic() + limit_s
        while (Progress.BEGUN, 0) not in self._receive(deadline):
            pass
        self._number = 0
        self._await(0, LINE_LIMIT_S)

    def run(self, line: str, limit_s: float = LINE_LIMIT_S) -> Answer:
        """Types one line and waits until it has ended. Raises VmError when it does not, or the guest ends."""
        self.type(line)
        return self._await(self._number, limit_s)

    def type(self, line: str) -> None:
        """Types one line that is not waited for: lines behind it are, after it."""
        self._number += 1
        self._guest.send(f"{line}\n".encode())

    def _await(self, number: int, limit_s: float) -> Answer:
        deadline = time.monotonic() + limit_s
        while (answer := self._find(number)) is None:
            self._receive(deadline)
        return answer

    def _receive(self, deadline: float) -> list[tuple[Progress, int]]:
        ready, _, _ = select.select([self._guest], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise VmError(f"no answer from {self._guest.name} in time:\n{self._printed()}")
        if (news := self._guest.receive()) is None:
            raise VmError(f"{self._guest.name} ended:\n{self._printed()}")
        return news

    def _find(self, number: int) -> Answer | None:
        lines = self._printed().splitlines()
        begin = 0
        for index, line in enumerate(lines):
            if line.startswith(TOKEN):
                _, found, exit_code = line.split()
                if int(found) == number:
                    return Answer("\n".join(lines[begin:index]).rstrip("\n"), int(exit_code))
                begin = index + 1
        return None

    def _printed(self) -> str:
        return self._guest.results()[0].output
