"""One boot of each patched QEMU for the tests of its device."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.initramfs import PROGRAM_FOLDER, build_image
from backend_host.vm.kernel import Kernel, find_kernel
from tests.qemu.machine import WINDOW_BYTES, Machine
from tests.qemu.peer import HELLO, Peer
from tests.qemu.programs import build_program
from tests.qemu.scene import RELEASES, Scene
from tests.vm.guest_package import MODULE, module_for
from tests.vm.guest_shell import GuestShell, shell_command


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The guests'."""
    return find_kernel()


@pytest.fixture(scope="session")
def module(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FairGV's kernel module for them."""
    return module_for(kernel.release, tmp_path_factory.mktemp("kmod"))


@pytest.fixture(scope="session", params=RELEASES)
def scene(
    request: pytest.FixtureRequest, kernel: Kernel, module: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    emulator = PACKAGE_ROOT / "build/qemu" / request.param / "qemu-system-x86_64"
    assert emulator.exists(), "run qemu_patches/build first"
    folder = tmp_path_factory.mktemp(request.param)
    files = {PROGRAM_FOLDER / name: build_program(name, folder) for name in ("memory_client", "memory_module")}
    files[MODULE] = module
    image = build_image(folder, [shell_command()], files, kernel=kernel)
    with Machine(emulator, image, folder) as machine:
        shell = GuestShell(machine)
        shell.await_boot()
        yield Scene(machine, shell)


@pytest.fixture
def peer(scene: Scene) -> Iterator[Peer]:
    """One that has heard what the device is."""
    with Peer(scene.machine.peer_path) as peer:
        hello = peer.expect(HELLO)
        assert (hello.version, hello.nr_bytes) == (1, WINDOW_BYTES)
        yield peer
