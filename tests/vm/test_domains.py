"""A daemon and a domain that nobody attached: its definition has the elements that docs/libvirt.md shows, and everything follows from it.

One guest for each machine type serves all tests, in their order: defined, booted, detached and attached again and again while it runs, paused,
saved in vain, killed, renamed, undefined.
"""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.ipc import Connection
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.connection import load_libvirt
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_path
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_shell import Answer, GuestShell, shell_command

pytestmark = pytest.mark.vm

GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
SHM_NAME = "fairgv-web"
NR_CYCLES, NR_LOOKS = 10, 30
REGION_BYTES = 64 << 20
CLIENTS_OFFSET, CLIENT_BYTES, NR_CLIENTS, ASKER_OFFSET = 69632, 320, 64, 200  # docs/region.md


def blocks_of_the_page() -> list[str]:
    """The XML of docs/libvirt.md: device, metadata, root port, its reserve."""
    blocks = re.findall(r"```xml\n(.*?)```", (PACKAGE_ROOT / "docs/libvirt.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    return [str(block) for block in blocks]


def as_the_page_says(machine: str, definition: str) -> str:
    """A definition with what the page shows, and on q35 with the port that it keeps free."""
    device, metadata, port, reserve = blocks_of_the_page()
    if machine == "q35":
        device = device.replace("bus='0' slot='0x10'", "bus='1' slot='0'")
    root = "<controller type='pci' index='0' model='pcie-root'/>"
    ports, reserves = (root + port, reserve) if machine == "q35" else ("", "")
    with_devices = definition.replace("<devices>", f"{metadata}<devices>{ports}{device}")
    return with_devices.replace("</domain>", f"{reserves}</domain>")


@dataclass
class Scene:
    """A daemon that adopts, its guest, and the guest's shell."""

    host: Host
    uri: str
    machine: str
    guest: Guest
    shell: GuestShell

    def virsh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["virsh", "-c", self.uri, *arguments], capture_output=True, text=True, check=False)

    def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        """What a `fairgv-host` command asks the daemon, without a process for each."""
        with Connection(self.host.state_dir / "control.sock") as connection:
            return connection.ask(operation, **arguments)

    def attach(self) -> None:
        """The running guest gets the device, now."""
        answer = self.ask("attach", domain=self.guest.name, region_bytes=REGION_BYTES)
        assert answer["text"] == f"{self.guest.name} has a vGPU now"
        self.await_device(is_there=True)

    def detach(self) -> None:
        """The running guest loses it, now."""
        assert self.ask("detach", domain=self.guest.name)["text"] == f"{self.guest.name} has no vGPU any more"
        self.await_device(is_there=False)

    def vgpus(self) -> dict[str, dict[str, Any]]:
        """All there are, by name."""
        return {vgpu["name"]: vgpu for vgpu in self.ask("status")["vgpus"]}

    def await_vgpu(self, name: str, **wanted: object) -> None:
        seen: dict[str, Any] = {}

        def is_so() -> bool:
            seen.clear()
            seen.update(self.vgpus())
            vgpu = seen.get(name, {})
            return bool(vgpu) and all(vgpu[key] == value for key, value in wanted.items())

        try:
            wait_until(is_so, f"{name} is served with {wanted}")
        except AssertionError as error:
            there = {each: {key: vgpu[key] for key in wanted} for each, vgpu in seen.items()}
            raise AssertionError(f"{error}; there are {there}") from None

    def boot(self) -> None:
        self.guest.start()
        self.shell.await_boot()

    def assert_a_program_passes(self) -> None:
        answer = self.shell.run("/programs/vector_add")
        assert (answer.exit_code, answer.output.splitlines()[-1]) == (0, "PASS"), answer.output

    def await_device(self, is_there: bool) -> None:
        """Whether the guest itself sees a BAR of the device; the kernel looks for it after QEMU told."""
        line = 'set -- $(grep -l 0x1110 /sys/bus/pci/devices/*/device); [ -n "$1" ] && [ -e ${1%device}resource2 ]'
        wait_until(lambda: (self.shell.run(line).exit_code == 0) is is_there, f"the guest has a device: {is_there}")

    def pid_of_qemu(self, instance: PrivateLibvirt) -> int:
        return int((instance.folder / f"run/libvirt/qemu/run/{self.guest.name}.pid").read_text())


@pytest.fixture(scope="module", params=["pc", "q35"])
def scene(
    request: pytest.FixtureRequest,
    instance: PrivateLibvirt,
    choice: AcceleratorChoice,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """A daemon that knows of no domain; the guest is not defined yet."""
    machine: str = request.param
    folder = instance.folder / f"domains-{machine}"
    folder.mkdir()
    folder.chmod(0o755)
    files = {PurePosixPath("/programs") / name: PROGRAMS / name for name in ("vector_add", "bandwidth", "spin")}
    image = build_image(folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})
    host = start_host(tmp_path_factory.mktemp("host"), libvirt_uri=instance.uri, adopt="all")
    try:
        with Guest(
            instance,
            f"web-{machine}",
            image,
            choice,
            machine=machine,
            amend=lambda text: as_the_page_says(machine, text),
        ) as guest:
            yield Scene(host, instance.uri, machine, guest, GuestShell(guest))
    finally:
        stop_host(host)
        region_path(SHM_NAME).unlink(missing_ok=True)


def test_a_definition_is_all_it_takes(scene: Scene) -> None:
    scene.await_vgpu(scene.guest.name, weight=2, quota_bytes=4 << 30, region_bytes=256 << 20, kind="domain")
    remembered = scene.host.state_dir / "domains.json"
    wait_until(lambda: json.loads(remembered.read_text()) == [scene.guest.uuid], "it is remembered")


def test_a_second_daemon_keeps_its_hands_off(scene: Scene, tmp_path: Path) -> None:
    second = start_host(tmp_path, libvirt_uri=scene.uri, adopt="all")
    try:
        assert "is served by another fairgv-host of this machine" in second.log()
        assert second.status()["vgpus"] == []
    finally:
        stop_host(second)
    assert region_path(SHM_NAME).exists()
    assert scene.guest.name in scene.vgpus()


def test_a_region_that_was_lost_is_made_before_the_start(scene: Scene) -> None:
    """After a restart of the host /dev/shm is empty: the daemon that starts first lays the regions out again."""
    stop_host(scene.host)
    region_path(SHM_NAME).unlink()
    start_host(scene.host.state_dir, libvirt_uri=scene.uri, adopt="all")
    assert region_path(SHM_NAME).stat().st_size == 256 << 20
    assert scene.guest.name in scene.vgpus()


def test_a_guest_that_starts_without_its_region(scene: Scene) -> None:
    """QEMU then makes the file itself; it is taken over while the guest boots. Its vCPU is known by then."""
    region_path(SHM_NAME).unlink()
    scene.boot()
    scene.assert_a_program_passes()
    assert "another region than before" in scene.host.log()
    way = scene.vgpus()[scene.guest.name]["coscheduling"]
    assert way["is_boosted"] or "not permitted" in way["way"], way


def test_settings_follow_the_definition(scene: Scene) -> None:
    set_weight = ["--uri", "https://fairgv.dev/xmlns/domain/1", "--key", "fairgv", "--set", "<vgpu weight='3'/>"]
    answer = scene.virsh("metadata", scene.guest.name, "--config", *set_weight)
    assert answer.returncode == 0, answer.stderr
    scene.await_vgpu(scene.guest.name, weight=3, quota_bytes=0)


def test_saving_and_migrating_are_refused_with_a_reason(scene: Scene, tmp_path: Path) -> None:
    name = scene.guest.name
    for command in (
        ("save", name, str(tmp_path / "saved")),
        ("managedsave", name),
        ("snapshot-create-as", name, "--memspec", str(tmp_path / "memory")),
        ("migrate", "--live", name, scene.uri, "--dname", "elsewhere"),
    ):
        answer = scene.virsh(*command)
        assert answer.returncode != 0
        assert "shmem" in answer.stderr, (command, answer.stderr)
    assert scene.virsh("domstate", name).stdout.strip() == "running"
    scene.assert_a_program_passes()


def nr_in(folder: Path) -> int:
    return len(list(folder.iterdir()))


def held_by(pid: int) -> tuple[int, int, int]:
    """Descriptors, threads and mappings of shared memory of a process; the least of many looks, as threads for questions come and go."""

    def look() -> tuple[int, int, int]:
        maps = Path(f"/proc/{pid}/maps").read_text()
        return nr_in(Path(f"/proc/{pid}/fd")), nr_in(Path(f"/proc/{pid}/task")), maps.count("/dev/shm/")

    return min(look() for _ in range(NR_LOOKS))


def nr_children(pid: int) -> int:
    nr = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended
            nr += len((task / "children").read_text().split())
    return nr


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ten_times_out_and_in_again(scene: Scene, instance: PrivateLibvirt) -> None:
    """While the guest runs; neither the daemon, nor QEMU, nor /dev/shm has more after ten times than after one."""
    name, daemon, emulator = scene.guest.name, scene.ask("status")["pid"], scene.pid_of_qemu(instance)
    own_name = f"fairgv-{scene.guest.uuid}"
    held: tuple[int, ...] = ()
    memory = []
    for number in range(NR_CYCLES):
        scene.detach()
        assert not region_path(own_name).exists()
        assert name not in scene.vgpus()
        scene.attach()
        if number in (0, NR_CYCLES - 1):
            scene.assert_a_program_passes()
        wait_until(lambda: not scene.vgpus()[name]["clients"], "the client is gone")
        wait_until(lambda: nr_children(daemon) == 2, "one worker waits, beside the store")
        if number == 1:
            held = (*held_by(daemon), nr_in(Path(f"/proc/{emulator}/fd")))
        memory.append(resident_bytes(daemon))
    wait_until(lambda: (*held_by(daemon), nr_in(Path(f"/proc/{emulator}/fd"))) <= held, "no more is held")
    assert memory[-1] - memory[1] < 8 << 20


def test_detaching_under_a_running_program(scene: Scene) -> None:
    """It gets a CUDA error, and neither it nor anybody else hangs."""
    assert scene.shell.run(
        ": >/tmp/spin; /programs/spin 60000 >/tmp/spin 2>&1 & until grep -q running /tmp/spin; do /bin/busybox usleep 20000; done"
    ) == Answer("", 0)
    region = region_path(f"fairgv-{scene.guest.uuid}").read_bytes()[: CLIENTS_OFFSET + NR_CLIENTS * CLIENT_BYTES]
    who = [
        struct.unpack_from("<I", region, CLIENTS_OFFSET + CLIENT_BYTES * i + ASKER_OFFSET)[0] for i in range(NR_CLIENTS)
    ]
    assert set(who) == {0, 1}, "the guest tells that its first vCPU waits"
    scene.detach()
    answer = scene.shell.run("wait $!; code=$?; cat /tmp/spin; (exit $code)")
    assert (answer.exit_code, "synchronize: cudaErrorDevicesUnavailable" in answer.output) == (1, True), answer.output
    scene.attach()
    scene.assert_a_program_passes()


def test_qemu_is_killed_in_the_middle_of_a_copy(scene: Scene, instance: PrivateLibvirt) -> None:
    name = scene.guest.name
    scene.shell.run("while :; do /programs/bandwidth; done >/dev/null 2>&1 &")

    def is_copying() -> bool:
        clients = scene.vgpus()[name]["clients"]
        return bool(clients) and clients[0]["to_device_bytes"] > 1 << 20

    wait_until(is_copying, "a program copies")
    worker = scene.vgpus()[name]["clients"][0]["worker_pid"]
    with instance.without_libvirtd() if scene.machine == "q35" else contextlib.nullcontext():
        os.kill(scene.pid_of_qemu(instance), signal.SIGKILL)
    wait_until(lambda: not scene.vgpus()[name]["clients"], "its client is gone")
    wait_until(lambda: scene.vgpus()[name]["memory_bytes"] == 0, "device memory was given back")
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "its worker has ended")
    assert scene.machine == "q35" or f"domain {name}: crashed" in scene.host.log()


