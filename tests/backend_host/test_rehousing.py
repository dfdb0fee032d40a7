"""Where vGPUs go whose Gpu has failed, and who stays without one."""

import threading
from collections.abc import Callable, Iterator

import pytest

from backend_host.device.failure import Failure
from backend_host.device.gpu import Gpu
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.errors import RefusedError
from backend_host.vgpu import Place, VGpu
from backend_host.vgpus import VGpuRegistry
from tests.backend_host.played_region import PlayedWorker
from tests.backend_host.test_gpu import ME, REGION_BYTES, TABLE_HASH, Player, devices, gpus

__all__ = ["devices", "gpus"]  # fixtures
LOST = Failure("Xid 79: it has fallen off the bus")
SECOND_NS = 10**9


@pytest.fixture
def registry(gpus: list[Gpu]) -> Iterator[VGpuRegistry]:
    registry = VGpuRegistry(gpus, TABLE_HASH)
    yield registry
    registry.remove_all()


def opened(registry: VGpuRegistry, name: str, entitlement: Entitlement = PLAIN) -> VGpu:
    return registry.open_session(name, entitlement, REGION_BYTES, ME)


def fail(registry: VGpuRegistry, gpu: Gpu) -> None:
    gpu.ward.failure = LOST
    registry.gpu_failed(gpu, LOST)


