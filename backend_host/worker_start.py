"""What each worker of a Gpu starts with: its program and environment, its walls, and what it is told of them with its guest.

Wrong when: a device library reads a variable that is not of the families below. The daemon's other variables are not for a worker that a
guest may take over.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT, Config
from backend_host.devices import Device
from backend_host.walls.cgroups import Groups
from backend_host.walls.root import CACHE_AT, Root, nvidia_node, root_of_worker
from backend_host.walls.start import Child, Walls
from backend_host.walls.tenants import Tenants

WORKER = ("-m", "backend_host.worker.main")
_KEPT_IMAGE_BYTES = 1 << 30
"""Where a vGPU may have as many bytes of images as it likes."""
_PASSED_ON = re.compile(r"FAIRGV_|CUDA_|NVIDIA_|LD_|LC_|LANG$|PATH$|TZ$|PYTHON|[A-Z]+SAN_OPTIONS$|MALLOC_")


@dataclass(frozen=True)
class WorkerStart:
    """Of one Gpu. `tenants` is None where workers stay who they are, and keep no compiled code; `groups` where there is no cgroup."""

    library: str
    ordinal: int
    kind: str
    walls: Walls
    root: Root
    environment: Mapping[str, str]
    tenants: Tenants | None
    groups: Groups | None
    memory_bytes: int = 0
    """What the workers of a vGPU may have beside the region."""
    program: Sequence[str] = field(default=WORKER)
    """For Python."""
    sees: str = ""
    """UUIDs of the devices that a worker can go to without a checkpoint, as it counts them from its start; "": it sees its own alone."""
    other_nodes: tuple[str, ...] = ()
    """Of those: what its root has until it knows its guest."""
    kept_image_bytes: int = 0
    """Of modules' images, that it keeps for that."""
    tenant: str = ""
    """Whose all its workers are, from their start on; "": of whom each is, its guest says."""

    def spawn(self, socket_fd: int, slot: int, error_fd: int = -1) -> Child:
        """A worker that waits for a guest. Raises OSError."""
        command = [sys.executable, *self.program, "--socket", str(socket_fd), "--library", self.library]
        command += ["--device", str(self.ordinal), "--slot", str(slot)]
        command += ["--fast-moves", str(self.kept_image_bytes)] if self.sees else []
        command += ["--tenant", json.dumps(self._tenant(self.tenant))] if self.tenant else []
        child = self.walls.start(
            command, self.environment, self.root, folder=str(PACKAGE_ROOT), kept_fd=socket_fd, error_fd=error_fd
        )
        if self.groups is not None:
            try:
                self.groups.begin(child.pid, self.memory_bytes, self.walls.settings.processes)
            except OSError:
                child.kill()
                child.wait()
                self.leave(child)
                child.close()
                raise
        return child

    def message(self, tenant_name: str) -> dict[str, Any]:
        """What the worker is told of its walls: the fields of `struct fgw_walls_tenant` (enter.h). Raises OSError."""
        return self._tenant(self.tenant or tenant_name) | {"is_there": bool(self.tenant)}

    def _tenant(self, name: str) -> dict[str, Any]:
        tenant = self.tenants.take(name) if self.tenants is not None else None
        return {
            "cache": tenant.name if tenant is not None and "mount" in self.walls.names else None,
            "uid": tenant.uid if tenant is not None else 0,
            "is_soft": self.kind == "soft",
            "has_filter": "filter" in self.walls.names,
            "nodes": list(self.other_nodes) if "mount" in self.walls.names else [],
        }

    def join(self, worker: Child, vgpu: int, region_bytes: int) -> str:
        """Puts it into the cgroup of its vGPU, whose name it gives; "" where there is none. Raises OSError."""
        if self.groups is None:
            return ""
        memory_bytes = self.memory_bytes + region_bytes
        return self.groups.take(worker.pid, vgpu, memory_bytes, self.walls.settings.processes).name

    def allow(self, vgpu: int, more_bytes: int) -> None:
        """Lets the workers of this vGPU have so many bytes more together than those of one without a region. Raises OSError."""
        if self.groups is not None:
            self.groups.allow(vgpu, self.memory_bytes + more_bytes, self.walls.settings.processes)

    def take_over(self, before: "WorkerStart", worker: Child, vgpu: int, more_bytes: int) -> str:
        """One that serves on another Gpu becomes one of this vGPU, whose workers may have so many bytes more together than those of one without
        a region. The name of its cgroup, "" where it has none."""
        if self.groups is None or before.groups is None:
            return ""
        processes = self.walls.settings.processes
        return self.groups.take_over(worker.pid, vgpu, before.groups, self.memory_bytes + more_bytes, processes)

    def adopt(self, worker: Child, vgpu: int, group: str) -> None:
        """One of this vGPU that an earlier daemon put into the cgroup of this name."""
        if self.groups is not None:
            self.groups.adopt(worker.pid, vgpu, group)

    def leave(self, worker: Child) -> None:
        """For one that has ended: the counterpart of `spawn` and `join`."""
        if self.groups is not None:
            self.groups.leave(worker.pid)


