"""Virtual machines that libvirt does not know: files and processes that come, go, are exchanged and are cut, one look after another."""

import contextlib
import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.config import Config
from backend_host.device.gpu import serving
from backend_host.devices import probe
from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.kept_list import KeptList
from backend_host.listing import listing
from backend_host.machines import LOOK_S, Machines, MachineSight, Wanted
from backend_host.service.events import UNCHANGED, Events
from backend_host.statistics import VGpuStatistics
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.errors import VmError
from backend_host.vm.process import MachineProcess
from backend_host.vm.vcpus import QemuThreads
from ivshmem.region import HostState, Region, RegionStatus, survive_cuts
from tests.backend_host.played_machine import REGION_BYTES, machine, make_file, memory_file, new_path
from tests.end_to_end.host import wait_until

TABLE_HASH = 7


class House:
    """A registry, and its machines; nobody looks but the test."""

    def __init__(self, registry: VGpuRegistry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder
        self.events = Events(folder / "events.jsonl")
        self.machines = self.another()

    def another(self, pattern: str = "") -> Machines:
        """As the next daemon has."""
        return Machines(self.registry, TABLE_HASH, self.folder, self.events, pattern, Entitlement(weight=2))

    def keep_over_restart(self, path: Path) -> VGpu:
        """The vGPU of the machine `vm` with this file, which the next daemon has and nobody has asked that for."""
        self.keep(Wanted("vm", path, Entitlement()))
        vgpu = self.registry._vgpus["vm"]
        vgpu.is_unclaimed = True
        self.machines.stop()
        self.machines = self.another()
        return vgpu

    def vgpus(self) -> dict[str, VGpuStatistics]:
        return {vgpu.name: vgpu for vgpu in self.registry.statistics()}

    def sight(self, name: str) -> MachineSight:
        [found] = [sight for sight in self.machines.sights() if sight.name == name]
        return found

    def keep(self, *wanted: Wanted) -> None:
        self.machines.keep({each.name: each for each in wanted})
        self.machines.look()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    config = Config(state_dir=tmp_path, nr_warm_workers=0)
    with contextlib.ExitStack() as stack:
        [device] = probe("soft", config.softgpu_library)
        gpu = stack.enter_context(serving(0, device, config, frozenset(), None))
        registry = VGpuRegistry([gpu], TABLE_HASH)
        stack.callback(registry.remove_all)
        house = House(registry, tmp_path)
        yield house
        house.machines.stop()


def is_laid_out(path: Path) -> bool:
    with Region("seen", os.open(path, os.O_RDWR), REGION_BYTES) as seen:
        return seen.check(table_hash=TABLE_HASH) is RegionStatus.OK and seen.host_state is HostState.UP


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_a_machine_from_attach_to_detach(house: House) -> None:
    with memory_file() as path:
        text = house.machines.attach("web", path, Entitlement(weight=3))["text"]
        assert text == "web has a vGPU from its next start on"
        vgpu = house.vgpus()["web"]
        assert (vgpu.kind, vgpu.weight, vgpu.region_bytes) == ("machine", 3, REGION_BYTES)
        assert is_laid_out(path)
        assert house.sight("web").state == "shut off"
        with machine(path):
            house.machines.look()
            assert house.sight("web").state == "running"
            house.machines.look()
        assert house.machines.detach("web")["text"] == "web has no vGPU any more"
        assert house.vgpus() == {}
        assert house.machines.sights() == []
        assert path.exists(), "it is not ours to remove"
        with machine(path):
            assert house.machines.attach("web", path, Entitlement())["text"] == "web has a vGPU now"


def test_a_machine_that_ends_and_starts_again(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with memory_file() as path:
        house.machines.attach("web", path, Entitlement())
        for _ in range(2):
            with machine(path) as process:
                house.machines.look()
                assert house.sight("web").state == "running"
                end(process)
                house.machines.look()
            assert house.sight("web").state == "shut off"
            assert "web" in house.vgpus()
        assert caplog.text.count("its virtual machine ended; what its programs held is taken back") == 2


def test_a_file_that_goes_takes_its_vgpu_along(house: House) -> None:
    with memory_file() as path:
        with machine(path) as process:
            house.machines.attach("web", path, Entitlement())
            path.unlink()
            house.machines.look()
            assert "web" in house.vgpus(), "who has the memory still has it"
            end(process)
            house.machines.look()
        assert house.vgpus() == {}
        assert house.machines.sights() == []
        [event] = house.events.after(0)
        assert (event["event"], event["vgpu"]) == ("gone", "web")
        make_file(path)
        house.machines.look()
        assert house.vgpus() == {}, "what was attached by command is over"


def test_another_file_of_that_name_is_another_region(house: House) -> None:
    with memory_file() as path:
        house.keep(Wanted("web", path, Entitlement()))
        with machine(path) as process:
            house.machines.look()
            path.unlink()
            make_file(path)
            house.machines.look()
            assert not is_laid_out(path), "the machine that has the earlier one runs"
            end(process)
        house.machines.look()
        assert is_laid_out(path)


def test_a_file_that_is_cut_short_costs_its_own_vgpu(house: House, caplog: pytest.LogCaptureFixture) -> None:
    survive_cuts()  # as the daemon does
    with memory_file() as path, memory_file() as neighbour:
        house.machines.attach("web", path, Entitlement())
        house.machines.attach("db", neighbour, Entitlement())
        os.truncate(path, REGION_BYTES // 2)
        house.machines.look()
        assert house.vgpus().keys() == {"db"}
        for _ in range(2):
            house.machines.look()
        assert "cut short by who owns it, and its vGPU taken away" in caplog.text
        assert f"has {REGION_BYTES // 2} bytes" in house.sight("web").trouble
        assert caplog.text.count("vGPU web is not served") == 2, "each trouble once"
        os.truncate(path, REGION_BYTES)
        house.machines.look()
        assert house.vgpus().keys() == {"db", "web"}
        assert house.sight("web").trouble == ""


def test_names_and_files_are_one_each(house: House) -> None:
    with memory_file() as path, memory_file() as other:
        house.machines.attach("web", path, Entitlement())
        with pytest.raises(RefusedError, match="web has a vGPU already"):
            house.machines.attach("web", other, Entitlement())
        with pytest.raises(RefusedError, match="is the memory of the vGPU web already"):
            house.machines.attach("db", path, Entitlement())
        with pytest.raises(RefusedError, match="no name for a vGPU"):
            house.machines.attach("../db", other, Entitlement())
        with pytest.raises(VmError, match="no file"):
            house.machines.attach("db", new_path(), Entitlement())
        session = house.registry.open_session("run", Entitlement(), REGION_BYTES, 0)
        with pytest.raises(RefusedError, match="run has a vGPU already"):
            house.machines.attach("run", other, Entitlement())
        house.registry.close_session(session)
        assert house.vgpus().keys() == {"web"}
        assert [sight.name for sight in house.machines.sights()] == ["web"]


def test_a_file_by_another_way_is_still_one(house: House, tmp_path: Path) -> None:
    """A folder that is a link: the path differs, and the file does not."""
    with memory_file() as path:
        house.machines.attach("web", path, Entitlement())
        link = new_path()
        link.symlink_to("/dev/shm")
        try:
            with pytest.raises(RefusedError, match=r"still served|the region of the vGPU web"):
                house.machines._adopt(Wanted("db", link / path.name, Entitlement()), limit_s=0)
        finally:
            link.unlink()


def test_a_file_that_somebody_else_holds_a_lock_of(house: House) -> None:
    """Its owner can: it costs that vGPU alone, and a look no more than its time."""
    with memory_file() as path, path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        house.keep(Wanted("web", path, Entitlement()))
        assert "still served by a worker of an earlier daemon" in house.sight("web").trouble
        fcntl.flock(file, fcntl.LOCK_UN)
        house.machines.look()
        assert "web" in house.vgpus()


def test_a_change_lasts_until_its_source_says_other(house: House) -> None:
    with memory_file() as path, memory_file() as other:
        house.machines.attach("web", path, Entitlement())
        kept = Wanted("db", other, Entitlement(weight=4))
        house.keep(kept)
        assert house.machines.change("web", {"weight": 5})["text"] == "web is changed until its memory file goes"
        again = house.machines.change("web", {"weight": 5})
        assert again == {"text": "web has that already: weight 5, memory no limit", UNCHANGED: True}
        assert "vgpus.d" in house.machines.change("db", {"weight": 6})["text"]
        house.machines.look()
        assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {"web": 5, "db": 6}
        assert house.machines.kept == {"db": Entitlement(weight=6)}
        house.keep(kept)
        assert house.vgpus()["db"].weight == 4
        with pytest.raises(RefusedError, match=r"kept by a file of vgpus\.d"):
            house.machines.detach("db")


def test_a_file_of_vgpus_d_waits_for_its_memory(house: House) -> None:
    path = new_path()
    house.keep(Wanted("web", path, Entitlement(weight=3)))
    sight = house.sight("web")
    assert (sight.state, sight.trouble) == ("no file", f"there is no file {path} yet: its QEMU makes it")
    [listed] = listing([], [], [], banned=frozenset(), troubles={}, with_all=False, machines=house.machines.sights())
    assert (listed.name, listed.kind, listed.state, listed.is_served) == ("web", "machine", "no file", False)
    assert (listed.why_not, listed.weight) == (sight.trouble, 3)
    make_file(path)
    try:
        for _ in range(2):
            house.machines.look()
            assert "web" in house.vgpus()
            path.unlink()
            house.machines.look()
            assert house.vgpus() == {}
            assert house.sight("web").state == "no file"
            make_file(path)
        house.machines.look()
        house.keep()
        assert house.vgpus() == {}
        assert house.machines.sights() == []
    finally:
        path.unlink()


def test_what_a_pattern_finds(house: House) -> None:
    machines = house.machines = house.another(f"/dev/shm/test-machine-{os.getpid()}-*-pve")
    with memory_file("-pve") as path, memory_file("-other"):
        machines.look()
        assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {path.name: 2}
        with pytest.raises(RefusedError, match="fits the pattern"):
            machines.detach(path.name)
        house.keep(Wanted("web", path, Entitlement(weight=7)))
        assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {"web": 7}, "who names it has the say"
        house.keep()
        machines.look()
        assert house.vgpus().keys() == {path.name}
        machines.attach("db", path, Entitlement(weight=8))
        machines.look()
        assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {"db": 8}
        path.unlink()
        machines.look()
        assert house.vgpus() == {}
    machines.look()
    assert machines.sights() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_pattern_gives_nobody_else_a_vgpu(house: House) -> None:
    """Everybody may make files in /dev/shm."""
    machines = house.machines = house.another(f"/dev/shm/test-machine-{os.getpid()}-*-pve")
    with memory_file("-pve") as path:
        os.chown(path, 65534, 65534)
        machines.look()
        assert house.vgpus() == {}
        assert machines.sights() == []


def test_the_next_daemon_serves_what_was_attached(house: House) -> None:
    with memory_file() as path, memory_file() as other:
        house.machines.attach("web", path, Entitlement(weight=3))
        house.machines.attach("db", other, Entitlement())
        house.machines.detach("db")
        house.machines.stop()
        house.registry.remove_all()
        house.machines = house.another()
        house.machines.start()
        wait_until(lambda: bool(house.vgpus()), "it is served again")
        assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {"web": 3}


def test_what_a_full_disk_keeps_from_being_written_is_written_later(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was asked for is done, and so is said to be. The next daemon would serve what was detached, and not what was attached."""

    def names() -> list[str]:
        return [each["name"] for each in json.loads((house.folder / "machines.json").read_text())]

    def fail(_: KeptList[Wanted], _entries: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with memory_file() as path, memory_file() as other:
        house.machines.attach("web", path, Entitlement())
        with monkeypatch.context() as patch:
            patch.setattr(KeptList, "write", fail)
            assert "has a vGPU" in house.machines.attach("db", other, Entitlement())["text"]
            assert "is changed" in house.machines.change("db", {"weight": 3})["text"]
            assert "has no vGPU any more" in house.machines.detach("web")["text"]
            assert {name: vgpu.weight for name, vgpu in house.vgpus().items()} == {"db": 3}
            house.machines.look()
            assert names() == ["web"]
        text = f"which machines were attached cannot be written down (No space left on device): make room in {house.folder}"
        assert caplog.text.count(text) == 1
        house.machines.look()
        assert names() == ["db"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"name": "web"}]', '[{"name": "a", "path": "/b", "entitlement": {"weight": 0}}]']
)
def test_a_file_of_machines_that_is_damaged(house: House, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (house.folder / "machines.json").write_text(text)
    house.machines.start()
    house.machines.look()
    assert house.machines.sights() == []
    assert "machines that were attached by command are served once they are attached again" in caplog.text


def test_the_thread_hears_of_an_end_at_once(house: House) -> None:
    with memory_file() as path, machine(path) as process:
        house.machines.attach("web", path, Entitlement())
        house.machines.start()
        end(process)
        wait_until(lambda: house.sight("web").state == "shut off", "the end is noticed")
    assert LOOK_S >= 1, "it looks at all processes of the host"


def test_processors_that_come_after_the_memory(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As QEMU starts: what is not known at the first look is at a later one."""
    with memory_file() as path, machine(path) as process:
        house.machines.attach("web", path, Entitlement())
        assert "not known" in house.vgpus()["web"].coscheduling.way
        monkeypatch.setattr(MachineProcess, "threads", lambda _: QemuThreads(process.pid, (process.pid,)))
        house.machines.look()
        assert "not known" not in house.vgpus()["web"].coscheduling.way


def test_one_that_is_to_be_elsewhere_after_a_restart(house: House) -> None:
    """Its programs go on, and it stays as long as its file does, as without a restart."""
    elsewhere = Entitlement(weight=3, gpu="0", space="one")
    with memory_file() as path:
        before = house.keep_over_restart(path)
        for _ in range(2):
            house.keep(Wanted("vm", path, elsewhere))
            assert house.registry._vgpus["vm"] is before
            assert before.entitlement == house.sight("vm").entitlement == Entitlement(weight=3)
            assert not before.is_unclaimed


def test_one_that_asks_too_much_after_a_restart(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the vGPU that it had once that is corrected, and nothing is left open meanwhile."""
    with memory_file() as path:
        before = house.keep_over_restart(path)
        house.registry.open_session("beside", Entitlement(request=80), REGION_BYTES, os.getuid())
        nr_open = len(list(Path("/proc/self/fd").iterdir()))
        house.keep(Wanted("vm", path, Entitlement(request=50)))
        assert "is more than GPU 0 has left" in house.sight("vm").trouble
        assert len(list(Path("/proc/self/fd").iterdir())) == nr_open
        assert before.is_unclaimed

        looks: list[None] = []
        look = house.machines.look
        monkeypatch.setattr(house.machines, "look", lambda: looks.append(look()))
        house.machines.start()
        wait_until(lambda: len(looks) >= 2, "the first look is over, with what follows it")
        house.machines.keep({"vm": Wanted("vm", path, Entitlement(weight=3))})
        wait_until(lambda: not before.is_unclaimed, "it is served")
        assert house.registry._vgpus["vm"] is before
