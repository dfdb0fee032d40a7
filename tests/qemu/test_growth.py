"""Pinned memory beyond the region: CUDA programs in a guest whose QEMU has the device `fairgv-memory`, under libvirt, with a daemon on softgpu.

One boot of each QEMU serves the tests, in their order; those that boot it anew, or take long, are for one of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice, choose_accelerator
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import PROGRAM_FOLDER, build_image
from backend_host.vm.kernel import Kernel
from backend_host.vm.private_libvirt import PrivateLibvirt
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.programs.build import build_one
from tests.qemu.programs import build_program
from tests.qemu.scene import RELEASES
from tests.vm.guest_package import MODULE, USER, is_well, package_files, prepare
from tests.vm.guest_shell import Answer, GuestShell, shell_command

pytestmark = pytest.mark.qemu
ONE_RELEASE = pytest.mark.parametrize("house", RELEASES[:1], indirect=True)

MIB = 1 << 20
NAME = "test-growth"
REGION_BYTES, LIMIT_BYTES, WINDOW_BYTES = 32 * MIB, 96 * MIB, 256 * MIB
EACH_MIB = 8
_DEVICE = """\
  <qemu:commandline>
    <qemu:arg value='-chardev'/>
    <qemu:arg value='socket,id=memory,path={path},server=on,wait=off'/>
    <qemu:arg value='-device'/>
    <qemu:arg value='fairgv-memory,chardev=memory,window={window},addr=0x1e'/>
  </qemu:commandline>
