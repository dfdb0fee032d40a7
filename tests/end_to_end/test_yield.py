"""A kernel that stays on the device gives it up when its word asks it to, beside kernels that end by themselves, and computes the same.

How close shares come and how long a kernel takes to end is for measurements to say: here other programs may use the processors meanwhile.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from benchmarks.build import build
from benchmarks.ratios import min_max_ratio
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.test_fairness import CLEARLY_FAIR, one_of

TIMES, MUCH = "2", "20"
WINDOW_S = 3
INVALID_VALUE, INVALID_CONTEXT = 1, 201
OPENS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64
def ok(result):
    assert result == 0, result
def allocate(nbytes):
    address = u64()
    ok(cuda.cuMemAlloc_v2(ctypes.byref(address), u64(nbytes)))
    return address.value
def attach(address):
    return cuda.fairgv_yield_attach(u64(address))
ok(cuda.cuInit(0))
context = ctypes.c_void_p()
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""
CALLS = """
assert (attach(0), cuda.fairgv_yield_detach()) == (201, 201), "no context is current"
ok(cuda.cuCtxSetCurrent(context))
small, large, pinned = allocate(64), allocate(8 << 20), ctypes.c_void_p()
ok(cuda.cuMemHostAlloc(ctypes.byref(pinned), u64(4096), 0))
managed = u64()
ok(cuda.cuMemAllocManaged(ctypes.byref(managed), u64(4096), 1))
print([attach(each) for each in (0, small + 2, small + 512, large + (8 << 20), pinned.value, managed.value, 2**64 - 4)])
print([attach(each) for each in (small, large, large + (8 << 20) - 4)])
print([cuda.fairgv_yield_detach() for _ in range(2)])
for address in (small, large):
    ok(attach(address))
    ok(cuda.cuMemFree_v2(u64(address)))
    print(attach(address), cuda.fairgv_yield_detach())
"""


@pytest.fixture
def strict_host(tmp_path: Path) -> Iterator[Host]:
    """One that waits for a second only before it ends what keeps others from the device."""
    running = start_host(tmp_path, watchdog_s=1)
    yield running
    stop_host(running)


def entry(host: Host, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in host.status()["vgpus"] if each["name"] == name), {})
    return found


def nr_gave_way(host: Host, name: str) -> int:
    found = entry(host, name)
    return sum(found["totals"]["nr_gave_way"].values()) if found else 0


@contextlib.contextmanager
def staying(host: Host, *options: str, times: str = TIMES) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program with a kernel that stays, and the file that lets the program end."""
    file = host.state_dir / "enough"
    child = host.start("gives_way", times, "word", str(file), options=("--vgpu", "long", *options))
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        yield child, file
    finally:
        file.touch()
        child.communicate(timeout=120)


@contextlib.contextmanager
def short_kernels(host: Host, *options: str) -> Iterator[None]:
    """A program with many of them, and never without."""
    command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--vgpu", "short"]
    program = [str(build("spin")), "--kernel-us", "200", "--queue", "64", "--seconds", "600"]
    child = subprocess.Popen([*command, *options, "--", *program], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: entry(host, "short").get("used_ns", 0) > 0, "it is served", 60)
        yield
    finally:
        child.terminate()
        child.communicate()


def test_both_get_on_and_the_bytes_are_the_same(strict_host: Host) -> None:
    alone = strict_host.guest("gives_way", TIMES, "plain")
    assert alone.returncode == 0, alone.stdout + alone.stderr
    with staying(strict_host) as (child, file):
        beside = strict_host.guest("matrix_mul", "6", "3000", options=("--vgpu", "short"))
        assert beside.returncode == 0, beside.stdout + beside.stderr
        assert nr_gave_way(strict_host, "long") > 3, "more than once, as it goes on where it was"
        shown = host_command(strict_host.state_dir, "status").stdout
        found = entry(strict_host, "long")
        file.touch()
        output, errors = child.communicate(timeout=120)
    assert (child.returncode, "running\n" + output) == (0, alone.stdout), errors
    assert found["nr_timed_out"] == 0
    assert found["totals"]["gave_way_ns"] > 0
    assert "long: gave way " in shown