def test_a_vgpu_goes_where_a_new_one_would(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    """With all that it is entitled to."""
    heavy = opened(registry, "heavy", Entitlement(weight=5))
    vgpu = opened(registry, "it", Entitlement(weight=3, quota_bytes=1 << 30, limit=40.0, request=10.0))
    assert (heavy.gpu, vgpu.gpu) == (gpus[0], gpus[1])
    player = Player(vgpu)
    player.charge(SECOND_NS)
    player.end()
    before = gpus[1].page.vgpu(vgpu.index)
    fail(registry, gpus[1])
    assert vgpu.gpu is gpus[2]
    account = gpus[2].page.vgpu(vgpu.index)
    assert before is not None
    assert account is not None
    assert (account.quota_bytes, account.limit_permille, account.used_ns) == (1 << 30, 400, 0)
    assert account.limited_until_ns == before.limited_until_ns > 0, "what it is to pay back goes along"
    assert gpus[2].page.names[vgpu.index] == "it"
    [told] = [each for each in registry.statistics() if each.name == "it"]
    assert (told.gpu_number, told.gpu_uuid, told.weight) == (2, gpus[2].device.uuid, 3)
    statistics, _ = registry.snapshot()
    assert [gpu.vgpus for gpu in statistics] == [("heavy",), (), ("it",)]
    assert [gpu.failed for gpu in statistics] == ["", LOST.reason, ""]
    assert statistics[1].used_ns == SECOND_NS, "what was charged stays with the Gpu"
    assert not statistics[1].is_ready
    mover = Player(vgpu)
    assert mover.enter()
    mover.end()


def test_what_a_critical_one_took_out_of_turn_counts_on_its_next_gpu(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    vgpu = opened(registry, "it", Entitlement(vgpu_class="critical", qos="2"))
    before = vgpu.gpu
    before.space_looks.urgent.look()
    player = Player(vgpu)
    player.charge(SECOND_NS)
    player.end()
    fail(registry, before)
    assert vgpu.gpu is not before
    urgent = vgpu.gpu.space_looks.urgent
    assert urgent.part(vgpu.index) == 0.1
    urgent.look()
    assert urgent.part(vgpu.index) == 0.1, "what comes to it here is counted from nothing on"


def test_it_takes_no_new_vgpu(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    fail(registry, gpus[0])
    assert [opened(registry, name).gpu.number for name in "abcd"] == [1, 2, 1, 2]
    with pytest.raises(RefusedError, match=r"^GPU 0 is out, as it has failed: Xid 79: it has fallen off the bus$"):
        opened(registry, "e", Entitlement(gpu="0"))
    for gpu in gpus[1:]:
        gpu.ward.failure = LOST
    with pytest.raises(RefusedError, match=r"^GPU 0 is out, as it has failed: .*; GPU 1 is out, .*; GPU 2 is out, "):
        opened(registry, "e")


def test_one_that_is_to_be_there_stays_and_is_refused(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    vgpu = opened(registry, "bound", Entitlement(gpu="1"))
    fail(registry, gpus[1])
    assert vgpu.gpu is gpus[1]
    assert registry.stranded() == {
        "bound": "GPU 1 has failed (Xid 79: it has fallen off the bus), and it goes nowhere else: it is to be on GPU 1; "
        "fairgv-host detach and attach give it another"
    }


def test_one_that_fits_nowhere_says_what_is_lacking(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    for name in ("a", "b"):
        opened(registry, name, Entitlement(request=80.0))
    opened(registry, "it", Entitlement(request=80.0))
    fail(registry, gpus[2])
    told = registry.stranded()["it"]
    assert "GPU 0 has 20 % left for requests, where 80 % are asked for (--request)" in told
    assert "GPU 2 is out, as it has failed" in told


def test_one_that_was_stranded_goes_where_room_was_made(
    registry: VGpuRegistry, gpus: list[Gpu], caplog: pytest.LogCaptureFixture
) -> None:
    other = opened(registry, "other", Entitlement(gpu="1", request=80.0))
    vgpu = opened(registry, "it", Entitlement(request=80.0))
    bound = opened(registry, "bound", Entitlement(gpu=str(vgpu.gpu.number)))
    gpus[2].is_drained = True
    fail(registry, vgpu.gpu)
    assert registry.stranded().keys() == {"it", "bound"}
    caplog.clear()
    registry.rehouse_stranded()
    assert registry.stranded().keys() == {"it", "bound"}
    assert caplog.text == "", "that is known"
    registry.close_session(other)
    registry.rehouse_stranded()
    assert (vgpu.gpu, list(registry.stranded())) == (gpus[1], ["bound"])
    gpus[2].is_drained = False
    registry.rehouse_stranded()
    assert bound.gpu is gpus[0]
    mover = Player(vgpu)
    assert mover.enter()
    mover.end()


def test_one_of_another_kind_takes_nobody(
    registry: VGpuRegistry, gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine's region has no room for facts of another length."""
    vgpu = opened(registry, "it")
    monkeypatch.setattr("backend_host.rehousing.with_quota", lambda facts, _: facts + b"more")
    before = [len(gpu.page.vgpus()) for gpu in gpus]
    fail(registry, gpus[0])
    assert vgpu.gpu is gpus[0]
    assert "is of another kind" in registry.stranded()["it"]
    assert [len(gpu.page.vgpus()) for gpu in gpus] == before, "nothing is taken there"


def test_one_that_has_gone_meanwhile_is_left_alone(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    vgpu = opened(registry, "it")
    registry.remove("it")
    fail(registry, gpus[0])
    assert vgpu.gpu is gpus[0]


class HeldWorker(PlayedWorker):
    """One that a driver keeps from ending for as long as anybody waits. `on_wait` is called then."""

    def __init__(self, on_wait: Callable[[], None]) -> None:
        super().__init__(0)

        class Ended(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                on_wait()
                return True

        self.is_ended = Ended()


def test_all_programs_are_ended_before_one_is_waited_for(
    registry: VGpuRegistry, gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[HeldWorker] = []
    seen: list[int] = []
    for number in "12":
        opened(registry, f"heavy-{number}", Entitlement(gpu=number, weight=9))
    for name in "abc":
        vgpu = opened(registry, name)
        assert vgpu.gpu is gpus[0]
        workers.append(HeldWorker(lambda: seen.append(sum(worker.is_stopped for worker in workers))))
        monkeypatch.setattr(vgpu.caretaker, "workers", lambda worker=workers[-1]: [worker])
    fail(registry, gpus[0])
    assert seen == [3, 3, 3]


def test_one_that_is_on_its_way_holds_up_nobody(registry: VGpuRegistry, gpus: list[Gpu]) -> None:
    """What takes it off its device may hang, as that has failed."""
    going = opened(registry, "going", Entitlement(gpu="0"))
    opened(registry, "other", Entitlement(gpu="0"))
    registry.reserve(going, gpus[1])
    seen: list[dict[str, str]] = []

    def settle(vgpu: VGpu) -> None:
        if vgpu is going:
            seen.append(registry.stranded())
            registry.give_up(vgpu)

    registry.settle = settle
    fail(registry, gpus[0])
    assert [list(stranded) for stranded in seen] == [["other"]]
    assert set(registry.stranded()) == {"going", "other"}


def test_a_mistake_with_one_keeps_no_other_from_its_place(
    registry: VGpuRegistry, gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What programs come meanwhile wait until their vGPU has its place."""
    unlucky = Entitlement(weight=7)
    opened(registry, "unlucky", unlucky)
    for gpu in gpus[1:]:
        opened(registry, f"on-{gpu.number}", Entitlement(weight=9, gpu=str(gpu.number)))
    lucky = opened(registry, "lucky")
    assert lucky.gpu is gpus[0]
    find = registry.place

    def place(entitlement: Entitlement) -> Place:
        if entitlement == unlucky:
            raise OSError(28, "No space left on device")
        return find(entitlement)

    monkeypatch.setattr(registry, "place", place)
    fail(registry, gpus[0])
    assert lucky.gpu is not gpus[0]
    assert list(registry.stranded()) == ["unlucky"]
    assert "a mistake of FairGV's: OSError" in registry.stranded()["unlucky"]
