"""vGPUs come and go: who shares one, who is refused, and that whatever fails or ends gives everything back."""

import dataclasses
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from backend_host.caretaker import Caretaker
from backend_host.config import Config
from backend_host.debts import BAN_AFTER
from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.device.gpu import Gpu, serving
from backend_host.devices import Device, probe, with_quota
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.errors import RefusedError
from backend_host.region_memory import open_shared_memory, sealed_memory
from backend_host.space import space as space_module
from backend_host.space.together import ByName
from backend_host.vgpus import VGpuRegistry
from ivshmem.region import PAGE_BYTES, HostState, Region, Wake
from tests.backend_host.played_region import PlayedWorker
from tests.backend_host.window_device import LIMIT_BYTES, listening_device
from tests.backend_host.window_device import Device as WindowDevice

REGION_BYTES = 16 << 20
TABLE_HASH = 7
ME = 1000
LIMIT_S = 10
"""After which something hangs."""


@pytest.fixture(scope="module")
def softgpu() -> Device:
    [device] = probe("soft", Config().softgpu_library)
    return device


@pytest.fixture
def facts(softgpu: Device) -> bytes:
    return softgpu.facts


@pytest.fixture
def gpu(softgpu: Device, tmp_path: Path) -> Iterator[Gpu]:
    """Without a worker."""
    config = Config(state_dir=tmp_path, policy="first-come", nr_warm_workers=0)
    with serving(0, dataclasses.replace(softgpu, path="none"), config, frozenset(), None) as gpu:
        yield gpu


@pytest.fixture
def page(gpu: Gpu) -> ControlPage:
    return gpu.page


@pytest.fixture
def registry(gpu: Gpu) -> Iterator[VGpuRegistry]:
    nr_fds = nr_open()
    registry = VGpuRegistry([gpu], TABLE_HASH)
    yield registry
    registry.remove_all()
    assert registry.statistics() == ()
    assert gpu.page.vgpus() == [], "every account was given back"
    assert nr_open() == nr_fds, "every descriptor was given back"


@pytest.fixture
def device(tmp_path: Path) -> Iterator[WindowDevice]:
    with listening_device(tmp_path / "memory.sock") as device:
        yield device


def nr_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def names(registry: VGpuRegistry) -> list[str]:
    return [vgpu.name for vgpu in registry.statistics()]


def test_a_session_ends_with_its_last_user(registry: VGpuRegistry) -> None:
    first = registry.open_session("a", Entitlement(2, 1 << 30), REGION_BYTES, ME)
    second = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    assert first is second
    registry.close_session(first)
    assert names(registry) == ["a"]
    [entry] = registry.statistics()
    assert (entry.weight, entry.quota_bytes, entry.region_bytes) == (2, 1 << 30, REGION_BYTES)
    assert entry.region_free_bytes > 0
    registry.close_session(second)
    assert names(registry) == []