def test_without_the_word_the_watchdog_ends_it(strict_host: Host) -> None:
    """The control: nothing else takes a kernel off this device. It stays for longer than that waits."""
    child = strict_host.start("gives_way", "100000", "plain", options=("--vgpu", "long"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    wait_until(lambda: entry(strict_host, "long").get("used_ns", 0) > 0, "it is on the device")
    keeper = strict_host.start("/bin/sleep", "600", options=("--vgpu", "long"))
    assert strict_host.guest("vector_add", options=("--vgpu", "short")).returncode == 0
    output, errors = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "cudaErrorLaunchTimeout" in output, output + errors
    assert entry(strict_host, "long")["nr_timed_out"] == 1
    keeper.terminate()
    keeper.communicate()


def shares(host: Host, weights: dict[str, int]) -> list[float]:
    """Of what each vGPU was charged over its weight, while both want the device all the time."""
    before = {name: entry(host, name)["used_ns"] for name in weights}
    time.sleep(WINDOW_S)
    return [(entry(host, name)["used_ns"] - before[name]) / weight for name, weight in weights.items()]


@pytest.mark.parametrize(
    "weights", [{"long": 1, "short": 1}, {"long": 1, "short": 3}, {"long": 3, "short": 1}], ids=str
)
def test_shares_are_by_weight(own_host: Host, weights: dict[str, int]) -> None:
    long, short = (("--weight", str(weights[name])) for name in ("long", "short"))
    with staying(own_host, *long), short_kernels(own_host, *short):
        attempt = lambda: min_max_ratio(shares(own_host, weights))  # noqa: E731
        assert one_of(attempt, lambda ratio: ratio > CLEARLY_FAIR) == []
        assert nr_gave_way(own_host, "long") > 0


def test_it_is_asked_when_its_limit_is_reached(own_host: Host) -> None:
    """Nobody else wants the device: it is paused, and goes on."""
    with staying(own_host, "--limit", "50") as (child, file):
        wait_until(lambda: nr_gave_way(own_host, "long") > 3, "it gives way again and again")
        assert entry(own_host, "long")["totals"]["limited_ns"] > 0
        file.touch()
        output, errors = child.communicate(timeout=120)
        assert (child.returncode, output.splitlines()[-1]) == (0, "PASS"), errors


@pytest.mark.parametrize("mover", ["replay", "checkpoint"])
def test_it_moves_in_the_midst_of_its_kernel(two_devices: None, tmp_path: Path, mover: str) -> None:
    """Twice, and nobody else wants a device: it is asked so that it can, and on the other one as well."""
    host = start_host(tmp_path, fast_moves=mover == "replay")
    try:
        alone = host.guest("gives_way", MUCH, "plain")
        with staying(host, times=MUCH) as (child, file):
            for _ in range(2):
                to = str(1 - entry(host, "long")["gpu_number"])
                moved = host_command(host.state_dir, "migrate", "long", "--to", to, "--mover", mover)
                assert moved.returncode == 0, moved.stdout + moved.stderr
                assert entry(host, "long")["gpu_number"] == int(to)
            assert nr_gave_way(host, "long") > 0
            file.touch()
            output, errors = child.communicate(timeout=120)
        assert (child.returncode, "running\n" + output) == (0, alone.stdout), errors
    finally:
        stop_host(host)


def test_what_the_calls_answer(own_host: Host, tmp_path: Path) -> None:
    """As a program meets them; a trace shows each."""
    traced = tmp_path / "trace"
    result = own_host.guest(sys.executable, "-c", OPENS + CALLS, options=("--trace", str(traced)))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        str([INVALID_VALUE] * 7),
        str([0] * 3),
        str([0] * 2),
        f"{INVALID_VALUE} 0",
        f"{INVALID_VALUE} 0",
    ]
    entries = [json.loads(line) for line in traced.read_text().splitlines()]
    calls = [(each["call"], each["class"], each["result"]) for each in entries if "yield" in each.get("call", "")]
    attached, refused = ("fairgv_yield_attach", "waited", "CUDA_SUCCESS"), "CUDA_ERROR_INVALID_VALUE"
    assert calls == [
        ("fairgv_yield_attach", "local", "CUDA_ERROR_INVALID_CONTEXT"),
        ("fairgv_yield_detach", "local", "CUDA_ERROR_INVALID_CONTEXT"),
        *[("fairgv_yield_attach", "local", refused)] * 7,
        *[attached] * 3,
        ("fairgv_yield_detach", "waited", "CUDA_SUCCESS"),
        ("fairgv_yield_detach", "local", "CUDA_SUCCESS"),
        *[attached, ("fairgv_yield_attach", "local", refused), ("fairgv_yield_detach", "local", "CUDA_SUCCESS")],
        *[attached, ("fairgv_yield_attach", "local", refused), ("fairgv_yield_detach", "waited", "CUDA_SUCCESS")],
    ]


def test_an_attached_word_shows_over_time(own_host: Host, tmp_path: Path) -> None:
    traced = tmp_path / "trace.json"
    assert own_host.guest("gives_way", options=("--trace", str(traced))).returncode == 0
    names = {event["name"] for event in json.loads(traced.read_text())["traceEvents"]}
    assert "fairgv_yield_attach" in names


def test_what_other_libraries_have_is_enough(own_host: Host) -> None:
    """Natively no such name is found, and the program does without."""
    native, guest = own_host.native("gives_way"), own_host.guest("gives_way")
    assert (native.returncode, native.stdout) == (guest.returncode, guest.stdout)
    assert native.stdout.splitlines()[-1] == "PASS"
