"""A guest with a fairgv-memory device at a root port, run by a QEMU that the patches were built into."""

from pathlib import Path

from backend_host.vm.initramfs import GuestImage
from tests.qemu.peer import MEMFD_NAME
from tests.vm.plain_qemu import PlainQemu

WINDOW_BYTES = 64 << 20
PORT_BYTES = 256 << 20
DEVICE_ID = "memory"
_DEVICE = {"driver": "fairgv-memory", "id": DEVICE_ID, "bus": "root1", "chardev": "peer", "window": WINDOW_BYTES}


class Machine(PlainQemu):
    """With the device, whose other end is whoever connects to `peer_path`."""

    def __init__(self, emulator: Path, image: GuestImage, folder: Path) -> None:
        self.peer_path = folder / "peer.sock"
        port = ["-device", f"pcie-root-port,id=root1,chassis=1,pref64-reserve={PORT_BYTES}"]
        peer = ["-chardev", f"socket,id=peer,path={self.peer_path},server=on,wait=off"]
        device = ["-device", ",".join(f"{key}={value}" for key, value in _DEVICE.items())]
        super().__init__(emulator, image, folder, ["-machine", "q35", *port, *peer, *device])

    def unplug(self) -> None:
        """Returns when the guest has let the device go."""
        assert "return" in self.command("device_del", id=DEVICE_ID)
        while self.await_line("event")["event"] != "DEVICE_DELETED":
            pass

    def plug(self) -> None:
        assert self.command("device_add", **_DEVICE) == {"return": {}}

    def nr_pieces_held(self) -> int:
        """How many pieces QEMU has mapped or open."""
        process = Path(f"/proc/{self.process.pid}")
        mapped = sum(f"memfd:{MEMFD_NAME}" in line for line in (process / "maps").read_text().splitlines())
        return mapped + sum(_is_piece(path) for path in (process / "fd").iterdir())


def _is_piece(path: Path) -> bool:
    try:
        return f"memfd:{MEMFD_NAME}" in str(path.readlink())
    except OSError:  # closed meanwhile
        return False
