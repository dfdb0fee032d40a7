"""Gpus of one daemon: which one a vGPU gets, what each counts, and that what happens on one is no concern of another."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_host.worker._worker import lib

from backend_host.config import Config
from backend_host.device.control import MAX_VGPUS
from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu, find, place, serving
from backend_host.devices import Device, probe
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.errors import RefusedError
from backend_host.space import space as space_module
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from scheduler.placement import Known
from tests.backend_host.grantees import attach

NR_GPUS = 3
REGION_BYTES = 16 << 20
TABLE_HASH = 7
ME = 1000


class Player:
    """A worker of a vGPU."""

    def __init__(self, vgpu: VGpu) -> None:
        self.page, self.vgpu = vgpu.gpu.page, vgpu.index
        self.slot, self.grantee = attach(self.page, self.vgpu)

    def enter(self) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, time.monotonic_ns()))

    def charge(self, used_ns: int) -> None:
        lib.fgw_grant_charge(self.grantee, 0, used_ns)

    def end(self) -> None:
        self.page.worker_free(self.slot)


@pytest.fixture(scope="module")
def devices() -> list[Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRGV_SOFTGPU_DEVICES", str(NR_GPUS))
        return probe("soft", Config().softgpu_library)


@pytest.fixture
def gpus(devices: list[Device], tmp_path: Path) -> Iterator[list[Gpu]]:
    config = Config(state_dir=tmp_path, nr_warm_workers=0)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(serving(number, device, config, frozenset(), None))
            for number, device in enumerate(devices)
        ]


@pytest.fixture
def registry(gpus: list[Gpu]) -> Iterator[VGpuRegistry]:
    registry = VGpuRegistry(gpus, TABLE_HASH)
    yield registry
    registry.remove_all()


@pytest.fixture
def with_spaces(
    devices: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[list[Gpu], VGpuRegistry]]:
    """Gpus that may have spaces, and vGPUs there; of no library, so that MPS serves none of them."""
    monkeypatch.setattr(space_module, "_ATTEMPTS", 1)
    monkeypatch.setattr(space_module, "_BETWEEN_S", 0.0)
    config = Config(state_dir=tmp_path, nr_warm_workers=0, space="mps")
    with contextlib.ExitStack() as stack:
        gpus = [
            stack.enter_context(serving(number, dataclasses.replace(device, path="none"), config, frozenset(), None))
            for number, device in enumerate(devices)
        ]
        registry = VGpuRegistry(gpus, TABLE_HASH)
        stack.callback(registry.remove_all)
        yield gpus, registry


def opened(registry: VGpuRegistry, entitlement: Entitlement = PLAIN) -> VGpu:
    return registry.open_session(None, entitlement, REGION_BYTES, ME)


def test_requests_on_a_gpu_are_no_more_than_all_of_it(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    first = registry.open_session("first", Entitlement(gpu="1", request=60.0), REGION_BYTES, ME)
    second = registry.open_session("second", Entitlement(gpu="1", request=30.5), REGION_BYTES, ME)
    with pytest.raises(
        RefusedError,
        match=r"^--request 10 % .* GPU 1 has left: 9\.5 %, as 90\.5 % are requested \(first 60 %, second 30\.5 %\)$",
    ):
        opened(registry, Entitlement(gpu="1", request=10.0))
    with pytest.raises(RefusedError, match=r"GPU 1 has left: 40 %, as 60 % are requested \(first 60 %\)$"):
        registry.change(second.name, {"request": 40.1})
    assert second.entitlement.request == 30.5
    registry.change(second.name, {"request": 40.0})
    assert opened(registry, Entitlement(gpu="1")).gpu is gpus[1]
    registry.change(first.name, {"request": 0.0})
    assert opened(registry, Entitlement(gpu="1", request=60.0)).gpu is gpus[1]


def test_one_that_requests_leave_nothing_to_is_told(registry: VGpuRegistry, caplog: pytest.LogCaptureFixture) -> None:
    first, *_ = (registry.open_session(name, Entitlement(gpu="1", request=50.0), REGION_BYTES, ME) for name in "ab")
    registry.open_session("elsewhere", Entitlement(gpu="2"), REGION_BYTES, ME)
    assert registry.request_troubles() == []
    registry.open_session("poor", Entitlement(gpu="1", weight=9), REGION_BYTES, ME)
    [trouble] = registry.request_troubles()
    assert trouble.startswith("GPU 1: requests take all of it (a 50 %, b 50 %): poor gets next to nothing while those")
    assert caplog.messages.count(trouble) == 1
    registry.open_session("other", Entitlement(gpu="1"), REGION_BYTES, ME)
    [trouble] = registry.request_troubles()
    assert "): other, poor get next to nothing" in trouble
    registry.change(first.name, {"request": 49.9})
    assert registry.request_troubles() == []
    caplog.clear()
    registry.change(first.name, {"request": 50.0})
    assert caplog.messages[-1] == trouble


def test_a_request_goes_to_a_gpu_that_has_room_for_it(registry: VGpuRegistry) -> None:
    first = opened(registry, Entitlement(gpu="0", request=90.0))
    heavy = [opened(registry, Entitlement(weight=9, gpu=gpu)) for gpu in ("1", "2")]
    found = opened(registry, Entitlement(request=20.0))
    assert found.gpu.number == heavy[0].gpu.number, "GPU 0 has less weight, and no room"
    assert first.gpu.number == 0


def test_a_policy_that_knows_no_requests_is_named_with_the_remedy(devices: list[Device], tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path, nr_warm_workers=0, policy="fair")
    with serving(0, devices[0], config, frozenset(), None) as gpu:
        registry = VGpuRegistry([gpu], TABLE_HASH)
        with pytest.raises(
            RefusedError, match=r"^--request: the policy fair of GPU 0 knows no requests; .* --policy elastic$"
        ):
            opened(registry, Entitlement(request=10.0))
        vgpu = opened(registry, Entitlement(limit=10.0))
        assert gpu.page.vgpu(vgpu.index).limit_permille == 100  # type: ignore[union-attr]
        registry.remove_all()


def test_a_request_that_was_there_before_the_policy_forbids_no_other_change(
    devices: list[Device], tmp_path: Path
) -> None:
    config = Config(state_dir=tmp_path, nr_warm_workers=0, policy="fair")
    with serving(0, devices[0], config, frozenset(), None) as gpu:
        registry = VGpuRegistry([gpu], TABLE_HASH)
        vgpu = opened(registry, PLAIN)
        vgpu.entitlement = Entitlement(request=30.0)  # as a daemon before made it
        registry.change(vgpu.name, {"weight": 3})
        assert vgpu.entitlement == Entitlement(weight=3, request=30.0)
        with pytest.raises(RefusedError, match=r"^--request: the policy fair of GPU 0 knows no requests"):
            registry.change(vgpu.name, {"request": 20.0})
        registry.change(vgpu.name, {"request": 0.0})
        registry.remove_all()


def test_bounds_reach_the_page_and_the_policy(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    one, other = (opened(registry, Entitlement(gpu="0")) for _ in range(2))
    players = [Player(vgpu) for vgpu in (one, other)]
    registry.change(one.name, {"request": 20.0, "limit": 25.0})
    reading = gpus[0].page.vgpu(one.index)
    assert reading is not None
    assert reading.limit_permille == 250
    assert players[0].enter()
    assert not players[1].enter()
    for player in players:
        player.charge(1_000_000)
    gpus[0].keeper.step(time.monotonic_ns())
    before = [gpus[0].page.standing(vgpu.index) for vgpu in (one, other)]
    for player in players:
        player.charge(2_000_000)
    grown = [gpus[0].page.standing(vgpu.index) - was for vgpu, was in zip((one, other), before, strict=True)]
    assert grown[0] / grown[1] == pytest.approx(3, rel=0.01), "a quarter and three quarters of the GPU"
    for player in players:
        player.end()


def test_a_vgpu_goes_where_the_least_weight_is(registry: VGpuRegistry) -> None:
    weights = [3, 1, 1, 1, 2]
    vgpus = [opened(registry, Entitlement(weight)) for weight in weights]
    assert [vgpu.gpu.number for vgpu in vgpus] == [0, 1, 2, 1, 2], "of equals the one of least number"
    registry.close_session(vgpus[0])
    assert opened(registry).gpu.number == 0
    registry.change(vgpus[1].name, {"weight": 100})
    assert opened(registry, Entitlement(9)).gpu.number == 0
    assert opened(registry).gpu.number == 2, "a weight that was changed counts"


def test_nobody_joins_a_space_on_a_gpu_that_takes_no_vgpu(with_spaces: tuple[list[Gpu], VGpuRegistry]) -> None:
    """Elsewhere there would be two of its name. Those of a Gpu that has failed go where the first of them goes."""
    gpus, registry = with_spaces
    first = opened(registry, Entitlement(space="web"))
    assert first.gpu is gpus[0]
    gpus[0].is_drained = True
    with pytest.raises(RefusedError, match=r"^GPU 0 is drained \(until fairgv-host undrain 0\)$"):
        opened(registry, Entitlement(space="web"))
    assert [gpu.spaces.holds("web") for gpu in gpus] == [True, False, False]
    gpus[0].ward.failure = Failure("Xid 79")
    assert [opened(registry, Entitlement(space="web")).gpu for _ in range(2)] == [gpus[1]] * 2


def test_the_critical_vgpu_of_a_gpu_that_has_failed_goes_elsewhere(with_spaces: tuple[list[Gpu], VGpuRegistry]) -> None:
    """It is there still when its next place is looked for, and is in nobody's way."""
    gpus, registry = with_spaces
    critical = opened(registry, Entitlement(space="web", vgpu_class="critical", qos="1.5"))
    other = opened(registry, Entitlement(space="web", vgpu_class="best-effort"))
    failure = gpus[0].ward.failure = Failure("Xid 79")
    registry.gpu_failed(gpus[0], failure)
    assert registry.stranded() == {}
    assert critical.gpu is other.gpu is not gpus[0]


