"""Managed memory in the ways that are not the usual one here; conformance has that. And what it takes, and gives back."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.build import CASES, RUNTIME, build_all
from tests.end_to_end.host import TIMEOUT_S, Host

SOURCE = "".join(path.read_text() for path in sorted(CASES.glob("runtime_managed*.cu")))
ALONE = re.findall(r"^ALONE\((\w+)\)", SOURCE, re.MULTILINE)
TOGETHER = re.findall(r"^CASE\((\w+)\)", SOURCE, re.MULTILINE)
SYSTEM_CALLS = "managed_system_calls"
WAYS = {"by signal": {"FAIRGV_TRAP": "signal"}, "on the host": {"FAIRGV_MANAGED": "host"}}
LINE = (
    "fairgv: system calls fail with EFAULT for managed memory that the device has, as this user may not open /dev/userfaultfd;"
    " FAIRGV_MANAGED=host keeps that memory where they reach it"
)
WITHOUT_FAULTS = (
    "mount --bind /dev/null /dev/userfaultfd && exec setpriv --inh-caps=-sys_ptrace --bounding-set=-sys_ptrace"
)

ALLOCATE = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
size = ctypes.c_size_t
context, device = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

def free():
    free, all = size(), size()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(all)) == 0
    return free.value

def use(mib):
    assert cuda.cuMemAllocManaged(ctypes.byref(device), size(mib << 20), 1) == 0, mib
    ctypes.memset(device.value, 1, mib << 20)
    taken = free()
    assert cuda.cuMemsetD8_v2(device, 7, size(mib << 19)) == 0
    assert cuda.cuCtxSynchronize() == 0
    assert ctypes.string_at(device.value, mib << 20) == b"\\7" * (mib << 19) + b"\\1" * (mib << 19)
    assert cuda.cuMemFree_v2(device) == 0
    return taken

def maps():
    return sum("fairgv-managed" in line for line in open("/proc/self/maps"))

def left():
    return free(), len(os.listdir("/proc/self/fd")), maps()
"""


@pytest.fixture(scope="module")
def native(host: Host) -> dict[str, str]:
    """Case to what it prints."""
    build_all()
    return {name: host.native(str(RUNTIME), name).stdout for name in [*TOGETHER, *ALONE]}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_shows_the_same(host: Host, native: dict[str, str], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setenv(name, value)
    together = [name for name in TOGETHER if (name, way) != (SYSTEM_CALLS, "by signal")]
    for names in [together, *([name] for name in ALONE)]:
        result = host.guest(RUNTIME, *names)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == "".join(native[name] for name in names)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hide a device")
def test_without_userfaultfd_it_is_said_what_does_not_work(host: Host, native: dict[str, str]) -> None:
    hidden = ["unshare", "-m", "sh", "-c"]
    if subprocess.run([*hidden, "mount --bind /dev/null /dev/userfaultfd"], check=False).returncode != 0:
        pytest.skip("no mounts here")
    command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--", str(RUNTIME)]
    result = subprocess.run(
        [*hidden, f'{WITHOUT_FAULTS} "$@"', "sh", *command, "managed_in_turn"],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (result.returncode, result.stdout) == (0, native["managed_in_turn"])
    assert result.stderr.splitlines() == [LINE]


def test_what_the_quota_has_no_room_for_lies_on_the_host(host: Host) -> None:
    program = f"{ALLOCATE}\nbefore = free()\nprint(before - use(8) >= 8 << 20, before - use(200))"
    result = host.guest(sys.executable, "-c", program, options=("--memory", "100M"))
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["True", "0"], "")


def test_all_of_it_is_given_back(host: Host) -> None:
    program = f"""{ALLOCATE}
use(1), use(3)
before = left()
for _ in range(6):
    use(1), use(3), use(40)
print(before == left(), before[2])
use(2)
assert cuda.cuMemAllocManaged(ctypes.byref(device), size(4 << 20), 1) == 0
assert maps() > 0
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
print(maps())
"""
    result = host.guest(sys.executable, "-c", program)
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["True", "0", "0"], "")


def moved_bytes(host: Host, advises: bool) -> list[list[int]]:
    """What went to the device and from it, after each of three sets between which the program touches the memory once."""
    program = f"""{ALLOCATE}
assert cuda.cuMemAllocManaged(ctypes.byref(device), size(8 << 20), 1) == 0
assert not {advises} or cuda.cuMemAdvise(device, size(8 << 20), 3, -1) == 0
ctypes.memset(device.value, 1, 8 << 20)
for round in range(3):
    assert cuda.cuMemsetD8_v2(device, 7, size(1 << 20)) == 0
    assert cuda.cuCtxSynchronize() == 0
    if round == 2:
        assert ctypes.string_at(device.value, 1) == b"\\7"
    print(round, flush=True)
    input()
"""
    child = host.start(sys.executable, "-c", program, options=("--vgpu", "touching"), stdin=subprocess.PIPE)
    moved = []
    assert child.stdin is not None
    assert child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
        vgpu = next(vgpu for vgpu in host.status()["vgpus"] if vgpu["name"] == "touching")
        moved.append([vgpu["clients"][0][key] for key in ("to_device_bytes", "from_device_bytes")])
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.wait() == 0
    child.communicate()
    return moved


