"""Which files a worker sees: those that it needs, read-only, at the paths that they have outside.

Wrong when: something that a device library opens by a path of its own is not listed here. It is then not there, and the library says so,
or does without.
"""

import contextlib
import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend_host.worker._worker import lib

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("backend_host", "cuda_api", "ivshmem", "softgpu")
"""Of this project: what a worker imports, and softgpu's compiler."""

CACHES_AT, CACHE_AT = "/.caches", "/cache"
"""As in enter.h."""

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_SOFTGPU_TOOLS = ("ld", "cc")
_SOFTGPU_STATE = "/dev/shm/fairgv-softgpu"
_NVIDIA_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NVIDIA_FILES = ("/sys", "/usr/share/nvidia", "/etc/nvidia", "/run/nvidia-persistenced")
"""What NVIDIA's library reads of the machine: topology, modules, profiles of applications, the socket of its daemon."""
_OWN_MEMORY = "mode=1777,size=64m,nr_inodes=1024"
"""Of /tmp and /dev/shm. They count as memory of the worker, whose cgroup is what bounds it; this is for hosts without."""
_NOTHING = "mode=0555,size=4k,nr_inodes=1"
"""Of a folder that is hidden: what groups there are on the host, with their names and sizes, is no worker's to know."""
_MOST_LINKS = 40
"""As the kernel follows."""


@dataclass(frozen=True)
class Entry:
    """One place in a worker's root: `struct fgw_walls_entry` (start.h)."""

    kind: int
    path: str
    other: str | None = None


class Root:
    """Gathers entries; `entries` gives them in the order in which they are made."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def copy(self) -> "Root":
        """One with the same places, to which more can be added."""
        other = Root()
        other._entries = dict(self._entries)
        return other

    def add(self, kind: int, path: str, other: str | None = None) -> None:
        """A place by itself."""
        self._entries[path] = Entry(kind, path, other)

    def reach(self, path: str | Path) -> str | None:
        """Makes links so that `path` leads where it leads outside; returns where that is, None when nothing is there."""
        left = [part for part in Path(path).parts if part != "/"][::-1]
        at, nr_links = "/", 0
        while left:
            part = left.pop()
            here = os.path.normpath(os.path.join(at, part))  # noqa: PTH118 - `..` of a link's target
            if not os.path.islink(here):  # noqa: PTH114
                at = here
                continue
            nr_links += 1
            target = os.readlink(here)  # noqa: PTH115
            if nr_links > _MOST_LINKS:
                return None
            if not here.startswith("/proc/"):
                self.add(lib.FGW_WALLS_LINK, here, target)
            at = "/" if target.startswith("/") else at
            left += [part for part in Path(target).parts if part != "/"][::-1]
        return at if os.path.exists(at) else None  # noqa: PTH110

    def read(self, *paths: str | Path) -> None:
        """Files and folders to read, where they are there."""
        for path in paths:
            real = self.reach(path)
            if real is not None and real != "/":
                self.add(lib.FGW_WALLS_READ, real)

    def write(self, path: str | Path) -> None:
        """A file, or a folder, that the worker may change."""
        real = self.reach(path)
        if real is not None:
            self.add(lib.FGW_WALLS_WRITE, real)

    def devices(self, paths: Iterable[str]) -> None:
        """Device nodes, where they are there."""
        for path in paths:
            if os.path.exists(path):  # noqa: PTH110
                self.add(lib.FGW_WALLS_DEVICE, path)

    def entries(self) -> list[Entry]:
        """Folders before what is in them; without what a folder that is read brings along."""
        kept: list[Entry] = []
        brought: str | None = None
        for path in sorted(self._entries, key=lambda path: Path(path).parts):
            entry = self._entries[path]
            if brought is not None and path.startswith(f"{brought}/"):
                if entry.kind in (lib.FGW_WALLS_READ, lib.FGW_WALLS_LINK):
                    continue
            elif entry.kind == lib.FGW_WALLS_READ:
                brought = path
            kept.append(entry)
        return kept


def root_of_python() -> Root:
    """What any Python program needs, with our packages; processes of its own namespace."""
    root = Root()
    root.read(*_SYSTEM, sys.prefix, sys.executable)
    if sys.base_prefix != "/usr":  # whose libraries are there already
        root.read(sys.base_prefix)
    root.read(*(PACKAGE_ROOT / package for package in PACKAGES))
    root.devices(_DEVICES)
    for path in ("/tmp", "/dev/shm"):
        root.add(lib.FGW_WALLS_MEMORY, path, _OWN_MEMORY)
    root.add(lib.FGW_WALLS_PROCESSES, "/proc", "subset=pid")
    return root


def root_of_worker(
    kind: str, library: str, pci_bus_ids: Sequence[str], environment: Mapping[str, str], cache_dir: Path
) -> Root:
    """What a worker of these devices needs, `kind` being soft or cuda."""
    root = root_of_python()
    root.read(*(folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")))
    if "/" in library:
        root.read(Path(library).parent)
    root.add(lib.FGW_WALLS_CACHES, CACHES_AT, str(cache_dir))
    root.add(lib.FGW_WALLS_FOLDER, CACHE_AT)
    if kind == "cuda":
        _add_nvidia(root, pci_bus_ids)
    else:
        _add_softgpu(root, environment)
    return root


def softgpu_state(environment: Mapping[str, str]) -> str:
    """What the names of the files begin with that softgpu's processes share."""
    return environment.get("FAIRGV_SOFTGPU_STATE") or _SOFTGPU_STATE


