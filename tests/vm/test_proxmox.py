"""A guest whose QEMU is started by the options of Proxmox's `qm set N -ivshmem size=64`: the daemon finds its memory by itself.

No libvirt has a part in this. One boot serves the tests, in their order: programs, a pause, a reset, an end, and another start.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import find_emulator
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, build_image
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_shell import Answer, GuestShell, shell_command
from tests.vm.plain_qemu import PlainQemu

pytestmark = pytest.mark.vm

VMID = str(800_000 + os.getpid())
FILE = Path(f"/dev/shm/pve-shm-{VMID}")
MIB = 64
PAUSE_S = 7
"""A program whose beat stands still for 5 s is dead, if its machine runs."""
GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"

OPTIONS = [
    *("-name", f"vm{VMID},debug-threads=on"),
    *("-no-shutdown", "-smp", "2,sockets=2,cores=1,maxcpus=2"),
    *("-device", "ivshmem-plain,memdev=ivshmem,bus=pcie.0,addr=0x14,"),
    *("-object", f"memory-backend-file,id=ivshmem,share=on,mem-path={FILE},size={MIB}M"),
    *("-machine", "hpet=off,type=q35"),
]
"""As qemu-server writes them for such a machine of type q35; the device's last comma is its own."""


@dataclass
class Scene:
    """The daemon, the machine, and its shell."""

    host: Host
    machine: PlainQemu
    shell: GuestShell

    def listed(self) -> dict[str, dict[str, object]]:
        answer = host_command(self.host.state_dir, "list", "--json")
        return {entry["name"]: entry for entry in json.loads(answer.stdout)}

    def await_state(self, state: str) -> None:
        wait_until(lambda: self.listed().get(FILE.name, {}).get("state") == state, f"the machine is {state}")

    def program(self, line: str, limit_s: float = 120) -> Answer:
        return self.shell.run(f"/programs/{line}", limit_s)

    def assert_a_program_passes(self) -> None:
        answer = self.program("vector_add")
        assert (answer.exit_code, answer.output.splitlines()[-1]) == (0, "PASS"), answer.output


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A daemon that looks for such files, and a machine that it did not know before."""
    folder = tmp_path_factory.mktemp("proxmox")
    files = {PurePosixPath("/programs") / name: PROGRAMS / name for name in ("vector_add", "spin")}
    files[PurePosixPath("/programs/status")] = GUEST_LIBRARY.with_name("status")
    image = build_image(folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})
    host = start_host(tmp_path_factory.mktemp("host"), shm_files=f"/dev/shm/pve-shm-{VMID}*")
    machine = PlainQemu(find_emulator(), image, folder, OPTIONS)
    try:
        with machine:
            shell = GuestShell(machine)
            shell.await_boot()
            yield Scene(host, machine, shell)
    finally:
        stop_host(host)
        FILE.unlink(missing_ok=True)


def test_the_daemon_finds_the_machine(scene: Scene) -> None:
    scene.await_state("running")
    entry = scene.listed()[FILE.name]
    assert (entry["kind"], entry["is_served"]) == ("machine", True)
    [vgpu] = scene.host.status()["vgpus"]
    assert vgpu["region_bytes"] == MIB << 20
    assert "not known" not in vgpu["coscheduling"]["way"], "the threads of its vCPUs are known"
    scene.assert_a_program_passes()


def test_the_guest_sees_its_share(scene: Scene) -> None:
    assert host_command(scene.host.state_dir, "set", FILE.name, "--weight", "4").returncode == 0
    wait_until(lambda: json.loads(scene.program("status --json").output)["weight"] == 4, "the guest is told")
    answer = scene.program("status")
    assert (answer.exit_code, answer.output.splitlines()[0]) == (0, "weight         4"), answer.output


def test_a_pause_kills_no_program(scene: Scene) -> None:
    """It is seen by the threads of vCPUs, which do not run: there is no libvirt to tell."""
    line = ": >/tmp/spin; /programs/spin 2000 >/tmp/spin 2>&1 & until grep -q running /tmp/spin; do /bin/busybox usleep 20000; done"
    assert scene.shell.run(line, 120).exit_code == 0
    scene.machine.command("stop")
    time.sleep(PAUSE_S)
    [vgpu] = scene.host.status()["vgpus"]
    assert len(vgpu["clients"]) == 1
    scene.machine.command("cont")
    answer = scene.shell.run("wait $!; code=$?; cat /tmp/spin; (exit $code)", 120)
    assert answer.exit_code == 0, answer.output


def test_a_guest_that_is_reset_computes_again(scene: Scene) -> None:
    scene.machine.command("system_reset")
    scene.shell.await_boot()
    scene.assert_a_program_passes()


def test_a_machine_that_stops_and_starts(scene: Scene) -> None:
    """Proxmox removes the file with the machine, and QEMU makes another one."""
    scene.machine.__exit__()
    FILE.unlink()
    wait_until(lambda: scene.listed() == {}, "it is gone")
    with scene.machine:
        scene.shell.await_boot()
        scene.await_state("running")
        scene.assert_a_program_passes()
