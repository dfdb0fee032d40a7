"""A running machine with the device `fairgv-memory`, whose guest a test types into."""

from dataclasses import dataclass

from tests.end_to_end.host import wait_until
from tests.qemu.machine import Machine
from tests.vm.guest_shell import Answer, GuestShell

RELEASES = ["debian-12", "debian-13"]
"""Those that qemu_patches has patches for."""


@dataclass
class Scene:
    """A running machine, its shell, and the guest program memory_client."""

    machine: Machine
    shell: GuestShell

    def steps(self, *steps: str) -> Answer:
        """Runs the guest's program to its end."""
        answer = self.shell.run(f"/programs/memory_client {' '.join(steps)}")
        assert answer.exit_code == 0, answer.output
        return answer

    def begin(self, *steps: str) -> None:
        """Starts it, to be ended by `finish`."""
        self.shell.run(f"/programs/memory_client {' '.join(steps)} >/tmp/output 2>&1 &")

    def finish(self) -> str:
        """What it printed."""
        answer = self.shell.run("wait $!")
        output = self.shell.run("/bin/busybox cat /tmp/output").output
        assert answer.exit_code == 0, output
        return output

    def status(self) -> dict[str, int]:
        words = self.steps("status").output.split()
        numbers = dict(zip(words[::2], words[1::2], strict=True))
        assert int(numbers.pop("magic"), 16) == 0x14D564746, "magic and version"
        return {name: int(number) for name, number in numbers.items()}

    def reset(self) -> None:
        """As the reset button does."""
        assert self.machine.command("system_reset") == {"return": {}}
        self.shell.await_boot()

    def replug(self) -> None:
        """A device that remembers nothing."""
        self.machine.unplug()
        self.machine.plug()
        wait_until(
            lambda: "10f0" in self.shell.run("cat /sys/bus/pci/devices/*/device").output, "the guest has the device"
        )
