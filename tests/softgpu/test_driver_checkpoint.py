"""Checkpoints of a process by itself: states and errors are those of two H200s (docs/lab/softgpu.md)."""

from __future__ import annotations

import pytest

from tests.programs.build import build_one
from tests.softgpu.driver_harness import TIMEOUT_S, Device, heard, kill, tell

pytestmark = pytest.mark.usefixtures("driver_cases")

RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2


def test_each_call_in_each_state(device: Device) -> None:
    assert device.run_case("checkpoint_states").stdout.splitlines() == [
        "before CUDA_ERROR_NOT_INITIALIZED",
        "nowhere CUDA_ERROR_INVALID_VALUE",
        "nobody CUDA_ERROR_OPERATING_SYSTEM",
        "thread 1",
        f"checkpoint {RUNNING} CUDA_ERROR_ILLEGAL_STATE",
        f"restore {RUNNING} CUDA_ERROR_ILLEGAL_STATE",
        f"unlock {RUNNING} CUDA_ERROR_ILLEGAL_STATE",
        f"reserved {RUNNING} CUDA_ERROR_INVALID_VALUE",
        f"lock {LOCKED} CUDA_SUCCESS",
        f"lock {LOCKED} CUDA_ERROR_ILLEGAL_STATE",
        f"restore {LOCKED} CUDA_ERROR_ILLEGAL_STATE",
        f"checkpoint {CHECKPOINTED} CUDA_SUCCESS",
        f"checkpoint {CHECKPOINTED} CUDA_ERROR_ILLEGAL_STATE",
        f"lock {CHECKPOINTED} CUDA_ERROR_ILLEGAL_STATE",
        f"unlock {CHECKPOINTED} CUDA_ERROR_ILLEGAL_STATE",
        f"restore {LOCKED} CUDA_SUCCESS",
        f"restore {LOCKED} CUDA_ERROR_ILLEGAL_STATE",
        f"unlock {RUNNING} CUDA_SUCCESS",
        "PASS",
    ]


