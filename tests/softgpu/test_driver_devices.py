"""softgpu's devices beside each other: memory that goes from one to another, and one that fails."""

from __future__ import annotations

import pytest

from tests.softgpu.driver_harness import TIMEOUT_S, Device, heard, tell

pytestmark = pytest.mark.usefixtures("driver_cases")

UNAVAILABLE, ECC_UNCORRECTABLE = 46, 214


@pytest.mark.parametrize("wall", ["0", "1"])
def test_memory_goes_to_another_device_and_keeps_its_address(device: Device, wall: str) -> None:
    settings = {"FAIRGV_SOFTGPU_DEVICES": "2", "FAIRGV_SOFTGPU_MEMORY": "64M", "FAIRGV_SOFTGPU_WALL": wall}
    assert device.with_settings(**settings).run_case("move").stdout.splitlines() == [
        "used 8 0 MiB",
        "access 1 3",
        "used 8 8 MiB",
        "peers 1 1",
        "access 0 3",
        "used 0 8 MiB",
        "first 7",
        "last 7",
        "there 8",
        "nobody CUDA_ERROR_INVALID_VALUE",
        "PASS",
        "from home 8",
        "used 0 0 MiB",
    ]


def test_a_device_that_fails_fails_all_that_is_on_it_and_nothing_else(device: Device) -> None:
    two = device.with_settings(FAIRGV_SOFTGPU_DEVICES="2")
    process = two.start_case("fails")
    assert heard(process) == "running"
    two.fail(UNAVAILABLE)
    tell(process)
    for what in ("event", "synchronize", "allocate", "launch", "create", "context"):
        assert heard(process) == f"{what} CUDA_ERROR_DEVICE_UNAVAILABLE"
    assert [heard(process), heard(process)] == ["PASS", "other"]
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in two.run_case("works").stdout
    two.fail(0)
    tell(process)
    assert heard(process) == "later CUDA_ERROR_DEVICE_UNAVAILABLE"
    assert process.wait(TIMEOUT_S) == 0
    assert two.run_case("works").stdout.splitlines() == ["PASS"]


def test_a_kernel_that_runs_in_a_failure_is_the_last(device: Device) -> None:
    process = device.start_case("fails_within")
    assert heard(process) == "queued"
    device.fail(ECC_UNCORRECTABLE)
    tell(process)
    assert heard(process) == "synchronize CUDA_ERROR_ECC_UNCORRECTABLE"
    assert process.wait(TIMEOUT_S) == 0
    assert device.nr_kernels() == 1


def test_a_device_may_fail_before_its_first_kernel(device: Device) -> None:
    device.state.touch(0o666)  # as the daemon makes it
    process = device.start_case("allocate", "1")
    assert heard(process) == "allocate CUDA_SUCCESS"
    device.fail(UNAVAILABLE)
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in device.run_case("works").stdout


def test_a_failure_that_is_no_error_is_an_unknown_one(device: Device) -> None:
    assert device.run_case("works").stdout.splitlines() == ["PASS"]
    device.fail(0xFFFFFFFF)
    assert "CUDA_ERROR_UNKNOWN" in device.run_case("works").stdout
