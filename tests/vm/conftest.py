"""One private libvirtd and one test program for all VM tests. What is missing on the machine fails here, with its sentence."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host.vm.accelerator import AcceleratorChoice, choose_accelerator
from backend_host.vm.private_libvirt import PrivateLibvirt


@pytest.fixture(scope="session")
def choice() -> AcceleratorChoice:
    """KVM or emulation, as the demo would choose."""
    return choose_accelerator()


@pytest.fixture(scope="session")
def instance() -> Iterator[PrivateLibvirt]:
    """A libvirtd that belongs to the tests."""
    with PrivateLibvirt() as running:
        yield running


@pytest.fixture(scope="module")
def beside_another_device() -> Iterator[Callable[[str], str]]:
    """Puts somebody else's shared memory device into a definition, at the first place: QEMU makes its memory, and leaves it."""
    name = f"mine-{os.getpid()}"
    device = f"<shmem name='{name}'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>"
    yield lambda definition: definition.replace("<devices>", f"<devices>{device}")
    (Path("/dev/shm") / name).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def ivshmem_word(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest program of `ivshmem_word.c`, dynamically linked."""
    program = tmp_path_factory.mktemp("programs") / "ivshmem_word"
    source = Path(__file__).with_name("ivshmem_word.c")
    options = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *options, "-o", str(program), str(source)], check=True)
    return program