def _add_softgpu(root: Root, environment: Mapping[str, str]) -> None:
    root.read(PACKAGE_ROOT / "build" / "softgpu")
    compiler = environment.get("FAIRGV_SOFTGPU_COMPILER", "").split()[:1]
    root.read(*(word for word in compiler if word.startswith("/")))
    root.read(*filter(None, (shutil.which(tool) for tool in _SOFTGPU_TOOLS)))
    prefix = softgpu_state(environment)
    for number in range(int(environment.get("FAIRGV_SOFTGPU_DEVICES") or 1)):
        path = f"{prefix}.{number}"
        _make_state(path)
        root.write(path)


def _make_state(path: str) -> None:
    """softgpu shares a file among processes of all users, and cannot make it inside. An empty one is a fresh one."""
    with contextlib.suppress(FileExistsError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        os.fchmod(file, 0o666)
        os.close(file)


def _add_nvidia(root: Root, pci_bus_ids: Sequence[str]) -> None:
    # Of /proc it reads the driver's part, and which numbers its devices have.
    root.add(lib.FGW_WALLS_PROCESSES, "/proc", None)
    root.read(*_NVIDIA_FILES)
    root.add(lib.FGW_WALLS_MEMORY, "/sys/fs/cgroup", _NOTHING)
    own = [nvidia_node(address) for address in pci_bus_ids]
    nodes = map(str, Path("/dev").glob("nvidia[0-9]*")) if None in own else filter(None, own)
    root.devices(itertools.chain(_NVIDIA_DEVICES, nodes))
    root.devices(str(node) for node in Path("/dev/nvidia-caps").glob("*"))


def nvidia_node(pci_bus_id: str) -> str | None:
    """The node of the device with this address; None where the driver does not tell, or it is not there."""
    minor = _minor(pci_bus_id)
    node = f"/dev/nvidia{minor}"
    return node if minor is not None and Path(node).exists() else None


def _minor(pci_bus_id: str) -> str | None:
    """Of the device's node, as the driver tells it; None where it does not."""
    with contextlib.suppress(OSError):
        for folder in Path("/proc/driver/nvidia/gpus").iterdir():
            if folder.name.lower().endswith(pci_bus_id.lower()[-len("00:00.0") :]):
                found = re.search(r"Device Minor:\s*(\d+)", (folder / "information").read_text())
                return found[1] if found else None
    return None