def _go(device: Device, *pairs: str) -> list[str]:
    process = device.start_case("checkpoint_pairs")
    output, _ = process.communicate("".join(f"{one}\n" for one in pairs), timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    return output.splitlines()


@pytest.mark.parametrize("pairs", ["01", "0111", "0910", "9110", "0101", "011001", "00"])
def test_pairs_that_do_not_name_each_device_once_are_refused(device: Device, pairs: str) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2")
    assert _go(two, pairs) == [f"{pairs} {CHECKPOINTED} CUDA_ERROR_INVALID_VALUE", "uuid 0 bus 0000:F0:00.0", "PASS"]


def test_the_uuid_moves_and_the_bus_stays(device: Device) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2")
    assert _go(two, "0110", "", "1001", "0011") == [
        f"0110 {LOCKED} CUDA_SUCCESS",
        "uuid 1 bus 0000:F0:00.0",
        f" {LOCKED} CUDA_SUCCESS",
        "uuid 1 bus 0000:F0:00.0",
        f"1001 {LOCKED} CUDA_SUCCESS",
        "uuid 0 bus 0000:F0:00.0",
        f"0011 {LOCKED} CUDA_SUCCESS",
        "uuid 0 bus 0000:F0:00.0",
        "PASS",
    ]
    assert two.nr_kernels() == 1


def test_pairs_name_devices_that_the_process_does_not_see_too(device: Device) -> None:
    one = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", CUDA_VISIBLE_DEVICES="0")
    assert _go(one, "01", "0110") == [
        f"01 {CHECKPOINTED} CUDA_ERROR_INVALID_VALUE",
        "uuid 0 bus 0000:F0:00.0",
        f"0110 {LOCKED} CUDA_SUCCESS",
        "uuid 1 bus 0000:F0:00.0",
        "PASS",
    ]
    assert one.nr_kernels() == 0
    assert (device.folder / "state.1").exists()


def _free_mib(device: Device, number: int) -> int:
    """Of 64, on this device of the machine, as another process sees it."""
    other = device.with_settings(CUDA_VISIBLE_DEVICES=str(number)).start_case("allocate", "1")
    assert heard(other) == "allocate CUDA_SUCCESS"
    free = int(heard(other).split()[1]) + 1
    kill(other)
    return free


def test_a_checkpoint_gives_the_memory_back_and_a_restore_takes_it_where_it_goes(device: Device) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", FAIRGV_SOFTGPU_MEMORY="64M")
    process = two.start_case("checkpoint_memory")
    assert heard(process) == "allocated"
    assert (_free_mib(two, 0), _free_mib(two, 1)) == (24, 64)
    tell(process)
    assert heard(process) == "checkpointed"
    assert (_free_mib(two, 0), _free_mib(two, 1)) == (64, 64)
    tell(process)
    assert heard(process) == f"restore {LOCKED} CUDA_SUCCESS"
    assert heard(process) == f"again {LOCKED} CUDA_ERROR_ILLEGAL_STATE"
    assert heard(process) == f"unlock {RUNNING} CUDA_SUCCESS"
    assert (_free_mib(two, 0), _free_mib(two, 1)) == (64, 24)
    tell(process)
    assert [heard(process), heard(process)] == ["value 77", "PASS"]
    assert process.wait(TIMEOUT_S) == 0


def test_a_restore_that_finds_no_memory_is_the_last(device: Device) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2", FAIRGV_SOFTGPU_MEMORY="64M")
    process = two.start_case("checkpoint_memory")
    assert heard(process) == "allocated"
    tell(process)
    assert heard(process) == "checkpointed"
    other = two.with_settings(CUDA_VISIBLE_DEVICES="1").start_case("allocate", "32")
    assert heard(other) == "allocate CUDA_SUCCESS"
    tell(process)
    assert heard(process) == f"restore {CHECKPOINTED} CUDA_ERROR_OUT_OF_MEMORY"
    kill(other)
    assert heard(process) == f"again {CHECKPOINTED} CUDA_ERROR_OPERATING_SYSTEM"
    assert heard(process) == f"unlock {CHECKPOINTED} CUDA_ERROR_ILLEGAL_STATE"
    assert (_free_mib(two, 0), _free_mib(two, 1)) == (64, 64)
    tell(process)
    assert process.poll() is None, "its next call never returns"


def test_a_kernel_that_does_not_end_keeps_the_process_as_it_is(device: Device) -> None:
    assert device.run_case("checkpoint_timeout").stdout.splitlines() == [
        f"lock {RUNNING} CUDA_ERROR_NOT_READY",
        "query CUDA_ERROR_NOT_READY",
        f"lock {LOCKED} CUDA_SUCCESS",
        f"unlock {RUNNING} CUDA_SUCCESS",
        "PASS",
    ]


def test_threads_that_call_meanwhile_go_on_afterwards(device: Device) -> None:
    assert device.run_case("checkpoint_blocks").stdout.splitlines() == ["late 0", "ended 2", "PASS"]


@pytest.mark.parametrize("kind", ["managed", "variable", "memory", "event"])
def test_what_cannot_be_checkpointed_is_refused(device: Device, kind: str) -> None:
    expected = [f"checkpoint {LOCKED} CUDA_ERROR_NOT_SUPPORTED", "PASS"]
    assert device.run_case("checkpoint_refused", kind).stdout.splitlines() == expected


@pytest.mark.parametrize("devices", ["1", "2", "3"])
@pytest.mark.parametrize("wall", ["0", "1"])
def test_everything_goes_round_all_devices(device: Device, devices: str, wall: str) -> None:
    several = device.with_settings(FAIRGV_SOFTGPU_DEVICES=devices, FAIRGV_SOFTGPU_WALL=wall)
    result = several.run(build_one("checkpoint"))
    assert result.stdout.splitlines() == ["checkpointed: 1", "1" * 8] * 3 + ["launches: 1", "PASS"], result
