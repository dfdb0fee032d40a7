"""Memory and events that processes of one softgpu share: what each sees, how it is counted, and who dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.softgpu.driver_harness import TIMEOUT_S, Device, heard, kill, tell


@pytest.mark.parametrize("wall", ["0", "1"])
@pytest.mark.parametrize("kind", ["memory", "descriptor", "pool"])
def test_two_processes_see_one_memory_which_counts_once_and_outlives_its_maker(
    device: Device, kind: str, wall: str
) -> None:
    small = device.with_settings(FAIRGV_SOFTGPU_MEMORY="64M", FAIRGV_SOFTGPU_WALL=wall)
    maker, taker = small.start_case("share", kind), small.start_case("take", kind)
    for _ in range(2 if kind == "pool" else 1):
        tell(taker, heard(maker))
    assert heard(maker) == "value 7, used 32 MiB"
    assert heard(taker) == "value 7, used 32 MiB"
    assert heard(taker) == "filled"
    tell(maker)
    assert heard(maker) == "value 8, used 32 MiB"
    assert heard(maker) == "value 9, used 32 MiB"
    tell(taker)
    assert heard(taker) == "value 9, used 32 MiB"
    kill(maker)
    tell(taker)
    assert heard(taker) == "value 9, used 32 MiB"
    assert heard(taker) == "no room CUDA_ERROR_OUT_OF_MEMORY"
    assert heard(taker) == "used 0 MiB"
    assert heard(taker) == "room CUDA_SUCCESS"
    assert taker.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("kind", ["memory", "descriptor", "pool"])
def test_a_killed_importer_leaves_nothing(device: Device, kind: str) -> None:
    small = device.with_settings(FAIRGV_SOFTGPU_MEMORY="64M")
    maker, taker = small.start_case("share", kind), small.start_case("take", kind)
    for _ in range(2 if kind == "pool" else 1):
        tell(taker, heard(maker))
    assert heard(maker) == "value 7, used 32 MiB"
    assert heard(taker) == "value 7, used 32 MiB"
    kill(taker)
    kill(maker)
    last = small.start_case("allocate", "64")
    assert heard(last) == "allocate CUDA_SUCCESS"


def test_forged_handles_are_refused(device: Device) -> None:
    maker, forger = device.start_case("share", "memory"), device.start_case("forged")
    tell(forger, heard(maker))
    output, _ = forger.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == [
        "refused many, otherwise 0",
        "as an event CUDA_ERROR_MAP_FAILED",
        "itself CUDA_SUCCESS",
        "PASS",
    ]
    assert forger.returncode == 0


def test_a_handle_is_good_on_its_device_only(device: Device, tmp_path: Path) -> None:
    maker = device.start_case("share", "memory")
    (tmp_path / "other").mkdir()
    other = Device(tmp_path / "other")
    forger = other.start_case("forged")
    tell(forger, heard(maker))
    output, _ = forger.communicate(timeout=TIMEOUT_S)
    assert "itself CUDA_ERROR_INVALID_DEVICE" in output.splitlines()


def test_a_handle_of_a_dead_process_is_refused(device: Device) -> None:
    maker, forger = device.start_case("share", "memory"), device.start_case("forged")
    token = heard(maker)
    kill(maker)
    tell(forger, token)
    output, _ = forger.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == [
        "refused many, otherwise 0",
        "as an event CUDA_ERROR_MAP_FAILED",
        "itself CUDA_ERROR_INVALID_VALUE",
        "PASS",
    ]


def test_forged_pieces_of_pools_are_refused(device: Device) -> None:
    maker, forger = device.start_case("share", "pool"), device.start_case("forged_pool")
    tell(forger, heard(maker))
    tell(forger, heard(maker))
    output, _ = forger.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == [
        *["forged CUDA_ERROR_INVALID_VALUE"] * 8,
        "of another pool CUDA_ERROR_INVALID_VALUE",
        "itself CUDA_SUCCESS",
        "of a pool that is gone CUDA_ERROR_INVALID_VALUE",
        "value 7, used 32 MiB",
        "PASS",
    ]


def test_files_that_lie_are_refused(device: Device) -> None:
    result = device.run_case("lies")
    assert result.stdout.splitlines() == [
        "as it is CUDA_SUCCESS",
        "may shrink CUDA_ERROR_UNKNOWN",
        "too short CUDA_ERROR_UNKNOWN",
        "too large CUDA_ERROR_UNKNOWN",
        "no granule CUDA_ERROR_NOT_SUPPORTED",
        "of no kind CUDA_ERROR_NOT_SUPPORTED",
        "another device CUDA_ERROR_INVALID_DEVICE",
        "no slot CUDA_SUCCESS",
        "no id CUDA_SUCCESS",
        "PASS",
    ]


@pytest.mark.parametrize("end", ["told", "killed"])
def test_a_process_waits_for_anothers_event_until_it_is_there_or_its_process_is_not(device: Device, end: str) -> None:
    maker, waiter = device.start_case("record"), device.start_case("await")
    tell(waiter, heard(maker))
    assert heard(waiter) == "query CUDA_ERROR_NOT_READY"
    assert heard(waiter) == "behind CUDA_ERROR_NOT_READY"
    if end == "told":
        tell(maker)
        assert heard(maker) == "PASS"
    else:
        kill(maker)
    output, _ = waiter.communicate(timeout=TIMEOUT_S)
    assert output.splitlines() == ["query CUDA_SUCCESS", "behind CUDA_SUCCESS", "PASS"]


def test_a_context_ends_though_it_waits_for_an_event(device: Device) -> None:
    maker, waiter = device.start_case("record"), device.start_case("await", "reset")
    tell(waiter, heard(maker))
    output, _ = waiter.communicate(timeout=TIMEOUT_S)
    assert output.splitlines()[-1] == "reset"
