"""Domains by what their definitions say, libvirt played: which Gpu a domain's vGPU is on, and when it goes elsewhere."""

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
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
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import RegionOwner, remove_region_file
from ivshmem.region import survive_cuts
from tests.end_to_end.host import wait_until

NR_GPUS = 2
REGION_BYTES = 16 << 20
ME = (os.geteuid(), os.getegid())
OFF = -1


class Played:
    """A libvirt with one domain, and the daemon's view of it."""

    def __init__(self, registry: VGpuRegistry, folder: Path) -> None:
        self.registry = registry
        self.domains = Domains(registry, "played", folder, True, Doorbells(folder / "doorbells", ME), PLAIN, 0)
        self.shm_name = f"fairgv-test-{os.getpid()}"
        self.sights: list[Sight] = []

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
        [found] = self.registry.statistics()
        return found


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
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
        monkeypatch.setattr(domains, "look_at_all", lambda _uri, _unsaid: played.sights)
        yield played


def test_a_domain_goes_to_another_gpu_at_its_next_start(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    assert played.vgpu(PLAIN).gpu_number == 0
    assert played.domains.uuids() == {"vm": "uuid"}
    assert played.vgpu(Entitlement(gpu="1")).gpu_number == 1, "one that is off has no program that could mind"
    assert played.vgpu(Entitlement(gpu="1"), run_id=5).gpu_number == 1
    changed = played.vgpu(Entitlement(weight=3, gpu="0"), run_id=5)
    assert (changed.gpu_number, changed.weight) == (1, 3), "the rest follows at once"
    assert played.vgpu(Entitlement(weight=3, gpu="0"), run_id=6).gpu_number == 0
    assert "ERROR" not in caplog.text


def test_a_domain_on_a_gpu_that_is_not_there(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    before = played.vgpu(Entitlement(gpu="1"), run_id=5)
    with pytest.raises(ValueError, match="not enough values"):
        played.vgpu(Entitlement(gpu="7"), run_id=6)
    assert "domain vm is not served: no Gpu of this host is called '7'" in caplog.text
    after = played.vgpu(Entitlement(gpu="1"), run_id=6)
    assert dataclasses.replace(after, region_free_bytes=before.region_free_bytes) == before


def test_what_definitions_leave_out_follows_the_configuration(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    assert played.vgpu(PLAIN, run_id=5).weight == 1

    def look_at_all(_uri: str, unsaid: Entitlement) -> list[Sight]:
        [sight] = played.sights
        assert sight.attachment is not None
        return [dataclasses.replace(sight, attachment=dataclasses.replace(sight.attachment, entitlement=unsaid))]

    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    played.domains.follow(Entitlement(weight=4))
    played.domains._look(None)
    [found] = played.registry.statistics()
    assert found.weight == 4


def test_a_region_that_was_cut_short_is_another_at_the_next_start(played: Played) -> None:
    survive_cuts()  # as the daemon does
    played.vgpu(PLAIN, run_id=5)
    path = Path("/dev/shm") / played.shm_name
    os.truncate(path, 0)
    played.vgpu(PLAIN, run_id=5)
    assert played.registry.cut_short() == {"vm"}
    assert played.vgpu(PLAIN, run_id=6).region_bytes == REGION_BYTES
    assert played.registry.cut_short() == frozenset()
    assert path.stat().st_size == REGION_BYTES


def test_a_look_that_failed_is_made_again(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody calls for one when libvirt, which was there all the time, did not answer once. Meanwhile nothing changes."""
    before = played.vgpu(PLAIN, run_id=5)
    played.sights = [dataclasses.replace(sight, name="renamed") for sight in played.sights]
    looks: list[str] = []

    def look_at_all(_uri: str, _unsaid: Entitlement) -> list[Sight]:
        looks.append(played.registry.statistics()[0].name)
        if len(looks) < 3:
            raise VmError("it is busy")
        return played.sights

    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    monkeypatch.setattr(domains, "_AGAIN_S", 0.01)
    thread = threading.Thread(target=played.domains._run)
    thread.start()
    try:
        played.domains._to_look_at.put("uuid")
        wait_until(lambda: played.registry.statistics()[0].name == "renamed", "it was looked at again")
    finally:
        played.domains._is_stopping = True
        played.domains._to_look_at.put(None)
        thread.join()
    assert looks == [before.name] * 3
    assert caplog.text.count("cannot look at domains, and tries again: it is busy") == 1
    assert played.domains._unseen_for == ""
