"""A worker whose forks fail: softgpu has no compiler for a module then, and no process for its kernels. The guest is told."""

import contextlib
import secrets
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.backend_host.test_worker_parts import BOXES, Kernels, expected
from tests.backend_host.worker_guest import FUNCTION, MODULE, Guest, kernel_image
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

PTX = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry put(.param .u64 where)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [where];
    st.global.u32 [%rd1], VALUE;
    ret;
}
"""
VALUE = secrets.randbelow(1 << 31)
"""Compiled code is kept; this is code that nobody has compiled yet."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("failing_fork") / "failing_fork.so"
    source = Path(__file__).with_name("failing_fork.c")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(built)], check=True)
    return built


@pytest.fixture
def no_forks(tmp_path: Path) -> Path:
    """While this file is there."""
    return tmp_path / "no-forks"


@pytest.fixture
def guest(library: Path, no_forks: Path, region: Region) -> Iterator[Guest]:
    environment = {"LD_PRELOAD": str(library), "FAIRGV_NO_FORKS": str(no_forks)}
    host = Host(SOFTGPU, environment, shared=[library.parent, no_forks.parent])
    guest = Served(host, region).primary()
    yield guest
    guest.close()
    host.close()


def function_of(guest: Guest, module: int) -> None:
    guest.ok("cuModuleGetFunction", b"put", module=module, handle=FUNCTION, name_bytes=3, chunk=1)


def value_of_a_launch(guest: Guest) -> int:
    """What the kernel puts into zeroed memory."""
    address = int(guest.ok("cuMemAlloc_v2", bytesize=4).dptr)
    guest.cast_off("cuMemsetD32_v2", dstDevice=address, ui=0, N=1)
    guest.launch(FUNCTION, struct.pack("<Q", address))
    return int(struct.unpack("<I", guest.from_device(address, 4))[0])


def test_a_module_that_no_compiler_can_be_started_for_is_refused(guest: Guest, no_forks: Path) -> None:
    no_forks.touch()
    assert guest.load(kernel_image(PTX.replace("VALUE", str(VALUE))), MODULE).result != 0
    no_forks.unlink()
    assert guest.load(kernel_image(PTX.replace("VALUE", str(VALUE))), MODULE + 1).result == 0
    function_of(guest, MODULE + 1)
    assert value_of_a_launch(guest) == VALUE


def test_a_kernel_without_a_process_to_run_in_is_an_error_and_no_hang(guest: Guest, no_forks: Path) -> None:
    assert guest.load(kernel_image(PTX.replace("VALUE", str(VALUE))), MODULE).result == 0
    function_of(guest, MODULE)
    no_forks.touch()
    guest.launch(FUNCTION, struct.pack("<Q", int(guest.ok("cuMemAlloc_v2", bytesize=4).dptr)))
    assert guest.call("cuCtxSynchronize").result != 0


@pytest.mark.parametrize("waits", [0, 1], ids=["beside", "waits"])
def test_a_kernel_goes_whole_for_whose_variant_no_thread_can_be_started(
    library: Path, no_forks: Path, region: Region, waits: int
) -> None:
    environment = {"LD_PRELOAD": str(library), "FAIRGV_NO_FORKS": str(no_forks)}
    shared = [library.parent, no_forks.parent]
    with contextlib.closing(Host(SOFTGPU, environment, is_preemptive=not waits, shared=shared)) as host:
        kernels = Kernels(Served(host, region, slicing=BOXES | {"waits_for_variant": waits}))
        kernels.count(1)
        assert kernels.words(1) == expected(nr_blocks=1)
        no_forks.touch()
        kernels.count()
        assert kernels.words() == expected()
        assert kernels.reading().whole == {"not compiled": 1}