</domain>"""


@dataclass
class House:
    """A daemon, and a running guest with a vGPU and the device."""

    host: Host
    uri: str
    guest: Guest
    shell: GuestShell
    empty_bytes: int = 0
    """Of the region's heap."""

    def vgpu(self) -> dict[str, Any]:
        [entry] = [vgpu for vgpu in self.host.status()["vgpus"] if vgpu["name"] == NAME]
        found: dict[str, Any] = entry
        return found

    def pin(self, nr_buffers: int, *more: str) -> Answer:
        """Runs the program to its end."""
        return self.shell.run(f"/programs/pinned_memory {EACH_MIB} {nr_buffers} {' '.join(more)}", 240)

    def user(self, line: str) -> Answer:
        """A line of an ordinary user's."""
        return self.shell.run(f"su {USER} -c '{line}'", 240)

    def check(self) -> str:
        """What `fairgv-guest check` says to that user."""
        return self.user("/usr/bin/fairgv-guest check").output

    def await_idle(self) -> int:
        """Free bytes of the heap once no program has any."""
        wait_until(lambda: not self.vgpu()["clients"], "no client is there")
        wait_until(lambda: self.vgpu()["region_free_bytes"] == self.all_bytes(), "all pages were given back")
        return self.all_bytes()

    def all_bytes(self) -> int:
        """Of the heap, when nobody has any of it."""
        window_bytes = int(self.vgpu()["window_bytes"])
        return self.empty_bytes + max(0, window_bytes - WINDOW_BYTES // 2048)


def passes(answer: Answer, nr_buffers: int) -> bool:
    lines = answer.output.splitlines()
    assert answer.exit_code == 0, answer.output
    return lines[-2:] == [f"{nr_buffers} buffers of {EACH_MIB} MiB, 0 words wrong", "PASS"]


def refused_at(answer: Answer) -> int:
    """The number of the buffer that the program did not get."""
    found = re.search(r"^buffer (\d+): cudaErrorMemoryAllocation$", answer.output, re.MULTILINE)
    assert found, answer.output
    return int(found[1])


@pytest.fixture(scope="module")
def choice() -> AcceleratorChoice:
    return choose_accelerator()


@pytest.fixture(scope="module")
def instance() -> Iterator[PrivateLibvirt]:
    with PrivateLibvirt() as running:
        yield running


@pytest.fixture(scope="module", params=RELEASES)
def house(
    request: pytest.FixtureRequest,
    instance: PrivateLibvirt,
    choice: AcceleratorChoice,
    kernel: Kernel,
    module: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[House]:
    emulator = PACKAGE_ROOT / "build/qemu" / request.param / "qemu-system-x86_64"
    assert emulator.exists(), "run qemu_patches/build first"
    folder = instance.folder / request.param
    folder.mkdir()
    folder.chmod(0o755)
    sockets = folder / "sockets"
    sockets.mkdir()
    instance.hand_over(sockets)
    build_one("pinned_memory")
    files = {
        PROGRAM_FOLDER / "pinned_memory": PROGRAMS / "pinned_memory",
        PROGRAM_FOLDER / "memory_module": build_program("memory_module", folder),
        MODULE: module,
        **package_files(tmp_path_factory.mktemp("package")),
    }
    image = build_image(folder, [shell_command()], files, kernel=kernel)

    def amend(definition: str) -> str:
        """As an operator would write it."""
        namespace = "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0' "
        device = _DEVICE.format(path=sockets / "memory.sock", window=WINDOW_BYTES)
        for old, new in [("<domain ", namespace), ("{emulator}", str(emulator)), ("</domain>", device)]:
            assert old in definition
            definition = definition.replace(old, new)
        return definition

    host = start_host(tmp_path_factory.mktemp("host"), libvirt_uri=instance.uri, pinned_bytes=LIMIT_BYTES)
    try:
        with Guest(instance, NAME, image, choice, amend=amend) as guest:
            answer = host_command(host.state_dir, "attach", NAME, "--region", f"{REGION_BYTES >> 20}M")
            assert answer.returncode == 0, answer.stderr
            guest.start()
            house = House(host, instance.uri, guest, GuestShell(guest))
            house.shell.await_boot()
            house.empty_bytes = house.vgpu()["region_free_bytes"]
            yield house
    finally:
        stop_host(host)


def test_what_fits_into_the_region_asks_for_nothing(house: House) -> None:
    assert passes(house.pin(2), 2)
    assert house.vgpu()["window_bytes"] == 0


def test_more_than_the_region_holds(house: House) -> None:
    assert passes(house.pin(8), 8)
    window_bytes = house.vgpu()["window_bytes"]
    assert REGION_BYTES < window_bytes <= LIMIT_BYTES
    house.await_idle()
    assert passes(house.pin(8), 8)
    assert house.vgpu()["window_bytes"] == window_bytes, "what is there is used again"


def test_two_programs_at_once(house: House) -> None:
    house.shell.run(f"/programs/pinned_memory {EACH_MIB} 5 >/tmp/other 2>&1 &")
    assert passes(house.pin(5), 5)
    other = house.shell.run("wait $!; code=$?; cat /tmp/other; (exit $code)", 240)
    assert passes(other, 5)


def test_the_limit(house: House) -> None:
    most = (house.all_bytes() - house.vgpu()["window_bytes"] + LIMIT_BYTES) // (EACH_MIB * MIB)
    answer = house.pin(100)
    nr_buffers = refused_at(answer)
    assert most - 3 <= nr_buffers <= most
    assert passes(answer, nr_buffers)
    assert house.vgpu()["window_bytes"] <= LIMIT_BYTES
    assert "beyond what it may have" in house.host.log()
    house.await_idle()


@ONE_RELEASE
def test_a_program_that_is_killed(house: House) -> None:
    hold = f"/programs/pinned_memory {EACH_MIB} 8 hold >/tmp/held 2>&1 &"
    assert house.shell.run(hold).exit_code == 0
    house.shell.run("until grep -q holding /tmp/held; do /bin/busybox usleep 20000; done", 240)
    assert house.vgpu()["region_free_bytes"] < house.all_bytes() - 7 * EACH_MIB * MIB
    house.shell.run("kill -9 $!; wait $!")
    house.await_idle()
    assert passes(house.pin(8), 8)


@ONE_RELEASE
def test_a_reset_gives_everything_back(house: House) -> None:
    house.shell.run(f"/programs/pinned_memory {EACH_MIB} 8 hold >/tmp/held 2>&1 &")
    house.shell.run("until grep -q holding /tmp/held; do /bin/busybox usleep 20000; done", 240)
    house.guest.domain.reset(0)
    house.shell.await_boot()
    wait_until(lambda: house.vgpu()["window_bytes"] == 0, "the pieces were given back")
    house.await_idle()
    assert passes(house.pin(8), 8)
    assert house.vgpu()["window_bytes"] > 0


@ONE_RELEASE
def test_an_ordinary_user_with_the_kernel_module(house: House) -> None:
    """Of a guest that was just reset. The window is as far as root's program before made it grow."""
    without = house.shell.run(f"{prepare()}; su {USER} -c '/usr/bin/fairgv-guest check'").output
    assert "note:     pinned memory does not grow beyond the region: the kernel module has not taken" in without
    assert house.shell.run(f"insmod {MODULE}; chgrp fairgv /dev/fairgv0").exit_code == 0
    pin = f"/programs/pinned_memory {EACH_MIB} 100"

    answer = house.user(pin)
    assert 0 < refused_at(answer) <= REGION_BYTES // MIB // EACH_MIB
    assert "no more pinned memory than the region has: /dev/fairgv-memory0 is not for this user" in answer.output
    assert f"/dev/fairgv-memory0 is not open to {USER}" in house.check()

    house.shell.run("chgrp fairgv /dev/fairgv-memory0")
    assert "works:    pinned memory grows beyond the region, through /dev/fairgv-memory0" in house.check()
    before = house.vgpu()["window_bytes"]
    answer = house.user(pin)
    assert before < house.vgpu()["window_bytes"] <= LIMIT_BYTES
    assert passes(answer, refused_at(answer))
    assert refused_at(answer) * EACH_MIB * MIB > LIMIT_BYTES
    house.await_idle()
    assert house.user("/programs/memory_module attack").output == "PASS"
    assert is_well(house.shell.run("dmesg").output)
    house.shell.run("rmmod fairgv")


@ONE_RELEASE
def test_a_daemon_that_is_started_anew(house: House) -> None:
    """It has not the descriptors of what is mapped: programs do with the region until the guest is reset."""
    assert house.vgpu()["window_bytes"] > 0
    stop_host(house.host)
    start_host(house.host.state_dir, libvirt_uri=house.uri, pinned_bytes=LIMIT_BYTES)
    wait_until(lambda: [vgpu["name"] for vgpu in house.host.status()["vgpus"]] == [NAME], "the guest is served again")
    answer = house.pin(100)
    nr_buffers = refused_at(answer)
    assert 0 < nr_buffers <= REGION_BYTES // MIB // EACH_MIB
    assert passes(answer, nr_buffers)
    assert "an earlier daemon" in house.host.log()
