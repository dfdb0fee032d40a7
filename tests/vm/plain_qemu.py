"""A guest run by a QEMU that a test starts itself, without libvirt: its console, its monitor."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from backend_host.vm.guest_output import CommandResult, GuestOutput, Progress
from backend_host.vm.initramfs import GuestImage

CONNECT_LIMIT_S = 60


class PlainQemu:
    """Started on entry, ended on exit. Emulated, so that it runs everywhere; devices have no part in how instructions are carried out.

    `options`: what of its command line is beside kernel, console and monitor; a machine type, say.
    """

    def __init__(self, emulator: Path, image: GuestImage, folder: Path, options: Sequence[str]) -> None:
        self.name = emulator.parent.name
        self._image = image
        self._output = GuestOutput(image.marker, image.commands)
        self._command = [str(emulator), *_arguments(image, folder), *options]
        self._folder = folder
        self._end = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._output = GuestOutput(self._image.marker, self._image.commands)
        with contextlib.ExitStack() as end:
            listeners = [end.enter_context(_listen(self._folder / name)) for name in ("console.sock", "monitor.sock")]
            self.process = end.enter_context(subprocess.Popen(self._command))
            end.callback(self.process.kill)
            self._console, self._monitor = (end.enter_context(listener.accept()[0]) for listener in listeners)
            self._monitor.settimeout(CONNECT_LIMIT_S)
            self._lines = end.enter_context(self._monitor.makefile("r"))
            self.command("qmp_capabilities")
            self._end = end.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end.close()

    def fileno(self) -> int:
        """The console's descriptor."""
        return self._console.fileno()

    def receive(self) -> list[tuple[Progress, int]] | None:
        """Reads what is there; None once QEMU has ended."""
        data = self._console.recv(65536)
        return self._output.feed(data) if data else None

    def send(self, data: bytes) -> None:
        """Types into the console."""
        self._console.sendall(data)

    def results(self) -> Sequence[CommandResult]:
        """One per command of the image."""
        return self._output.results()

    def command(self, name: str, **arguments: object) -> dict[str, Any]:
        """The monitor's answer: "return" or "error". Events are passed over."""
        self._monitor.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        return self.await_line("return", "error")

    def is_running(self) -> bool:
        """Whether QEMU and the guest's processor do."""
        return self.process.poll() is None and bool(self.command("query-status")["return"]["running"])

    def await_line(self, *kinds: str) -> dict[str, Any]:
        """The monitor's next line of one of these kinds."""
        while True:
            text = self._lines.readline()
            assert text, "QEMU has ended"
            line: dict[str, Any] = json.loads(text)
            if any(kind in line for kind in kinds):
                return line


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen(1)
    listener.settimeout(CONNECT_LIMIT_S)
    return listener


def _arguments(image: GuestImage, folder: Path) -> list[str]:
    bare = ["-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-cpu", "max"]
    boot = ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", image.kernel_parameters]
    console = ["-chardev", f"socket,id=console,path={folder}/console.sock", "-serial", "chardev:console"]
    monitor = ["-chardev", f"socket,id=monitor,path={folder}/monitor.sock", "-mon", "chardev=monitor,mode=control"]
    return [*bare, "-m", "256", *boot, *console, *monitor]
