"""Worker processes started as the daemon starts them, and a guest with its own: what the tests of the worker share."""

from __future__ import annotations

import array
import contextlib
import functools
import itertools
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from backend_host.worker._worker import lib as walls

from backend_host.device.control import ControlPage
from backend_host.device.readings import VgpuReading
from backend_host.walls import cgroups
from backend_host.walls.cgroups import Groups
from backend_host.walls.check import walls_of_host
from backend_host.walls.root import root_of_worker
from backend_host.walls.settings import WallSettings
from backend_host.walls.start import Child, Walls
from backend_host.walls.tenants import Tenants
from backend_host.worker_start import WORKER, WorkerStart, worker_environment
from ivshmem.region import ClientState, Region
from tests.backend_host.worker_guest import PRIMARY, ROOT, TABLE_HASH, Guest, wait_for_state

SOFTGPU = ROOT / "build" / "softgpu" / "libcuda.so.1"
SOFTGPU_BYTES = 4 << 30
"""The memory of softgpu's device where nothing is said."""
WALLS = WallSettings(cache_dir=str(ROOT / "build" / "tenants"))
_numbers = itertools.count(1000)
"""Hosts of one process are told apart by numbers that no Gpu has."""


@functools.cache
def walls_here() -> frozenset[str]:
    """The names of all walls that this machine has."""
    return walls_of_host(WALLS, is_lenient=True)


def tenant_of(vgpu: int) -> str:
    """Its name."""
    return f"test-{vgpu}"


class Host:
    """The daemon's part, by hand: a control page, and workers."""

    running: ClassVar[list[Host]] = []
    settings = WALLS
    """Of its walls."""

    def __init__(
        self,
        library: Path,
        environment: Mapping[str, str] | None = None,
        slice_ns: int = 6_000_000,
        start: Sequence[str] = WORKER,
        *,
        is_preemptive: bool = False,
        shared: Sequence[Path] = (),
    ) -> None:
        """`shared`: folders of the test's that workers find and may write, too."""
        self.state = tempfile.TemporaryDirectory(prefix="fairgv-worker-")  # a device of its own
        self.worker_start = self._worker_start(library, environment or {}, start, shared)
        self.control = ControlPage.create(slice_ns, is_preemptive=is_preemptive)
        self.workers: list[Worker] = []
        self.memory = "driver"
        self.running.append(self)

    def _worker_start(
        self, library: Path, environment: Mapping[str, str], program: Sequence[str], shared: Sequence[Path]
    ) -> WorkerStart:
        """As the daemon's, with all walls that this machine has; each vGPU is a tenant of its own."""
        names = walls_here()
        own = {
            "FAIRGV_SOFTGPU_STATE": f"{self.state.name}/device",
            "FAIRGV_SOFTGPU_WALL": "1",
            "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
        }
        variables = worker_environment({**os.environ, **own, **environment}, names, self.settings.cache_bytes)
        root = root_of_worker("soft", str(library), [], variables, self.settings.cache_path)
        root.read(SOFTGPU.parent, ROOT / "tests")
        for folder in shared:
            folder.chmod(0o777)
            root.add(walls.FGW_WALLS_CACHES, str(folder), str(folder))
        return WorkerStart(
            library=str(library),
            ordinal=0,
            kind="soft",
            walls=Walls(names, self.settings, SOFTGPU_BYTES),
            root=root,
            environment=variables,
            tenants=Tenants(self.settings) if "user" in names else None,
            groups=Groups(cgroups.find(), next(_numbers)) if "cgroup" in names else None,
            memory_bytes=self.settings.memory_bytes + SOFTGPU_BYTES,
            program=program,
        )

    def start(self, region: Region, client: int, vgpu: int, bells: Sequence[int] = (), **changes: Any) -> Worker:
        """A worker process for a client in HELLO. `bells`: its own, and those of the guest."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        slot = self.control.worker_take()
        errors = Path(self.state.name, f"errors-{len(self.workers)}")
        with its, errors.open("wb") as file:
            process = self.worker_start.spawn(its.fileno(), slot, file.fileno())
        self.worker_start.join(process, vgpu, region.region_bytes)
        message = {
            "region_bytes": region.region_bytes,
            "table_hash": TABLE_HASH,
            "client": client,
            "vgpu": vgpu,
            "slot": slot,
            "device": 0,
            "walls": self.worker_start.message(tenant_of(vgpu)),
            **changes,
        }
        self.control.worker_assign(slot, process.pid, vgpu, client)
        with self.control.for_worker(vgpu, slot) as page:
            descriptors = array.array("i", [region.fileno(), *page, *bells])
            mine.sendmsg([json.dumps(message).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        self.workers.append(Worker(process, mine, slot, vgpu, errors))
        return self.workers[-1]

    def ends(self) -> str:
        """A line for each worker, and what those that have ended said."""
        lines = []
        for worker in self.workers:
            has_ended = worker.process.has_ended()
            lines.append(f"{worker.slot} {f'ended: {worker.process.wait()}' if has_ended else 'runs'}")
            if has_ended:
                lines.append(worker.errors())
                with contextlib.suppress(OSError):  # it was heard, or said nothing
                    worker.socket.setblocking(False)
                    lines.append(worker.socket.recv(65536).decode())
        return "\n".join(lines)

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            worker.process.close()
            worker.socket.close()
            self.worker_start.leave(worker.process)
        self.running.remove(self)
        self.control.close()
        self.state.cleanup()


@dataclass
class Worker:
    """A running worker process, its socket and its slot."""

    process: Child
    socket: socket.socket
    slot: int
    vgpu: int
    said: Path

    def errors(self) -> str:
        """What it wrote to standard error, once it has ended."""
        self.process.wait()
        return self.said.read_text(errors="replace")

    def ended(self, timeout_s: float = 60) -> dict[str, Any]:
        """What it said when it ended, or why it said nothing."""
        self.socket.settimeout(timeout_s)
        message = self.socket.recv(65536)
        while message and not message.startswith(b"{"):  # of its vGPU's shelf
            message = self.socket.recv(65536)
        assert self.process.has_ended(timeout_s)
        self.process.wait()
        self.socket.close()
        assert message, self.errors()
        told: dict[str, Any] = json.loads(message)
        return told


class Served:
    """A guest with its worker."""

    def __init__(
        self,
        host: Host,
        region: Region,
        quota_bytes: int = 0,
        *,
        address: int = Guest.ADDRESS,
        prepare: Callable[[int], None] = lambda _: None,
        **changes: Any,
    ) -> None:
        """`address`: of the region in the guest; `prepare`: what the daemon decides before the worker begins; `changes`: of what the
        worker is told."""
        self.host, self.region = host, region
        self.vgpu = host.control.vgpu_take(quota_bytes)
        prepare(self.vgpu)
        self.guest = Guest(region, address=address)
        self.worker: Worker = host.start(region, 0, self.vgpu, **self.told(changes))
        assert wait_for_state(region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY

    def told(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What the worker is told beside what all are, once there is a guest."""
        return changes

    def primary(self) -> Guest:
        self.guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        return self.guest

    def account(self) -> VgpuReading:
        """Of its vGPU, so far."""
        reading = self.host.control.vgpu(self.vgpu)
        assert reading is not None
        return reading

    def gpu_ns(self) -> int:
        """What its vGPU was charged so far."""
        return self.account().used_ns
