"""A worker whose device library is an attack (escapes.c): hosts with walls of a test's choice, of either kind of device library.

The kind `cuda` is what a worker on a GPU has: its files and its list of system calls. Its device library is the same, opened before the list
counts; softgpu below it needs what that list forbids, so nothing is computed there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from backend_host.walls.root import root_of_worker
from backend_host.walls.settings import WallSettings
from backend_host.walls.start import Walls
from backend_host.worker_start import WorkerStart
from ivshmem.region import Region
from tests.backend_host.worker_guest import FUNCTION, MODULE, NO_CHUNK, ROOT, make_region
from tests.backend_host.worker_harness import SOFTGPU, WALLS, Host, Served, tenant_of

SOURCE = Path(__file__).with_name("escapes.c")
PASSED, FAILED = 1_000_000, 2_000_000
"""As in escapes.c."""
PTX = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"


def build(folder: Path) -> Path:
    """The library, in a folder that a worker may read."""
    built = folder / "libcuda_escapes.so"
    include = ROOT / "cuda_api" / "include"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-shared", "-fPIC", f"-I{include}", str(SOURCE)]
    linked = ["-Wl,--no-as-needed", str(SOFTGPU), f"-Wl,-rpath,{SOFTGPU.parent}", "-o", str(built)]
    subprocess.run([*command, *linked], check=True)
    return built


class WalledHost(Host):
    """A host of one kind, `without` some walls that this machine has."""

    def __init__(
        self, library: Path, kind: str = "soft", without: Collection[str] = (), settings: WallSettings = WALLS
    ) -> None:
        self._kind, self._without, self.settings = kind, frozenset(without), settings
        super().__init__(library)

    def _worker_start(
        self, library: Path, environment: Mapping[str, str], program: Sequence[str], shared: Sequence[Path]
    ) -> WorkerStart:
        ours = super()._worker_start(library, environment, program, shared)
        names = ours.walls.names - self._without
        root = ours.root
        if self._kind != "soft":
            root = root_of_worker(self._kind, str(library), [""], ours.environment, self.settings.cache_path)
            root.read(SOFTGPU.parent)
            root.write(f"{self.state.name}/device.0")
        return replace(
            ours,
            kind=self._kind,
            root=root,
            walls=Walls(names, self.settings, ours.walls.device_memory_bytes if self._kind == "soft" else 0),
            tenants=ours.tenants if "user" in names else None,
            groups=ours.groups if "cgroup" in names else None,
            memory_bytes=self.settings.memory_bytes,
        )


@dataclass(frozen=True)
class Outcome:
    """What an attack came to: it came through with this number, or failed with this errno."""

    number: int | None
    errno: int | None


class Captive:
    """A guest that owns its worker."""

    def __init__(self, host: WalledHost, region: Region) -> None:
        self.served = Served(host, region)
        self._caches = host.settings.cache_path
        self.guest = self.served.primary()
        assert self.guest.load(PTX).result == 0

    def attack(self, said: str) -> Outcome:
        """Runs it in the worker, which stays there."""
        slot = self.begin(said)
        result = self.guest.finish("cuModuleGetFunction", slot).result
        assert result >= PASSED, (said, result)
        return Outcome(result - PASSED, None) if result < FAILED else Outcome(None, result - FAILED)

    def begin(self, said: str) -> int:
        """Runs it, and waits for nothing."""
        name = f"escape {said}".encode()
        fields = {"module": MODULE, "handle": FUNCTION, "name_bytes": len(name)}
        return self.guest.begin("cuModuleGetFunction", name, chunk=NO_CHUNK, **fields)

    @property
    def cache(self) -> Path:
        """The folder of its tenant, from outside."""
        return self._caches / tenant_of(self.served.vgpu)

    def close(self) -> None:
        self.guest.close()


@contextmanager
def captives(
    library: Path, kind: str, nr: int = 1, settings: WallSettings = WALLS, without: Collection[str] = ()
) -> Iterator[list[Captive]]:
    """So many guests of one host, each with a vGPU of its own."""
    with ExitStack() as stack:
        host = stack.enter_context(closing(WalledHost(library, kind, without, settings)))
        regions = [stack.enter_context(make_region()) for _ in range(nr)]
        yield [stack.enter_context(closing(Captive(host, region))) for region in regions]
