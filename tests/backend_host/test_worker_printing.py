"""A worker asks the device library to synchronise while kernels may have printed, and no longer once it is known that none can."""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend_host.test_worker import PTX
from tests.backend_host.worker_guest import MODULE, ROOT, Guest, container, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

COUNTING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int cuCtxSynchronize(void)
{
    int (*next)(void) = dlsym(RTLD_NEXT, "cuCtxSynchronize");
    int file = open(getenv("FAIRGV_ASKED"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (write(file, "1", 1) != 1)
        abort();
    close(file);
    return next();
}
"""
LARGE_BYTES = 1 << 20
"""More than is looked into while the program waits."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counting")
    (folder / "counting.c").write_text(COUNTING)
    command = ["cc", "-shared", "-fPIC", str(folder / "counting.c"), "-Wl,--no-as-needed", str(SOFTGPU)]
    subprocess.run([*command, f"-Wl,-rpath,{SOFTGPU.parent}", "-o", str(folder / "libcuda.so")], check=True, cwd=ROOT)
    return folder / "libcuda.so"


class Asking:
    """A guest, and how often its worker asked."""

    def __init__(self, guest: Guest, count: Path) -> None:
        self.guest, self._count = guest, count
        count.touch()

    def load(self, module: int, machine_code: bytes) -> None:
        """An image with machine code beside its PTX."""
        head = struct.pack("<HHIQIIIIIIQQQ", 2, 0x101, 64, len(machine_code), 0, 0, 0, 80, 0, 0, 0, 0, 0)
        entries = container(PTX)[16:] + head + machine_code
        image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
        assert self.guest.load(image, module).result == 0

    def asks(self) -> bool:
        """Whether a synchronisation reaches the device library."""
        before = self._count.stat().st_size
        self.guest.ok("cuCtxSynchronize")
        return self._count.stat().st_size > before


@pytest.fixture
def asking(library: Path, tmp_path: Path) -> Iterator[Asking]:
    (tmp_path / "asked").touch()
    (tmp_path / "asked").chmod(0o666)  # it is opened before the worker has its user, and after
    host = Host(library, {"FAIRGV_ASKED": str(tmp_path / "asked")}, shared=[tmp_path])
    try:
        with make_region() as region:
            yield Asking(Served(host, region).primary(), tmp_path / "asked")
    finally:
        host.close()


def test_large_images_are_looked_into_while_the_program_goes_on(asking: Asking) -> None:
    asking.load(MODULE, bytes(LARGE_BYTES))
    wait_until(lambda: not asking.asks(), "found silent")
    asking.load(MODULE + 1, bytes(LARGE_BYTES // 2) + b"vprintf".ljust(LARGE_BYTES // 2))
    assert all(asking.asks() for _ in range(100))
    asking.load(MODULE + 2, bytes(LARGE_BYTES))
    assert all(asking.asks() for _ in range(100))


def test_small_ones_at_once(asking: Asking) -> None:
    asking.load(MODULE, bytes(64))
    assert not asking.asks()
    asking.load(MODULE + 1, b" vprintf")
    assert asking.asks()