def worker_start(
    device: Device,
    config: Config,
    names: frozenset[str],
    groups: Groups | None,
    more: Mapping[str, str] | None = None,
    *,
    swap_bytes: int = 0,
    peers: Sequence[Device] = (),
) -> WorkerStart:
    """For workers of this device behind the walls with these names; `more`: variables of theirs; `swap_bytes`: what they may have in the host's
    memory of the device's; `peers`: all devices that are served, this one, too."""
    environment = worker_environment({**os.environ, **(more or {})}, names, config.walls.cache_bytes)
    seen = [each for each in peers if each.uuid != device.uuid] if config.fast_moves else []
    seen = sorted([device, *seen], key=lambda each: each.ordinal)
    ordinal = device.ordinal
    uuids = ",".join(each.uuid for each in seen)
    if device.kind == "cuda" or len(seen) > 1:  # no others: they have no device node
        environment["CUDA_VISIBLE_DEVICES"] = uuids
        ordinal = seen.index(device)
    kept_image_bytes = (config.limits.image_bytes or _KEPT_IMAGE_BYTES) if len(seen) > 1 else 0
    tenants = Tenants(config.walls) if "user" in names else None
    soft_bytes = device.memory_bytes if device.kind == "soft" else 0
    addresses = [each.pci_bus_id for each in seen]
    return WorkerStart(
        library=device.path,
        ordinal=ordinal,
        kind=device.kind,
        walls=Walls(names, config.walls, soft_bytes),
        root=root_of_worker(device.kind, device.path, addresses, environment, config.walls.cache_path),
        environment=environment,
        tenants=tenants,
        groups=groups,
        memory_bytes=config.walls.memory_bytes + config.pinned_bytes + soft_bytes + swap_bytes + kept_image_bytes,
        sees=uuids if len(seen) > 1 else "",
        other_nodes=_other_nodes(device, seen) if device.kind == "cuda" else (),
        kept_image_bytes=kept_image_bytes,
    )


def _other_nodes(device: Device, seen: Sequence[Device]) -> tuple[str, ...]:
    """Those that can be taken away, and lent again."""
    nodes = [nvidia_node(each.pci_bus_id) for each in seen if each is not device]
    return tuple(node for node in nodes if node is not None)


def worker_environment(ours: Mapping[str, str], names: frozenset[str], cache_bytes: int) -> dict[str, str]:
    """
    What a worker gets of the daemon's variables, and where behind its walls compiled code is kept. Of what a tenant may have the device library
    keeps half, unless the daemon's variables say otherwise, so that an honest one never comes near the bound at which it would lose all.
    """
    passed_on = {name: value for name, value in ours.items() if _PASSED_ON.match(name)}
    if not {"mount", "user"} <= names:
        return {**passed_on, "PYTHONDONTWRITEBYTECODE": "1"}
    kept = str(cache_bytes // 2)
    bounds = {"FAIRGV_SOFTGPU_CACHE_BYTES": kept, "CUDA_CACHE_MAXSIZE": kept}
    places = {"HOME": CACHE_AT, "FAIRGV_SOFTGPU_CACHE": f"{CACHE_AT}/softgpu", "CUDA_CACHE_PATH": f"{CACHE_AT}/cuda"}
    return {**bounds, **passed_on, "PYTHONDONTWRITEBYTECODE": "1", **places}


def is_open_to_others(path: Path) -> bool:
    """Whether any user may enter every folder on the way to `path`, and `path` itself."""
    path = path.resolve()
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