def test_kernels_move_nothing_that_the_program_does_not_touch(host: Host) -> None:
    """And a touch brings 64 KiB."""
    assert moved_bytes(host, advises=False) == [[8 << 20, 0], [8 << 20, 0], [8 << 20, 64 << 10]]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_moves_that_is_to_stay_with_the_cpu(host: Host, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setenv(name, value)
    assert moved_bytes(host, advises=True) == [[0, 0]] * 3


HOSTED = f"""{ALLOCATE}
def allocate(mib):
    at = ctypes.c_uint64()
    assert cuda.cuMemAllocManaged(ctypes.byref(at), size(mib << 20), 1) == 0, mib
    return at

def advise(at, mib, prefers_host=True):
    assert cuda.cuMemAdvise(at, size(mib << 20), 3 if prefers_host else 4, -1) == 0

def is_right(at, mib):
    half = mib << 19
    ctypes.memset(at.value, 1, mib << 20)
    assert cuda.cuMemsetD8_v2(at, 7, size(half)) == 0
    return ctypes.string_at(at.value, mib << 20) == b"\\7" * half + b"\\1" * half
"""


def test_memory_that_is_to_stay_with_the_cpu_takes_none_of_the_device(host: Host) -> None:
    """Nor is there any left of it when it is freed, or a context ends."""
    program = f"""{HOSTED}
is_right(allocate(1), 1)
before = left()
for round in range(20):
    at = allocate(40)
    advise(at, 40)
    print(is_right(at, 40), before[0] - free())
    if round % 2 == 0:
        advise(at, 40, prefers_host=False)
        print(is_right(at, 40), before[0] - free() >> 20)
    assert cuda.cuMemFree_v2(at) == 0
print(left() == before)
advise(allocate(40), 40)
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
at = allocate(40)
advise(at, 40)
print(is_right(at, 40))
"""
    result = host.guest(sys.executable, "-c", program, options=("--region", "64M"))
    odd, even = ["True 0"], ["True 0", "True 40"]
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [*[*even, *odd] * 10, "True", "True"]


def test_where_the_region_is_full_it_goes_to_the_device_and_back(host: Host) -> None:
    program = f"""{HOSTED}
at = allocate(100)
for _ in range(2):
    advise(at, 100)
    print(is_right(at, 100))
"""
    result = host.guest(sys.executable, "-c", program, options=("--region", "64M"))
    assert (result.returncode, result.stdout.split()) == (0, ["True", "True"])
    assert result.stderr.splitlines() == [
        "fairgv: no room for 100 MiB of pinned or managed memory: there are 64 MiB for it; fairgv-run --region SIZE gives more"
    ]


def test_it_stays_with_the_cpu_where_the_device_has_no_room(host: Host) -> None:
    program = f"""{HOSTED}
at = allocate(80)
advise(at, 80)
assert cuda.cuMemAlloc_v2(ctypes.byref(device), size(90 << 20)) == 0
advise(at, 80, prefers_host=False)
print(is_right(at, 80))
assert cuda.cuMemFree_v2(device) == 0
advise(at, 80, prefers_host=False)
print(is_right(at, 80))
"""
    result = host.guest(sys.executable, "-c", program, options=("--memory", "100M"))
    assert (result.returncode, result.stdout.split()) == (0, ["True", "True"])
    assert result.stderr.splitlines() == [
        "fairgv: managed memory stays with the CPU, though it need not any more (error 2)"
    ]


def test_memory_that_is_not_there_any_more_is_a_crash_and_not_a_wait(host: Host) -> None:
    program = f"{ALLOCATE}\nuse(4)\nctypes.string_at(device.value, 1)"
    for way in ("faults", "signal"):
        os.environ["FAIRGV_TRAP"] = way
        try:
            assert host.guest(sys.executable, "-c", program).returncode == 139
        finally:
            del os.environ["FAIRGV_TRAP"]


def test_a_handler_of_the_programs_own_still_gets_what_is_not_ours(host: Host, tmp_path: Path) -> None:
    """Python's, set after ours was: it prints where the program was, and the program ends as without us."""
    program = f"""{ALLOCATE}
import faulthandler
os.environ["FAIRGV_TRAP"] = "signal"
use(4)
faulthandler.enable()
use(4)
ctypes.string_at(16, 1)
"""
    result = host.guest(sys.executable, "-c", program)
    assert result.returncode == 139
    assert "Fatal Python error: Segmentation fault" in result.stderr


def test_as_many_pieces_as_the_kernel_has_are_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mapping of this process can be cut any more: a touch in the middle brings all of it."""
    program = f"""{ALLOCATE}
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_uint64
assert cuda.cuMemAllocManaged(ctypes.byref(device), size(32 << 20), 1) == 0
for round in range(2):
    assert cuda.cuMemsetD8_v2(device, 7 + round, size(32 << 20)) == 0
    assert cuda.cuCtxSynchronize() == 0
    if round == 0:
        for i in range(1 << 20):
            if libc.mmap(None, size(4096), i % 2, 0x22, -1, ctypes.c_long(0)) == 2**64 - 1:
                break
    print(ctypes.string_at(device.value + (17 << 20), 2), ctypes.string_at(device.value, 1))
"""
    monkeypatch.setenv("FAIRGV_TRAP", "signal")
    result = host.guest(sys.executable, "-c", program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [r"b'\x07\x07' b'\x07'", r"b'\x08\x08' b'\x08'"]


def test_a_kernel_waits_for_a_word_of_the_programs_where_the_memory_lies_on_the_host(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRGV_MANAGED", "host")
    result, natively = host.guest("managed_words", "waits"), host.native("managed_words", "waits")
    assert (result.returncode, result.stdout, result.stderr) == (0, natively.stdout, "")


def test_a_kernel_and_a_program_that_wait_for_each_other_are_told_of(host: Host) -> None:
    child = host.start("managed_words", "waits")
    try:
        assert child.stderr is not None
        line = child.stderr.readline()
    finally:
        child.kill()
        child.communicate()
    assert line.startswith("fairgv: a touch of managed memory has waited for the device for 10 s; ")
    assert "FAIRGV_MANAGED=host" in line
    assert host.guest("managed_words").returncode == 0, "the device is there for others"
