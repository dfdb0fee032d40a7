"""vGPUs that the daemon keeps by files of vgpus.d: what of one stays while it is there, whatever its file says."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backend_host.config import Config
from backend_host.device.gpu import serving
from backend_host.devices import probe
from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.machines import Machines
from backend_host.service.kept import KeptVGpu, KeptVGpus
from backend_host.space import space as space_module
from backend_host.vgpus import VGpuRegistry

REGION_BYTES = 16 << 20
IN_ONE = KeptVGpu("web", 1000, Entitlement(space="one"), REGION_BYTES)
OTHERS = {
    "user": dataclasses.replace(IN_ONE, uid=1001),
    "region_bytes": dataclasses.replace(IN_ONE, region_bytes=2 * REGION_BYTES),
    "gpu": dataclasses.replace(IN_ONE, entitlement=Entitlement(space="one", gpu="0")),
    "space": dataclasses.replace(IN_ONE, entitlement=Entitlement(space="another")),
}
"""By what differs."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VGpuRegistry]:
    """Of a Gpu whose spaces have no processes."""
    monkeypatch.setattr(space_module, "_ATTEMPTS", 1)
    monkeypatch.setattr(space_module, "_BETWEEN_S", 0.0)
    [device] = probe("soft", Config().softgpu_library)
    config = Config(state_dir=tmp_path, nr_warm_workers=0, space="mps")
    with serving(0, dataclasses.replace(device, path="none"), config, frozenset(), None) as gpu:
        registry = VGpuRegistry([gpu], 7)
        yield registry
        registry.remove_all()


def kept_by(registry: VGpuRegistry) -> KeptVGpus:
    """Nobody's machines are beside them."""
    return KeptVGpus(registry, cast(Machines, SimpleNamespace(kept={}, keep=lambda _: None)))


@pytest.mark.parametrize("key", OTHERS)
def test_what_is_for_life_is_not_read_again(registry: VGpuRegistry, key: str) -> None:
    kept = kept_by(registry)
    kept.swap({"web": IN_ONE})
    with pytest.raises(RefusedError, match=f"^the vGPU web keeps its {key} while it is there: take its file away"):
        kept.swap({"web": OTHERS[key]})
    vgpu = registry.named("web")
    assert (vgpu.entitlement, vgpu.uid) == (IN_ONE.entitlement, IN_ONE.uid)
    assert vgpu.gpu.spaces.holds("one")
    assert not vgpu.gpu.spaces.holds("another")


@pytest.mark.parametrize("key", ["user", "gpu", "space"])
def test_one_that_is_another_after_a_restart_begins_anew(registry: VGpuRegistry, key: str) -> None:
    kept_by(registry).swap({"web": IN_ONE})
    before = registry.named("web")
    before.is_unclaimed = True
    kept_by(registry).swap({"web": OTHERS[key]})
    now = registry.named("web")
    assert now is not before
    assert (now.entitlement, now.uid) == (OTHERS[key].entitlement, OTHERS[key].uid)


def test_nobody_else_changes_it_either(registry: VGpuRegistry) -> None:
    kept_by(registry).swap({"web": IN_ONE})
    with pytest.raises(RefusedError, match=r"^web keeps its gpu and space while it is there$"):
        registry.change("web", {"gpu": "0", "space": "another", "weight": 2})
    assert registry.named("web").entitlement == IN_ONE.entitlement


def test_what_a_file_leaves_out_stays_as_it_is(registry: VGpuRegistry) -> None:
    """Whatever new ones get by now; also after a restart, which would end its programs otherwise."""
    kept = kept_by(registry)
    kept.swap({"web": IN_ONE})
    vgpu = registry.named("web")
    now = KeptVGpu(
        *("web", 1000, Entitlement(weight=3, space="another", gpu="0"), 2 * REGION_BYTES),
        unsaid=frozenset({"space", "gpu", "region_bytes"}),
    )
    assert kept.swap({"web": now}) == {
        "web": dataclasses.replace(IN_ONE, entitlement=Entitlement(weight=3, space="one"))
    }
    vgpu.is_unclaimed = True
    kept_by(registry).begin({"web": now})
    assert registry.named("web") is vgpu
    assert vgpu.entitlement == Entitlement(weight=3, space="one")


def test_what_does_not_go_with_what_stays_is_refused(registry: VGpuRegistry) -> None:
    kept = kept_by(registry)
    kept.swap({"web": dataclasses.replace(IN_ONE, entitlement=Entitlement())})
    best_effort = Entitlement(space="one", vgpu_class="best-effort")
    with pytest.raises(RefusedError, match="keeps its space while it is there"):
        kept.swap({"web": dataclasses.replace(IN_ONE, entitlement=best_effort, unsaid=frozenset({"space"}))})
