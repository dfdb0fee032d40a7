"""A drained Gpu takes no vGPU, says so, and stays drained for the next daemon."""

import json
from pathlib import Path

import pytest

from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu
from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.move.drains import FILE, Drains
from backend_host.vgpus import VGpuRegistry
from tests.backend_host.test_gpu import devices, gpus
from tests.backend_host.test_rehousing import opened, registry

__all__ = ["devices", "gpus", "registry"]  # fixtures


def test_no_vgpu_comes_to_it(registry: VGpuRegistry, gpus: list[Gpu], tmp_path: Path) -> None:
    drains = Drains(tmp_path, gpus)
    drains.set(gpus[1], is_drained=True)
    assert [opened(registry, name).gpu.number for name in "abcd"] == [0, 2, 0, 2]
    with pytest.raises(RefusedError, match=r"^GPU 1 is drained \(until fairgv-host undrain 1\)$"):
        opened(registry, "e", Entitlement(gpu="1"))
    statistics, _ = registry.snapshot()
    assert [gpu.is_drained for gpu in statistics] == [False, True, False]
    assert statistics[1].is_ready, "what is there goes on"
    drains.set(gpus[1], is_drained=False)
    assert opened(registry, "e").gpu is gpus[1]


def test_who_fits_on_no_other_is_told_of_each(registry: VGpuRegistry, gpus: list[Gpu], tmp_path: Path) -> None:
    drains = Drains(tmp_path, gpus)
    for gpu in gpus[:2]:
        drains.set(gpu, is_drained=True)
    opened(registry, "a", Entitlement(request=95.0))
    with pytest.raises(
        RefusedError,
        match=r"^GPU 0 is drained \(until .* 0\); GPU 1 is drained \(until .* 1\); GPU 2 has 5 % left for requests, where 10 % are",
    ):
        opened(registry, "b", Entitlement(request=10.0))


def test_vgpus_of_a_gpu_that_fails_do_not_go_there(registry: VGpuRegistry, gpus: list[Gpu], tmp_path: Path) -> None:
    vgpu = opened(registry, "it")
    Drains(tmp_path, gpus).set(gpus[1], is_drained=True)
    gpus[0].ward.failure = lost = Failure("Xid 79")
    registry.gpu_failed(gpus[0], lost)
    assert vgpu.gpu is gpus[2]


def test_it_holds_for_the_next_daemon(gpus: list[Gpu], tmp_path: Path) -> None:
    """Also of a device that is not there now."""
    (tmp_path / FILE).write_text(json.dumps(["GPU-elsewhere"]))
    drains = Drains(tmp_path, gpus)
    drains.set(gpus[2], is_drained=True)
    drains.set(gpus[0], is_drained=True)
    drains.set(gpus[0], is_drained=False)
    gpus[2].is_drained = False
    Drains(tmp_path, gpus)
    assert [gpu.is_drained for gpu in gpus] == [False, False, True]
    assert json.loads((tmp_path / FILE).read_text()) == sorted(["GPU-elsewhere", gpus[2].device.uuid])


@pytest.mark.parametrize("text", ["", "{", "7", "null"])
def test_a_file_that_is_none_of_ours_drains_nobody(
    text: str, gpus: list[Gpu], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    Drains(tmp_path, gpus)
    assert not any(gpu.is_drained for gpu in gpus)
    assert "no GPU is drained any more, until fairgv-host drain says so" in caplog.text


def test_what_cannot_be_written_down_is_not_done(gpus: list[Gpu], tmp_path: Path) -> None:
    drains = Drains(tmp_path / "gone", gpus)
    with pytest.raises(FairGVError, match="cannot write to"):
        drains.set(gpus[0], is_drained=True)
    assert not gpus[0].is_drained


def test_who_was_to_be_there_comes_back_as_the_daemon_begins(
    registry: VGpuRegistry, gpus: list[Gpu], tmp_path: Path
) -> None:
    """Else a file of vgpus.d that names the Gpu would keep the daemon from its start, and nobody could undrain it."""
    Drains(tmp_path, gpus).set(gpus[0], is_drained=True)
    registry.is_beginning = True
    assert opened(registry, "any").gpu is gpus[1]
    assert opened(registry, "bound", Entitlement(gpu="0")).gpu is gpus[0]