def test_a_rename_while_libvirtd_was_away(scene: Scene, instance: PrivateLibvirt) -> None:
    """It is told once libvirtd is back; the account stays."""
    name, new_name = scene.guest.name, f"{scene.guest.name}-renamed"
    used_ns = scene.vgpus()[name]["used_ns"]
    assert used_ns > 0
    with instance.without_libvirtd():
        path = instance.folder / f"config/libvirt/qemu/{name}.xml"
        text = path.read_text().replace(f"<name>{name}</name>", f"<name>{new_name}</name>")
        path.with_stem(new_name).write_text(text)
        instance.hand_over(path.with_stem(new_name))
        path.unlink()
    scene.await_vgpu(new_name, used_ns=used_ns)
    assert name not in scene.vgpus()


def test_a_rename_back(scene: Scene) -> None:
    assert scene.virsh("domrename", f"{scene.guest.name}-renamed", scene.guest.name).returncode == 0
    scene.await_vgpu(scene.guest.name)


def test_undefined_is_gone(scene: Scene) -> None:
    assert scene.virsh("undefine", scene.guest.name).returncode == 0
    wait_until(lambda: not scene.vgpus(), "the vGPU is gone")
    wait_until(lambda: not region_path(f"fairgv-{scene.guest.uuid}").exists(), "its region is gone")
    wait_until(lambda: json.loads((scene.host.state_dir / "domains.json").read_text()) == [], "nothing is remembered")


def test_two_domains_with_one_region_are_refused(scene: Scene, instance: PrivateLibvirt) -> None:
    libvirt = load_libvirt()
    connection = libvirt.open(scene.uri)
    texts = [
        re.sub(
            r"<name>.*?</name>", f"<name>twin-{number}</name>", re.sub(r"<uuid>.*?</uuid>", "", scene.guest.definition)
        )
        for number in range(2)
    ]
    first, second = (connection.defineXML(text) for text in texts)
    try:
        wait_until(lambda: "several domains have the device fairgv-web" in scene.host.log(), "the refusal is told")
        wait_until(lambda: not scene.vgpus(), "none of the two is served")
    finally:
        second.undefine()
    scene.await_vgpu("twin-0", weight=2)
    first.undefine()
    wait_until(lambda: not scene.vgpus(), "the vGPU is gone")
