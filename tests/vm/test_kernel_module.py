"""The guest package in a booted guest, with its kernel module and a doorbell: programs of an ordinary user, both ways of waiting, what goes
wrong, and what `fairgv-guest check` says of it.

One guest serves all tests. Each leaves it with the module loaded, the group there, and nobody served.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import build_image
from backend_host.vm.kernel import find_kernel
from backend_host.vm.private_libvirt import PrivateLibvirt
from tests.conformance.build import RUNTIME, build_all
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_package import MODULE, USER, is_well, module_for, package_files, prepare
from tests.vm.guest_shell import Answer, GuestShell, shell_command

pytestmark = pytest.mark.vm

NAME = "test-module"
ATTACH = ("attach", NAME, "--region", "64M", "--doorbell")
MEMORY_MIB = 256
SHORT_MS, LONG_MS = 300, 60_000
NR_CYCLES = 3
IN_THE_GUEST = ("vector_add", "spin", "bandwidth")
PREPARE = f"""\
{prepare()}; unset LD_LIBRARY_PATH; \
echo include /etc/ld.so.conf.d/\\*.conf >/etc/ld.so.conf; ldconfig && insmod /fairgv.ko && chgrp fairgv /dev/fairgv0 && \
chgrp fairgv /dev/userfaultfd && chmod 660 /dev/userfaultfd && echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled"""
PCI = "$(readlink -f /sys/bus/pci/drivers/fairgv/0000:*)"


@dataclass
class House:
    """A daemon, and a booted guest whose device has a doorbell, with a root's shell."""

    host: Host
    uri: str
    guest: Guest
    shell: GuestShell

    def command(self, *arguments: str) -> str:
        answer = host_command(self.host.state_dir, *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.strip()

    def vgpu(self) -> dict[str, Any]:
        [entry] = [vgpu for vgpu in self.host.status()["vgpus"] if vgpu["name"] == NAME]
        found: dict[str, Any] = entry
        return found

    def boot(self) -> None:
        if self.guest.domain.isActive():
            self.guest.domain.destroy()
            wait_until(lambda: not self.guest.domain.isActive(), "the domain is off")
        self.guest.start()
        self.shell.await_boot()
        self.root(PREPARE)

    def root(self, line: str) -> str:
        """A line of root's that must succeed; what it printed."""
        answer = self.shell.run(line)
        assert answer.exit_code == 0, answer
        return answer.output

    def user(self, line: str) -> Answer:
        """A line of an ordinary user's."""
        return self.shell.run(f"su {USER} -c '{line}'")

    def check(self, who: str = "root") -> Answer:
        """What `fairgv-guest check` says."""
        return (
            self.shell.run("/usr/bin/fairgv-guest check") if who == "root" else self.user("/usr/bin/fairgv-guest check")
        )

    def nr_interrupts(self) -> int:
        """That the guest got through its doorbell since it booted or loaded the module."""
        return sum(int(number) for number in re.findall(r":\s+(\d+) .*fairgv", self.root("cat /proc/interrupts")))

    def server_pid(self) -> int:
        """Of the domain's ivshmem server."""
        started = re.findall(r"ivshmem server (\d+) started", self.host.log())
        return int(started[-1])


@pytest.fixture(scope="module")
def house(
    instance: PrivateLibvirt,
    choice: AcceleratorChoice,
    tmp_path_factory: pytest.TempPathFactory,
    beside_another_device: Callable[[str], str],
) -> Iterator[House]:
    folder = instance.folder / NAME
    folder.mkdir()
    folder.chmod(0o755)
    kernel = find_kernel()
    attack = tmp_path_factory.mktemp("attack") / "device_attack"
    include = ["-I", str(PACKAGE_ROOT / "ivshmem/include")]
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", *include]
    subprocess.run(["cc", *options, "-o", attack, Path(__file__).with_name("device_attack.c")], check=True)
    build_all()
    files = {PurePosixPath("/programs") / name: PROGRAMS / name for name in IN_THE_GUEST}
    files[PurePosixPath("/programs") / RUNTIME.name] = RUNTIME
    files |= {
        PurePosixPath("/programs/device_attack"): attack,
        MODULE: module_for(kernel.release, tmp_path_factory.mktemp("kmod")),
    }
    files |= package_files(tmp_path_factory.mktemp("package"))
    image = build_image(folder, [shell_command()], files, kernel=kernel)
    instance.folder.chmod(0o711)  # QEMU finds its server below it
    host = start_host(instance.folder / f"{NAME}-state", libvirt_uri=instance.uri)
    try:
        amend = beside_another_device
        with Guest(instance, NAME, image, choice, machine="pc", memory_mib=MEMORY_MIB, amend=amend) as guest:
            house = House(host, instance.uri, guest, GuestShell(guest))
            assert house.command(*ATTACH).endswith("from its next start on")
            house.boot()
            yield house
    finally:
        stop_host(host)


def assert_passes(answer: Answer) -> None:
    assert (answer.exit_code, answer.output.splitlines()[-1]) == (0, "PASS"), answer.output
    assert "fairgv: " not in answer.output


def assert_kernel_is_well(house: House) -> None:
    said = house.root("dmesg")
    assert is_well(said), said


def is_alive(pid: int) -> bool:
    """A zombie that its parent has not collected yet does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_nobody(house: House) -> None:
    wait_until(lambda: not house.vgpu()["clients"], "nobody is served any more")


def test_an_ordinary_user_computes(house: House) -> None:
    before = house.nr_interrupts()
    assert_passes(house.user("/programs/vector_add"))
    assert_passes(house.user(f"/programs/spin {SHORT_MS}"))
    assert house.nr_interrupts() > before
    assert_kernel_is_well(house)


def test_all_is_well(house: House) -> None:
    for who in ("root", USER):
        answer = house.check(who)
        assert answer.exit_code == 0, answer.output
        assert not re.search(r"^(missing|note)", answer.output, re.MULTILINE), answer.output
        assert answer.output.endswith(f"CUDA programs of {who} can use the GPU.")
        assert "works:    the doorbell" in answer.output
        assert "works:    managed memory is there for system calls, too" in answer.output
        assert "works:    programs find FairGV's libcuda.so.1: /usr/lib/fairgv/libcuda.so.1" in answer.output
        assert "works:    the GPU: FairGV softgpu, " in answer.output
        assert ("is somebody else's, and left alone" in answer.output) == (who == "root")  # only root may look


def test_who_is_not_in_the_group_is_told(house: House) -> None:
    house.root("chgrp 0 /dev/fairgv0")
    answer = house.user("/programs/vector_add")
    assert answer.exit_code == 1
    assert answer.output.count("fairgv: ") == 1
    assert "/dev/fairgv0 is not for this user; add the user to the group fairgv" in answer.output
    checked = house.check(USER)
    assert checked.exit_code == 1
    assert f"missing:  /dev/fairgv0 is not open to {USER}" in checked.output
    assert f"usermod -aG fairgv {USER}" in checked.output
    house.root("chgrp fairgv /dev/fairgv0")
    assert_passes(house.user("/programs/vector_add"))


def test_a_user_who_may_not_have_userfaultfd_is_told_what_fails(house: House) -> None:
    case = f"/programs/{RUNTIME.name} managed_system_calls"
    natively = house.host.native(str(RUNTIME), "managed_system_calls")
    assert house.user(case).output == natively.stdout.rstrip("\n")
    house.root("chgrp 0 /dev/userfaultfd; echo never >/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    checked = house.check(USER)
    assert checked.exit_code == 0
    assert (
        f"note:     system calls fail for managed memory that the device has: /dev/userfaultfd is not open to {USER}"
        in checked.output
    )
    assert "note:     managed memory has pages of 4 KiB" in checked.output
    answer = house.user(case)
    assert "fairgv: system calls fail with EFAULT" in answer.output
    assert "written: 0" in answer.output
    house.root("chgrp fairgv /dev/userfaultfd; echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    assert house.user(case).output == natively.stdout.rstrip("\n")


def test_polling_is_a_choice(house: House) -> None:
    await_nobody(house)
    before = house.nr_interrupts()
    assert_passes(house.user(f"FAIRGV_WAKE=poll /programs/spin {SHORT_MS}"))
    assert house.nr_interrupts() == before


def test_two_programs_at_once(house: House) -> None:
    answer = house.user(
        f"(/programs/spin {SHORT_MS} >/tmp/a) & /programs/vector_add >/tmp/b; wait; cat /tmp/a /tmp/b; rm /tmp/a /tmp/b"
    )
    assert answer.output.count("PASS") == 2, answer
    assert_kernel_is_well(house)


def test_a_program_killed_while_it_sleeps(house: House) -> None:
    house.root(
        f": >/tmp/spin; /programs/spin {LONG_MS} >/tmp/spin 2>&1 & until grep -q running /tmp/spin; do usleep 20000; done"
    )
    assert house.shell.run("kill -9 $!; wait $!").exit_code == 128 + signal.SIGKILL
    assert_passes(house.user("/programs/vector_add"))
    assert_kernel_is_well(house)


def test_sysfs_serves_root_beside_the_module_and_without_it(house: House) -> None:
    assert_passes(house.shell.run(f"FAIRGV_REGION={PCI}/resource2 /programs/vector_add"))
    house.root("rmmod fairgv")
    assert_passes(house.shell.run("/programs/vector_add"))
    assert_passes(house.shell.run(f"/programs/spin {SHORT_MS}"))
    answer = house.user("/programs/vector_add")
    assert answer.exit_code == 1
    assert "may only be opened by root; install FairGV's kernel module" in answer.output
    checked = house.check()
    assert checked.exit_code == 0, checked.output
    assert "note:     the kernel module is not loaded: only root can use the GPU" in checked.output
    checked = house.check(USER)
    assert checked.exit_code == 1
    assert "missing:  the kernel module is not loaded" in checked.output
    assert "install linux-headers-" in checked.output
    house.root("insmod /fairgv.ko && chgrp fairgv /dev/fairgv0")
    assert_passes(house.user("/programs/vector_add"))


def test_the_module_gives_nobody_more_than_the_region(house: House) -> None:
    assert_passes(house.user("/programs/device_attack /dev/fairgv0"))
    assert_kernel_is_well(house)
    assert_passes(house.user("/programs/vector_add"))


def test_a_file_system_that_ends_behind_its_device_file(house: House) -> None:
    """Of a container, which has a device file of its own, and was the first one to open it."""
    await_nobody(house)
    house.root("rmmod fairgv && insmod /fairgv.ko && chgrp fairgv /dev/fairgv0")
    house.root(
        "mkdir /tmp/own && mount -t tmpfs own /tmp/own && mknod /tmp/own/fairgv0 c $(tr : ' ' </sys/class/misc/fairgv0/dev)"
    )
    house.root(": </tmp/own/fairgv0; umount /tmp/own && rmdir /tmp/own")
    assert_kernel_is_well(house)
    assert_passes(house.user("/programs/vector_add"))


def test_a_device_that_is_taken_out_under_a_program(house: House) -> None:
    await_nobody(house)
    house.root(
        f": >/tmp/spin; chmod 666 /tmp/spin; (su {USER} -c '/programs/spin {LONG_MS}' >/tmp/spin 2>&1; echo end $? >>/tmp/spin) &"
    )
    house.root("until grep -q running /tmp/spin; do usleep 20000; done")
    house.root(f"device={PCI}; echo 1 >$device/remove")
    said = house.root("until grep -q end /tmp/spin; do usleep 20000; done; cat /tmp/spin")
    assert "end 0" not in said, said
    assert house.shell.run("ls /dev/fairgv0").exit_code != 0
    checked = house.check()
    assert checked.exit_code == 1
    assert "missing:  this virtual machine has no shared memory device" in checked.output
    assert "fairgv-host attach DOMAIN" in checked.output
    await_nobody(house)
    house.root("echo 1 >/sys/bus/pci/rescan; chgrp fairgv /dev/fairgv0")
    assert_passes(house.user("/programs/vector_add"))
    assert_kernel_is_well(house)


def test_the_next_daemon_has_the_same_bells(house: House) -> None:
    """The one before died; the ivshmem server, which QEMU is connected to, outlived it. So did a program, whose end is told by its bell."""
    server = house.server_pid()
    running = "until grep -q running /tmp/kept; do /bin/busybox usleep 20000; done"
    house.root(f": >/tmp/kept; su {USER} -c '/programs/spin 0 /tmp/may-end' >/tmp/kept 2>&1 & {running}")
    os.kill(house.host.status()["pid"], signal.SIGKILL)
    start_host(house.host.state_dir, libvirt_uri=house.uri)
    wait_until(lambda: bool(house.host.status()["vgpus"]), "the domain is served")
    assert house.server_pid() == server
    assert house.root(": >/tmp/may-end; wait $!; cat /tmp/kept").endswith("synchronize: cudaSuccess\nPASS")
    before = house.nr_interrupts()
    assert_passes(house.user(f"/programs/spin {SHORT_MS}"))
    assert house.nr_interrupts() > before


def test_a_server_that_is_killed(house: House) -> None:
    """The eventfds are everybody's, so a guest that runs is served; its next start finds another server. Only with the daemon gone as well
    is the region lost."""
    server = house.server_pid()
    os.kill(server, signal.SIGKILL)
    before = house.nr_interrupts()
    assert_passes(house.user(f"/programs/spin {SHORT_MS}"))
    assert house.nr_interrupts() > before
    house.guest.domain.destroy()
    wait_until(lambda: house.server_pid() != server, "there is another server")
    house.boot()
    assert_passes(house.user(f"/programs/spin {SHORT_MS}"))
    assert house.nr_interrupts() > 0

    os.kill(house.server_pid(), signal.SIGKILL)
    stop_host(house.host)
    start_host(house.host.state_dir, libvirt_uri=house.uri)
    wait_until(lambda: bool(house.host.status()["vgpus"]), "the domain is served")
    assert "its ivshmem server was ended, and its region with it" in house.host.log()
    assert "fairgv-host start" in house.user("/programs/vector_add").output
    checked = house.check(USER)
    assert checked.exit_code == 1
    assert re.search("missing:  the GPU cannot be used\n.*fairgv-host start", checked.output), checked.output


def test_a_device_with_a_doorbell_comes_and_goes(house: House) -> None:
    """While the guest runs; what the daemon and the guest's kernel hold is the same each time."""
    house.command("detach", NAME)
    descriptors = Path(f"/proc/{house.host.status()['pid']}/fd")
    wait_until(lambda: house.shell.run("ls /dev/fairgv0").exit_code != 0, "the guest has let go of the device")
    before = len(list(descriptors.iterdir()))
    for _ in range(NR_CYCLES):
        assert house.command(*ATTACH) == f"{NAME} has a vGPU now"
        server = house.server_pid()
        wait_until(lambda: house.shell.run("chgrp fairgv /dev/fairgv0 2>/dev/null").exit_code == 0, "it is there")
        assert_passes(house.user(f"/programs/spin {SHORT_MS}"))  # long enough that its wait is ended by the bell
        assert house.nr_interrupts() > 0
        assert house.command("detach", NAME) == f"{NAME} has no vGPU any more"
        wait_until(lambda pid=server: not is_alive(pid), "the server ended")  # type: ignore[misc]
        wait_until(lambda: house.shell.run("ls /dev/fairgv0").exit_code != 0, "the guest has let go of the device")
    assert len(list(descriptors.iterdir())) <= before
    assert not list((house.host.state_dir / "doorbells").iterdir())
    assert_kernel_is_well(house)
    assert "missing:  this virtual machine has no shared memory device" in house.check().output
