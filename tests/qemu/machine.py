"""A guest with a fairgv-memory device at a root port, run by a QEMU that the patches were built into: its console, its monitor."""

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
from tests.qemu.peer import MEMFD_NAME

CONNECT_LIMIT_S = 60
WINDOW_BYTES = 64 << 20
PORT_BYTES = 256 << 20
DEVICE_ID = "memory"
_DEVICE = {"driver": "fairgv-memory", "id": DEVICE_ID, "bus": "root1", "chardev": "peer", "window": WINDOW_BYTES}


class Machine:
    """Started on entry, ended on exit. Emulated, so that it runs everywhere; the device has no part in how instructions are carried out."""

    def __init__(self, emulator: Path, image: GuestImage, folder: Path) -> None:
        self.name = emulator.parent.name
        self.peer_path = folder / "peer.sock"
        self._image = image
        self._output = GuestOutput(image.marker, image.commands)
        self._command = [str(emulator), *_arguments(image, folder)]
        self._folder = folder
        self._end = contextlib.ExitStack()

    def __enter__(self) -> Self:
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
        return self._await_line("return", "error")

    def is_running(self) -> bool:
        """Whether QEMU and the guest's processor do."""
        return self.process.poll() is None and bool(self.command("query-status")["return"]["running"])

    def unplug(self) -> None:
        """Returns when the guest has let the device go."""
        assert "return" in self.command("device_del", id=DEVICE_ID)
        while self._await_line("event")["event"] != "DEVICE_DELETED":
            pass

    def plug(self) -> None:
        assert self.command("device_add", **_DEVICE) == {"return": {}}

    def nr_pieces_held(self) -> int:
        """How many pieces QEMU has mapped or open."""
        process = Path(f"/proc/{self.process.pid}")
        mapped = sum(f"memfd:{MEMFD_NAME}" in line for line in (process / "maps").read_text().splitlines())
        return mapped + sum(_is_piece(path) for path in (process / "fd").iterdir())

    def _await_line(self, *kinds: str) -> dict[str, Any]:
        while True:
            text = self._lines.readline()
            assert text, "QEMU has ended"
            line: dict[str, Any] = json.loads(text)
            if any(kind in line for kind in kinds):
                return line


def _is_piece(path: Path) -> bool:
    try:
        return f"memfd:{MEMFD_NAME}" in str(path.readlink())
    except OSError:  # closed meanwhile
        return False


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen(1)
    listener.settimeout(CONNECT_LIMIT_S)
    return listener


def _arguments(image: GuestImage, folder: Path) -> list[str]:
    bare = ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", "tcg", "-cpu", "max"]
    boot = ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", image.kernel_parameters]
    console = ["-chardev", f"socket,id=console,path={folder}/console.sock", "-serial", "chardev:console"]
    monitor = ["-chardev", f"socket,id=monitor,path={folder}/monitor.sock", "-mon", "chardev=monitor,mode=control"]
    port = ["-device", f"pcie-root-port,id=root1,chassis=1,pref64-reserve={PORT_BYTES}"]
    peer = ["-chardev", f"socket,id=peer,path={folder}/peer.sock,server=on,wait=off"]
    device = ["-device", ",".join(f"{key}={value}" for key, value in _DEVICE.items())]
    return [*bare, "-m", "256", *boot, *console, *monitor, *port, *peer, *device]
