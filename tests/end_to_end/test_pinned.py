"""Pinned memory through FairGV, as much as programs want: many do not look at what they get, and crash."""

import sys

import pytest

from backend_host.config import Config, region_bytes_of_commands
from tests.end_to_end.host import Host

MIB = 1 << 20
TAKE = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
pointer, size = ctypes.c_void_p, ctypes.c_size_t
context, device = pointer(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for mib in map(int, sys.argv[1:]):
    pinned = pointer()
    print(cuda.cuMemHostAlloc(ctypes.byref(pinned), size(mib << 20), 0))
    if pinned.value:
        last = pinned.value + (mib << 20) - 8
        assert cuda.cuMemAlloc_v2(ctypes.byref(device), size(8)) == 0
        assert cuda.cuMemsetD8_v2(device, 7, size(8)) == 0
        assert cuda.cuMemcpyDtoH_v2(pointer(last), device, size(8)) == 0
        assert ctypes.string_at(last, 8) == bytes([7] * 8)
        assert cuda.cuMemFreeHost(pinned) == 0
"""
OUT_OF_MEMORY = 2


def test_half_of_the_machines_memory_is_there(host: Host) -> None:
    """Three quarters of it at once, and no more than a test should take."""
    most_mib = region_bytes_of_commands(Config()) * 3 // 4 // MIB
    result = host.guest(sys.executable, "-c", TAKE, "300", str(min(most_mib, 1024)))
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["0", "0"], "")


def test_what_does_not_fit_is_told_once_with_the_remedy(host: Host) -> None:
    result = host.guest(sys.executable, "-c", TAKE, "40", "1", "50", options=("--region", "16M"))
    assert (result.returncode, result.stdout.split()) == (0, [str(OUT_OF_MEMORY), "0", str(OUT_OF_MEMORY)])
    [line] = result.stderr.splitlines()
    assert line == (
        "fairgv: no room for 40 MiB of pinned or managed memory: there are 16 MiB for it; fairgv-run --region SIZE gives more"
    )


@pytest.mark.parametrize(("wanted", "bytes_"), [(0, None), (64 * MIB, 64 * MIB)])
def test_the_size_of_a_commands_region(wanted: int, bytes_: int | None) -> None:
    found = region_bytes_of_commands(Config(run_region_bytes=wanted))
    assert found & (found - 1) == 0
    assert found == bytes_ or (bytes_ is None and found >= 64 * MIB)