def test_a_vgpu_goes_where_it_is_asked_for(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    assert opened(registry, Entitlement(gpu="2")).gpu is gpus[2]
    assert opened(registry, Entitlement(gpu=gpus[1].device.uuid)).gpu is gpus[1]
    assert opened(registry, Entitlement(gpu=gpus[1].device.uuid.upper())).gpu is gpus[1]
    for name in ("3", "00", "GPU-0000", "elsewhere"):
        with pytest.raises(RefusedError, match=f"no Gpu of this host is called '{name}'.*fairgv-host devices"):
            opened(registry, Entitlement(gpu=name))
    with pytest.raises(RefusedError, match="several Gpus of this host are called 'GPU-'"):
        find(gpus, "GPU-")
    with pytest.raises(RefusedError, match="no Gpu of this host is called ''"):
        find(gpus[:1], "")
    assert len(registry.statistics()) == 3, "who is refused leaves nothing"


def test_where_one_is_full_another_is_taken(registry: VGpuRegistry) -> None:
    for _ in range(MAX_VGPUS):
        opened(registry, Entitlement(gpu="0"))
    for number in (1, 2):
        opened(registry, Entitlement(weight=10_000, gpu=str(number)))
    assert opened(registry).gpu.number == 1
    with pytest.raises(RefusedError, match=f"all {MAX_VGPUS} vGPUs of the Gpu"):
        opened(registry, Entitlement(gpu="0"))


def test_a_quota_goes_where_other_quotas_leave_room(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    whole = gpus[0].device.memory_bytes
    first = opened(registry, Entitlement(quota_bytes=whole // 2 + 1))
    heavy = [opened(registry, Entitlement(9, whole // 2, number)) for number in "12"]
    found = opened(registry, Entitlement(quota_bytes=whole // 2))
    assert (first.gpu.number, found.gpu.number) == (0, 1), "GPU 0 has less weight, and no room"
    assert opened(registry).gpu.number == 0, "who has no quota is kept out by none"
    registry.close_session(heavy[1])
    assert opened(registry, Entitlement(10, whole)).gpu.number == 2


def test_a_quota_goes_where_it_has_room_for_a_context(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    """Cards of a host may differ."""
    for gpu, context_bytes in zip(gpus, (600 << 20, 400 << 20, 700 << 20), strict=True):
        gpu.device = dataclasses.replace(gpu.device, context_bytes=context_bytes)
    heavy = opened(registry, Entitlement(9, gpu="1"))
    assert opened(registry, Entitlement(quota_bytes=512 << 20)).gpu is heavy.gpu
    with pytest.raises(RefusedError) as raised:
        opened(registry, Entitlement(quota_bytes=64 << 20))
    quota = "out, as a memory quota of 64 MiB has no room for a context, which takes"
    assert str(raised.value) == "; ".join(
        f"GPU {number} is {quota} {size} MiB of GPU {number}: no program could begin"
        for number, size in enumerate((600, 400, 700))
    )
    with pytest.raises(RefusedError, match=r"^a memory quota of 512 MiB has no room for a context, .* GPU 0: no pro"):
        opened(registry, Entitlement(quota_bytes=512 << 20, gpu="0"))


def test_what_each_gpu_lacks_is_told(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    whole = gpus[0].device.memory_bytes
    opened(registry, Entitlement(quota_bytes=whole - (1 << 30), gpu="0"))
    opened(registry, Entitlement(request=95.5, gpu="1"))
    opened(registry, Entitlement(quota_bytes=whole, request=100.0, gpu="2"))
    memory = "1 GiB left for memory quotas, where 2 GiB are asked for (--memory)"
    with pytest.raises(RefusedError) as raised:
        opened(registry, Entitlement(quota_bytes=2 << 30, request=10.0))
    assert str(raised.value) == (
        f"GPU 0 has {memory}; GPU 1 has 4.5 % left for requests, where 10 % are asked for (--request); "
        f"GPU 2 has {memory.replace('1 GiB', '0 B')} and 0 % left for requests, where 10 % are asked for (--request)"
    )
    with pytest.raises(RefusedError) as raised:
        opened(registry, Entitlement(quota_bytes=2 << 30, gpu="0"))
    assert str(raised.value) == f"GPU 0 has {memory}"
    assert len(registry.statistics()) == 3, "who is refused leaves nothing"


def test_known_demand_and_what_is_out_decide(gpus: list[Gpu]) -> None:
    known = {0: Known(0.9), 1: Known(0.4), 2: Known(0.1, "drained")}

    def of(gpu: Gpu) -> Known:
        return known[gpu.number]

    gpu, vgpu = place(gpus, PLAIN, lambda gpu: {}, of)
    assert gpu.number == 1
    gpu.page.vgpu_free(vgpu)
    with pytest.raises(RefusedError, match=r"^GPU 2 is drained$"):
        place(gpus, Entitlement(gpu="2"), lambda gpu: {}, of)


def test_with_one_gpu_quotas_may_sum_to_more_than_there_is(gpus: list[Gpu]) -> None:
    registry = VGpuRegistry(gpus[:1], TABLE_HASH)
    for _ in range(3):
        opened(registry, Entitlement(quota_bytes=gpus[0].device.memory_bytes))
    registry.remove_all()


def test_each_vgpu_is_told_of_its_own_device(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    for gpu in gpus:
        vgpu = opened(registry, Entitlement(gpu=str(gpu.number)))
        assert vgpu.region.facts == gpu.device.facts
    assert len({gpu.device.facts for gpu in gpus}) == NR_GPUS


def test_accounts_are_kept_apart(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    """vGPUs of one number on two Gpus."""
    first, second = (opened(registry, Entitlement(gpu=number)) for number in "01")
    assert first.index == second.index
    for vgpu, used_ns in ((first, 3000), (second, 1000)):
        player = Player(vgpu)
        player.charge(used_ns)
        player.end()
    assert [(entry.used_ns, entry.share, entry.gpu_number) for entry in registry.statistics()] == [
        (3000, 1.0, 0),
        (1000, 1.0, 1),
    ]
    registry.close_session(first)
    third = opened(registry)
    assert [(entry.name, entry.share) for entry in registry.statistics()] == [(second.name, 1.0), (third.name, 0.0)]
    said, _ = registry.snapshot()
    assert [(gpu.number, gpu.used_ns, gpu.vgpus) for gpu in said] == [
        (0, 3000, (third.name,)),
        (1, 1000, (second.name,)),
        (2, 0, ()),
    ]
    assert [gpu.uuid for gpu in said] == [gpu.device.uuid for gpu in gpus]
    assert said[0].name == gpus[0].device.name
    assert dataclasses.asdict(said[0]).keys() > dataclasses.asdict(gpus[0].device_statistics()).keys()


def test_a_glance_tells_what_statistics_do(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    """All but who is active, which a second changes."""
    for number, used_ns in (("0", 3000), ("0", 500), ("1", 1000)):
        player = Player(opened(registry, Entitlement(3, 1 << 30, number)))
        player.charge(used_ns)
        player.end()
    glance, (said, vgpus) = registry.glance(), registry.snapshot()
    assert glance.used_ns == {gpu.number: gpu.used_ns for gpu in said} == {0: 3500, 1: 1000, 2: 0}
    for short, whole in zip(glance.vgpus, vgpus, strict=True):
        told = {name: getattr(whole, name) for name in vars(short)}
        assert vars(short) == {**told, "entitled_share": short.entitled_share}


def test_an_eviction_is_of_one_gpu(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    players = []
    for number in "01":
        players += [Player(opened(registry, Entitlement(gpu=number))) for _ in range(2)]
    assert [player.enter() for player in players] == [True, False, True, False]
    assert gpus[0].page.evict(gpus[0].page.holder().sequence)
    assert [gpu.page.holder().vgpu for gpu in gpus[:2]] == [players[1].vgpu, players[2].vgpu]
    for player in players:
        player.end()


def test_policies_are_objects_of_their_own(gpus: list[Gpu]) -> None:
    assert len({id(gpu.keeper._policy) for gpu in gpus}) == NR_GPUS