def test_what_is_told_of_many_takes_no_look_at_all_programs_for_each(
    registry: VGpuRegistry, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdef":
        registry.open_session(name, PLAIN, REGION_BYTES, ME)
    look = Mock(return_value={})
    monkeypatch.setattr(gpu.monitor.demand, "of_vgpus", look)
    registry.snapshot()
    assert look.call_count <= 2, "one for the vGPUs, one for the Gpu"


def test_a_new_vgpu_of_an_old_name_is_another(registry: VGpuRegistry) -> None:
    old = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    registry.close_session(old)
    new = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    assert new is not old
    registry.remove("a")
    newest = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    registry.close_session(new)
    assert names(registry) == ["a"], "the user of one that was taken away does not end its successor"
    registry.close_session(newest)


def test_who_comes_to_a_space_that_does_not_end_holds_up_nobody(
    softgpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPS may take long to quit, or hang."""
    is_ending, may_end = threading.Event(), threading.Event()

    def hang(_: ByName) -> None:
        is_ending.set()
        may_end.wait()

    monkeypatch.setattr(ByName, "quit", hang)
    monkeypatch.setattr(space_module, "_ATTEMPTS", 1)
    monkeypatch.setattr(space_module, "_BETWEEN_S", 0.0)
    config = Config(state_dir=tmp_path, policy="first-come", nr_warm_workers=0, space="mps")
    in_space = Entitlement(space="web")
    with serving(0, dataclasses.replace(softgpu, path="none"), config, frozenset(), None) as gpu:
        registry = VGpuRegistry([gpu], TABLE_HASH)
        try:
            first = registry.open_session("first", in_space, REGION_BYTES, ME)
            comes_and_goes = threading.Thread(target=registry.close_session, args=(first,), daemon=True)
            comes_and_goes.start()
            assert is_ending.wait(LIMIT_S)
            second = threading.Thread(
                target=registry.open_session, args=("second", in_space, REGION_BYTES, ME), daemon=True
            )
            second.start()
            second.join(LIMIT_S)
            asked = threading.Thread(target=registry.statistics, daemon=True)
            asked.start()
            asked.join(LIMIT_S)
            assert not asked.is_alive(), "who asks for something else is answered"
            assert not second.is_alive(), "so is who comes"
            comes_and_goes.join(LIMIT_S)
            assert not comes_and_goes.is_alive(), "and who went"
            assert not may_end.is_set()
            assert names(registry) == ["second"]
        finally:
            may_end.set()
            registry.remove_all()


def test_weight_and_quota_change_while_it_runs(registry: VGpuRegistry, page: ControlPage, facts: bytes) -> None:
    vgpu = registry.open_session("a", Entitlement(2), REGION_BYTES, ME)
    assert vgpu.region.facts == facts
    registry.change("a", {"weight": 7})
    registry.change("a", {"quota_bytes": 1 << 20})
    [entry] = registry.statistics()
    assert (entry.weight, entry.quota_bytes) == (7, 1 << 20)
    account = page.vgpu(vgpu.index)
    assert account is not None
    assert account.quota_bytes == 1 << 20
    assert vgpu.region.facts == with_quota(facts, 1 << 20) != facts
    registry.change("a", {"quota_bytes": 0})
    assert vgpu.region.facts == facts
    with pytest.raises(RefusedError, match="no vGPU called b"):
        registry.change("b", {"weight": 1})


def test_whose_user_is_banned(registry: VGpuRegistry) -> None:
    for name, uid in (("a", ME), ("b", ME + 1)):
        registry.open_session(name, PLAIN, REGION_BYTES, uid)
    for _ in range(BAN_AFTER - 1):
        registry.debts.add(f"user {ME}", 1, 0)
    assert registry.banned() == frozenset()
    registry.debts.add(f"user {ME}", 1, 0)
    assert registry.banned() == {"a"}


def test_what_somebody_else_has_is_refused(registry: VGpuRegistry) -> None:
    registry.open_session("a", PLAIN, REGION_BYTES, ME)
    with pytest.raises(RefusedError, match="somebody else"):
        registry.open_session("a", PLAIN, REGION_BYTES, ME + 1)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "../a", "a\n", "[red]", "x" * 65, "ä"])
def test_names_that_are_none(registry: VGpuRegistry, name: str) -> None:
    with pytest.raises(RefusedError, match="no name"):
        registry.open_session(name, PLAIN, REGION_BYTES, ME)


def test_one_too_many(registry: VGpuRegistry) -> None:
    for _ in range(MAX_VGPUS):
        registry.open_session(None, PLAIN, REGION_BYTES, ME)
    with pytest.raises(RefusedError, match=f"all {MAX_VGPUS}"):
        registry.open_session(None, PLAIN, REGION_BYTES, ME)
    registry.remove(names(registry)[17])
    registry.open_session(None, PLAIN, REGION_BYTES, ME)


def test_the_region_is_open_and_holds_the_facts(registry: VGpuRegistry, facts: bytes) -> None:
    vgpu = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    with Region("seen", os.dup(vgpu.region.fileno()), REGION_BYTES) as seen:
        seen.check(table_hash=TABLE_HASH)
        assert str(seen.host_state) == str(HostState.UP)
        assert seen.wake is Wake.FUTEX
        assert seen.facts == facts
        registry.close_session(vgpu)
        assert str(seen.host_state) == str(HostState.DOWN)


def test_a_region_that_cannot_be_laid_out(registry: VGpuRegistry, page: ControlPage) -> None:
    with pytest.raises(RefusedError, match="no region for a"):
        registry.open_session("a", PLAIN, 4096, ME)
    assert page.vgpus() == []


def test_a_thread_that_cannot_be_started(
    registry: VGpuRegistry, page: ControlPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(caretaker: Caretaker) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Caretaker, "start", fail)
    with pytest.raises(RefusedError, match="new thread"):
        registry.open_session("a", PLAIN, REGION_BYTES, ME)
    assert page.vgpus() == []


def test_memory_that_is_full_is_an_error_and_not_a_signal(
    registry: VGpuRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RefusedError, match="No space left"):
        registry.open_session("a", PLAIN, REGION_BYTES, ME)


def test_nobody_can_shrink_or_grow_a_region() -> None:
    fd = sealed_memory("a", REGION_BYTES)
    for nbytes in (0, 4096, REGION_BYTES + 4096):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, nbytes)
    os.close(fd)


def test_the_region_of_a_domain(registry: VGpuRegistry) -> None:
    name = f"fairgv-test-{os.getpid()}"
    path = Path("/dev/shm") / name
    try:
        path.touch(mode=0o600)
        os.truncate(path, REGION_BYTES)
        registry.add_domain("vm", PLAIN, name, REGION_BYTES, lambda: False)
        assert path.stat().st_blocks * 512 >= REGION_BYTES, "reserved: memory that runs out later would kill a guest"
        with pytest.raises(RefusedError, match="has a vGPU already"):
            registry.add_domain("vm", PLAIN, name, REGION_BYTES, lambda: False)
        with pytest.raises(RefusedError, match="somebody else"):
            registry.open_session("vm", PLAIN, REGION_BYTES, os.geteuid())
        registry.guest_gone("vm")
        registry.guest_gone("unknown")
        assert registry.remove_if_there("vm")
        assert not registry.remove_if_there("vm")
    finally:
        path.unlink()


def test_a_region_file_that_is_missing_or_a_link() -> None:
    name = f"fairgv-test-{os.getpid()}"
    with pytest.raises(RefusedError, match="No such file"):
        open_shared_memory(name, TABLE_HASH)
    path = Path("/dev/shm") / name
    path.symlink_to("/dev/null")
    try:
        with pytest.raises(RefusedError, match="cannot open the region"):
            open_shared_memory(name, TABLE_HASH)
    finally:
        path.unlink()


def test_a_region_that_a_living_daemon_serves() -> None:
    """Its beat tells; what another one serves is left alone, its clients too."""
    name = f"fairgv-test-{os.getpid()}"
    path = Path("/dev/shm") / name
    path.touch(mode=0o600)
    os.truncate(path, REGION_BYTES)
    try:
        with Region(name, open_shared_memory(name, TABLE_HASH), REGION_BYTES) as region:
            region.format(table_hash=TABLE_HASH, facts=b"", wake=Wake.POLL)
            region.set_host_state(HostState.UP)
            region.keep_beating(3600)
            with pytest.raises(RefusedError, match="served by another fairgv-host"):
                open_shared_memory(name, TABLE_HASH)
            assert region.host_state is HostState.UP
    finally:
        path.unlink()


def test_removing_one_that_is_not_there(registry: VGpuRegistry) -> None:
    with pytest.raises(RefusedError, match="no vGPU called a"):
        registry.remove("a")


def test_looking_while_vgpus_come_and_go(registry: VGpuRegistry) -> None:
    is_over = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not is_over.is_set():
                registry.statistics()
        except BaseException as error:
            failures.append(error)

    def come_and_go() -> None:
        try:
            for _ in range(15):
                registry.close_session(registry.open_session("shared", PLAIN, REGION_BYTES, ME))
        except BaseException as error:
            failures.append(error)

    looking = [threading.Thread(target=look) for _ in range(2)]
    moving = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in looking + moving:
        thread.start()
    for thread in moving:
        thread.join()
    is_over.set()
    for thread in looking:
        thread.join()
    assert failures == []
    assert names(registry) == []


def test_memory_behind_a_region_goes_with_its_machine(registry: VGpuRegistry, device: WindowDevice) -> None:
    vgpu = registry.open_session("a", PLAIN, REGION_BYTES, ME)
    registry.connect_window("a", device.path, os.geteuid(), LIMIT_BYTES)
    device.accept()
    given = device.given(0, PAGE_BYTES)
    [entry] = registry.statistics()
    assert entry.window_bytes == given
    registry.limit_window("a", given)
    assert device.is_refused(given, PAGE_BYTES)
    registry.machine_ended("a")
    registry.connect_window("a", device.path, os.geteuid(), LIMIT_BYTES)
    device.accept()
    assert device.given(0, PAGE_BYTES) == given
    registry.close_session(vgpu)
    registry.connect_window("a", device.path, os.geteuid(), LIMIT_BYTES)  # of nobody
    registry.limit_window("a", 0)


def test_a_quota_that_holds_no_context_is_refused(registry: VGpuRegistry, gpu: Gpu) -> None:
    gpu.device = dataclasses.replace(gpu.device, context_bytes=524 << 20)
    refused = "a memory quota of 64 MiB has no room for a context, which takes 524 MiB of GPU 0"
    with pytest.raises(RefusedError, match=refused):
        registry.open_session("a", Entitlement(1, 64 << 20), REGION_BYTES, ME)
    registry.open_session("a", Entitlement(1, 524 << 20), REGION_BYTES, ME)
    with pytest.raises(RefusedError, match=refused):
        registry.change("a", {"quota_bytes": 64 << 20})
    assert registry.statistics()[0].quota_bytes == 524 << 20
    registry.change("a", {"quota_bytes": 0})


def test_all_are_waited_for_at_once_when_the_daemon_stops(
    registry: VGpuRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that a driver keeps from ending, each for as long as anybody waits."""
    all_wait = threading.Barrier(3)

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            all_wait.wait(LIMIT_S)
            return True

    for name in "abc":
        vgpu = registry.open_session(name, PLAIN, REGION_BYTES, ME)
        worker = PlayedWorker(0)
        worker.is_ended = Ended()
        monkeypatch.setattr(vgpu.caretaker, "workers", lambda worker=worker: [worker])
    registry.remove_all()
    assert not all_wait.broken
    assert registry.all() == []
