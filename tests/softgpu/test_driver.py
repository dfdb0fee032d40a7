"""softgpu's driver as programs see it: what it answers, what it refuses, what it survives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.softgpu.driver_harness import CASES, LIBRARY, ROOT, TIMEOUT_S, Device, heard, kill, tell

pytestmark = pytest.mark.usefixtures("driver_cases")

PROGRAMS = ROOT / "tests" / "programs"


def _passes(result: subprocess.CompletedProcess[str]) -> bool:
    return result.returncode == 0 and result.stdout.splitlines()[-1] == "PASS"


def test_fills_an_array(device: Device) -> None:
    result = device.run_case("works")
    assert _passes(result), result


CLOSES = """
import ctypes, pathlib, sys
library = ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
assert library.cuInit(0) == 0
assert library.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle)) == 0
print(sys.argv[1] in pathlib.Path("/proc/self/maps").read_text())
"""


def test_its_threads_keep_their_code_when_it_is_closed(device: Device) -> None:
    """A process that ends closes it before its threads end, where Python does so."""
    result = device.run(sys.executable, "-c", CLOSES, LIBRARY)
    assert (result.returncode, result.stdout) == (0, "True\n"), result


@pytest.mark.parametrize("threads", ["1", "3"])
def test_fibers_wait_for_each_other_and_exit_early(device: Device, threads: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_THREADS=threads).run_case("fibers")
    assert _passes(result), result


def test_many_threads_with_streams_of_their_own(device: Device) -> None:
    result = device.run_case("threads")
    assert _passes(result), result


def test_blocks_of_a_cooperative_launch_wait_for_each_other(device: Device) -> None:
    result = device.run_case("cooperative")
    assert result.stdout.splitlines() == ["large CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "PASS"]


def test_order_of_streams(device: Device) -> None:
    result = device.run_case("order")
    assert result.stdout.splitlines() == [
        "blocking CUDA_ERROR_NOT_READY",
        "legacy CUDA_ERROR_NOT_READY",
        "third CUDA_ERROR_NOT_READY",
        "event CUDA_ERROR_NOT_READY",
        "waiting CUDA_ERROR_NOT_READY",
        "event CUDA_SUCCESS",
        "PASS",
    ]


def test_a_thread_has_a_stream_of_its_own_in_each_context(device: Device) -> None:
    result = device.run_case("own_streams")
    assert result.stdout.splitlines() == [
        "other CUDA_SUCCESS",
        "again CUDA_ERROR_NOT_READY",
        "waited CUDA_SUCCESS",
        "after CUDA_SUCCESS",
        "PASS",
    ]


def test_a_row_of_commands_in_a_stream_needs_one_thread(device: Device) -> None:
    """Who ends one takes the next; nobody else is woken for it."""
    assert device.run_case("row").stdout.splitlines() == ["threads +0", "PASS"]


def test_wrong_calls_are_refused(device: Device) -> None:
    result = device.run_case("wrong_calls")
    assert result.stdout.splitlines() == [
        "before CUDA_ERROR_NOT_INITIALIZED",
        "free CUDA_ERROR_INVALID_VALUE",
        "freehost CUDA_ERROR_INVALID_VALUE",
        "past CUDA_ERROR_INVALID_VALUE",
        "nowhere CUDA_ERROR_INVALID_VALUE",
        "hostasdevice CUDA_ERROR_INVALID_VALUE",
        "unaligned CUDA_ERROR_INVALID_VALUE",
        "nofunction CUDA_ERROR_INVALID_HANDLE",
        "nogrid CUDA_ERROR_INVALID_VALUE",
        "bigblock CUDA_ERROR_INVALID_VALUE",
        "shared CUDA_ERROR_INVALID_VALUE",
        "noparameters CUDA_ERROR_INVALID_VALUE",
        "stream CUDA_ERROR_INVALID_HANDLE",
        "destroyed CUDA_ERROR_INVALID_HANDLE",
        "unrecorded CUDA_ERROR_INVALID_HANDLE",
        "attribute CUDA_ERROR_INVALID_VALUE",
        "toobig CUDA_ERROR_OUT_OF_MEMORY",
        "PASS",
    ]


def test_memory_is_bounded_over_all_processes(device: Device) -> None:
    small = device.with_settings(FAIRGV_SOFTGPU_MEMORY="64M")
    first = small.start_case("allocate", "48")
    assert heard(first) == "allocate CUDA_SUCCESS"
    assert heard(first) == "free 16 of 64 MiB"
    second = small.start_case("allocate", "17")
    assert heard(second) == "allocate CUDA_ERROR_OUT_OF_MEMORY"
    assert heard(second) == "free 16 of 64 MiB"
    tell(second)
    assert second.wait(TIMEOUT_S) == 1
    kill(first)
    third = small.start_case("allocate", "64")
    assert heard(third) == "allocate CUDA_SUCCESS"
    assert heard(third) == "free 0 of 64 MiB"
    tell(third)
    assert third.wait(TIMEOUT_S) == 0


def test_kernels_of_two_processes_are_served_one_at_a_time(device: Device) -> None:
    counts = device.folder / "counts"
    counts.write_bytes(bytes(4096))
    processes = [device.start_case("alone", str(counts)) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, output) == (0, "PASS\n")
    running, overlaps = counts.read_bytes()[:4], counts.read_bytes()[4:8]
    assert (running, overlaps) == (bytes(4), bytes(4))
    assert device.nr_kernels() == 600


def test_a_killed_process_gives_its_turn_back(device: Device) -> None:
    holder = device.start_case("hold")
    assert heard(holder) == "running"
    waiting = device.start_case("queue")
    assert heard(waiting) == "loaded"
    tell(waiting)
    assert heard(waiting) == "query CUDA_ERROR_NOT_READY"
    assert device.nr_kernels() == 0
    kill(holder)
    assert heard(waiting) == "PASS"
    assert waiting.wait(TIMEOUT_S) == 0
    assert device.nr_kernels() == 1


def test_a_killed_waiter_is_skipped(device: Device) -> None:
    holder = device.start_case("hold")
    assert heard(holder) == "running"
    waiters = [device.start_case("queue") for _ in range(3)]
    for waiter in waiters:
        assert heard(waiter) == "loaded"
        tell(waiter)
        assert heard(waiter) == "query CUDA_ERROR_NOT_READY"
    kill(waiters[0])
    kill(waiters[1])
    tell(holder)
    assert heard(holder) == "PASS"
    assert heard(waiters[2]) == "PASS"
    assert (holder.wait(TIMEOUT_S), waiters[2].wait(TIMEOUT_S)) == (0, 0)


def test_exit_with_a_kernel_in_flight(device: Device) -> None:
    result = device.run_case("hold", "exit")
    assert (result.returncode, result.stdout) == (0, "running\n")
    assert _passes(device.run_case("works"))


def test_a_fault_is_sticky_and_a_reset_does_not_help(device: Device) -> None:
    result = device.run_case("fault")
    assert result.stdout.splitlines() == [
        "synchronize CUDA_ERROR_ILLEGAL_ADDRESS",
        "allocate CUDA_ERROR_ILLEGAL_ADDRESS",
        "launch CUDA_ERROR_ILLEGAL_ADDRESS",
        "retain CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


def test_a_fault_is_that_of_all_contexts_of_the_process_and_of_no_other_process(device: Device) -> None:
    waiting = device.start_case("queue")
    assert heard(waiting) == "loaded"
    result = device.run_case("two_contexts")
    assert result.stdout.splitlines() == [
        "first CUDA_ERROR_ILLEGAL_ADDRESS",
        "second CUDA_ERROR_ILLEGAL_ADDRESS",
        "third CUDA_ERROR_ILLEGAL_ADDRESS",
        "destroyed CUDA_ERROR_INVALID_CONTEXT",
    ]
    tell(waiting)
    output, _ = waiting.communicate(timeout=TIMEOUT_S)
    assert output.splitlines()[-1] == "PASS"


@pytest.mark.parametrize("case", ["trap", "deadlock"])
def test_a_kernel_that_cannot_go_on_fails_its_launch(device: Device, case: str) -> None:
    assert device.run_case(case).stdout == "synchronize CUDA_ERROR_LAUNCH_FAILED\n"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_the_program_reaches_its_own_handler(device: Device, when: str) -> None:
    result = device.run_case("own_fault", when)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "the program's own handler")


def test_a_fault_of_the_program_without_a_handler_kills_it(device: Device) -> None:
    assert device.run_case("own_fault", "none").returncode == -11


def test_a_forked_child_has_no_device(device: Device) -> None:
    result = device.run_case("fork")
    assert result.stdout.splitlines() == [
        "PASS",
        "child CUDA_ERROR_NOT_INITIALIZED",
        "child init CUDA_ERROR_NOT_INITIALIZED",
        "PASS",
    ]


@pytest.mark.parametrize("damage", [b"", b"\xff" * 70000, b"rubbish", bytes(64) + b"\xff" * 65536])
def test_a_damaged_shared_file_crashes_nobody(device: Device, damage: bytes) -> None:
    assert _passes(device.run_case("works"))
    device.state.write_bytes(damage)
    result = device.run_case("works")
    assert _passes(result), result


def test_the_shared_file_is_for_everybody(device: Device) -> None:
    assert _passes(device.run_case("works"))
    assert device.state.stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(("devices", "result"), [("0", 1), ("2", 0), ("many", 0)])
def test_number_of_devices(device: Device, devices: str, result: int) -> None:
    assert device.with_settings(FAIRGV_SOFTGPU_DEVICES=devices).run_case("works").returncode == result
    assert (device.folder / "state.1").exists() == (devices == "2")


@pytest.mark.parametrize(("visible", "result"), [("1", 0), ("1,0", 0), ("", 1), ("2", 1), ("-1", 1), ("0,7", 0)])
def test_visible_devices(device: Device, visible: str, result: int) -> None:
    chosen = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", CUDA_VISIBLE_DEVICES=visible)
    assert chosen.run_case("works").returncode == result
    assert (device.folder / "state.1").exists() == (visible[:1] == "1")


def test_two_devices_have_nothing_to_do_with_each_other(device: Device) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", FAIRGV_SOFTGPU_MEMORY="64M")
    assert two.run_case("two_devices").stdout.splitlines() == [
        "2 devices",
        "third CUDA_ERROR_OUT_OF_MEMORY",
        "PASS",
        "copied 77",
        "second CUDA_ERROR_LAUNCH_FAILED",
        "PASS",
        "again CUDA_ERROR_LAUNCH_FAILED",
    ]


@pytest.mark.parametrize("kind", ["load", "store", "vector", "atomic", "copy", "shared", "local", "together"])
def test_a_misaligned_access_is_a_fault(device: Device, kind: str) -> None:
    expected = [f"{kind} CUDA_ERROR_MISALIGNED_ADDRESS", "later CUDA_ERROR_MISALIGNED_ADDRESS"]
    assert device.run_case("misaligned", kind).stdout.splitlines() == expected


@pytest.mark.parametrize(
    "kind",
    ["load", "store", "vector", "atomic", "strong", "byte", "generic", "copy", "together", "waiting", "parameter"],
)
def test_an_access_to_memory_of_the_program_is_a_fault(device: Device, kind: str) -> None:
    expected = [f"{kind} CUDA_ERROR_ILLEGAL_ADDRESS", "later CUDA_ERROR_ILLEGAL_ADDRESS"]
    assert device.run_case("stray", kind).stdout.splitlines() == expected


def test_the_source_of_no_bytes_may_be_anywhere(device: Device) -> None:
    assert device.run_case("stray", "nothing").stdout.splitlines() == ["nothing CUDA_SUCCESS", "later CUDA_SUCCESS"]


def test_memory_of_the_program_is_the_devices_while_it_is_registered(device: Device) -> None:
    assert device.run_case("own_memory").stdout.splitlines() == [
        "registered 9",
        "pinned 2",
        "unregistered CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


def test_no_symbol_of_the_table_is_missing() -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(CASES.parents[1] / "softgpu" / "libcuda.so.1")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines() if line.split()[-1].startswith("cu")] == []


@pytest.mark.parametrize("name", sorted(source.stem for source in PROGRAMS.glob("*.cu")))
def test_program_of_nvcc(device: Device, name: str) -> None:
    built = subprocess.run(
        [sys.executable, str(PROGRAMS / "build.py"), name], check=True, capture_output=True, text=True
    )
    result = device.run(built.stdout.strip())
    assert _passes(result), result
