"""Addresses and physical memory of softgpu's driver: where they lie, what they cost, and how they are counted."""

from __future__ import annotations

import pytest

from tests.softgpu.driver_harness import Device


@pytest.mark.parametrize("wall", ["0", "1"])
def test_addresses_are_those_asked_for_and_cost_nothing(device: Device, wall: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_WALL=wall).run_case("addresses")
    assert result.stdout.splitlines() == [
        "in reach as asked",
        "before pinned memory as asked",
        "out of reach as asked",
        "taken elsewhere",
        "beside as asked",
        "misaligned elsewhere",
        "the program's elsewhere",
        "no address elsewhere",
        "page tables stay",
        "pinned memory in reach",
        "PASS",
    ]


@pytest.mark.parametrize("wall", ["0", "1"])
def test_thousands_of_pieces_in_one_reservation(device: Device, wall: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_MEMORY="8G", FAIRGV_SOFTGPU_WALL=wall).run_case("pieces")
    assert result.stdout.splitlines() == [
        "used 8000 MiB",
        "across a border 1999 1999",
        "moved 7",
        "used 2 MiB",
        "used 0 MiB",
        "new 0",
        "PASS",
    ]


@pytest.mark.parametrize("wall", ["0", "1"])
@pytest.mark.parametrize("end", ["mapped", "unmapped"])
def test_what_is_mapped_changes_in_the_kernels_process_which_stays(device: Device, end: str, wall: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_WALL=wall).run_case("remap", end)
    assert result.stdout.splitlines() == [
        "values 116 117 118 119",
        "the same process",
        "a used place holds 0",
        "after many changes 5",
        "last CUDA_SUCCESS" if end == "mapped" else "last CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


@pytest.mark.parametrize("wall", ["0", "1"])
def test_addresses_that_are_reserved_between_launches(device: Device, wall: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_WALL=wall).run_case("reserve")
    assert result.stdout.split() == [str(number) for number in range(8)]


@pytest.mark.parametrize("wall", ["0", "1"])
def test_memory_of_the_programs_own_at_addresses_that_it_reserved(device: Device, wall: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_WALL=wall).run_case("registered_in_a_reservation")
    assert result.stdout.splitlines() == [
        "what is mapped CUDA_ERROR_INVALID_VALUE",
        "what has nothing CUDA_ERROR_INVALID_VALUE",
        "more than there is CUDA_ERROR_INVALID_VALUE",
        "the same address",
        "over it CUDA_ERROR_INVALID_VALUE",
        "under it CUDA_ERROR_INVALID_VALUE",
        "filled 5 5",
        "set 6 6",
        "as before 3",
        "PASS",
    ]


def test_physical_memory_is_counted_until_nothing_has_it(device: Device) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_MEMORY="64M").run_case("physical")
    assert result.stdout.splitlines() == [
        "no granule CUDA_ERROR_INVALID_VALUE",
        "a part of one CUDA_ERROR_INVALID_VALUE",
        "a part of the memory CUDA_ERROR_NOT_SUPPORTED",
        "from its middle CUDA_ERROR_NOT_SUPPORTED",
        "over it CUDA_ERROR_INVALID_VALUE",
        "released CUDA_ERROR_INVALID_VALUE",
        "used 4 MiB",
        "too much CUDA_ERROR_OUT_OF_MEMORY",
        "used 4 MiB",
        "full CUDA_ERROR_OUT_OF_MEMORY",
    ]


@pytest.mark.parametrize("kind", ["alloc", "array", "managed", "create"])
def test_what_pools_keep_is_had_before_memory_is_out(device: Device, kind: str) -> None:
    result = device.with_settings(FAIRGV_SOFTGPU_MEMORY="64M").run_case("kinds", kind)
    assert result.stdout.splitlines() == ["used 56 MiB", "kept 56 MiB", f"{kind} CUDA_SUCCESS", "used 16 MiB"]
