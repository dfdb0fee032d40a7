"""A libvirt that is played, and the daemon's view of its domains, on two Gpus of softgpu."""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host import domains
from backend_host.config import Config
from backend_host.device.gpu import serving
from backend_host.devices import probe
from backend_host.domains import Domains
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.statistics import VGpuStatistics
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.domain import Attachment, Sight
from backend_host.vm.doorbell import Doorbells
from backend_host.vm.region_file import RegionOwner, remove_region_file

NR_GPUS = 2
REGION_BYTES = 16 << 20
ME = (os.geteuid(), os.getegid())
OFF = -1
LIMIT_S = 10
"""After which something hangs."""


class Played:
    """A libvirt with one domain, and the daemon's view of it."""

    def __init__(self, registry: VGpuRegistry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder
        self.domains = self.another()
        self.shm_name = f"fairgv-test-{os.getpid()}"
        self.sights: list[Sight] = []

    def another(self, *, adopts_all: bool = True) -> Domains:
        return Domains(
            *(self.registry, "played", self.folder, adopts_all, Doorbells(self.folder / "doorbells", ME), PLAIN, 0)
        )

    def restart(self) -> None:
        """The next daemon, which has this one's vGPUs and has not looked yet."""
        for vgpu in self.registry._vgpus.values():
            vgpu.is_unclaimed, vgpu.caretaker.is_paused = True, lambda: True
        self.domains = self.another()

    def is_claimed(self) -> bool:
        [vgpu] = self.registry._vgpus.values()
        return not vgpu.is_unclaimed

    def written(self) -> object:
        return json.loads((self.folder / "domains.json").read_text())

    def vgpu(self, entitlement: Entitlement, run_id: int = OFF) -> VGpuStatistics:
        """The vGPU, after a look at the domain: with this in its definition, off or in its run of that number."""
        attachment = Attachment(
            domain="vm",
            uuid="uuid",
            shm_name=self.shm_name,
            region_bytes=REGION_BYTES,
            entitlement=entitlement,
            is_running=run_id != OFF,
            is_paused=False,
            run_id=run_id,
            takes_effect="now",
            owner=RegionOwner(*ME),
            has_own_scheduling=True,
        )
        self.sights = [Sight("uuid", "vm", attachment.is_running, attachment.is_running, attachment)]
        self.domains._look(None)
        [found] = [vgpu for vgpu in self.registry.statistics() if vgpu.kind == "domain"]
        return found


def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """For a fixture."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", str(NR_GPUS))
    config = Config(state_dir=tmp_path, nr_warm_workers=0)
    with contextlib.ExitStack() as stack:
        devices = probe("soft", config.softgpu_library)
        gpus = [
            stack.enter_context(serving(number, device, config, frozenset(), None))
            for number, device in enumerate(devices)
        ]
        registry = VGpuRegistry(gpus, table_hash=7)
        stack.callback(registry.remove_all)
        played = Played(registry, tmp_path)
        stack.callback(remove_region_file, played.shm_name)
        stack.callback(remove_region_file, f"{played.shm_name}-other")
        monkeypatch.setattr(domains, "look_at_all", lambda _uri, _unsaid: played.sights)
        yield played


@contextlib.contextmanager
def looking(played: Played) -> Iterator[None]:
    """The thread, told of the domain."""
    thread = threading.Thread(target=played.domains._run)
    thread.start()
    try:
        played.domains._to_look_at.put("uuid")
        yield
    finally:
        played.domains._is_stopping = True
        played.domains._to_look_at.put(None)
        thread.join()


@contextlib.contextmanager
def answering(_uri: str) -> Iterator[None]:
    """A libvirtd that takes a connection."""
    yield


def fails(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail
