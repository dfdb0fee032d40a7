"""Unmodified nvcc programs: as guests they print exactly what they print natively on the same device."""

import sys

import pytest

from tests.end_to_end.host import PROGRAM_NAMES, PROGRAMS, Host, comparable, wait_until
from tests.programs.build import NOT_CARRIED


@pytest.mark.parametrize("program", PROGRAM_NAMES)
def test_same_output_as_natively(host: Host, program: str) -> None:
    native = host.native(program)
    guest = host.guest(program)
    assert comparable(guest) == comparable(native), guest.stderr
    assert native.stdout, "a program that prints nothing shows nothing"


@pytest.mark.parametrize("program", NOT_CARRIED)
def test_what_is_not_carried_is_refused(host: Host, program: str) -> None:
    """Whoever carries it takes the program out of NOT_CARRIED: then it is compared."""
    assert host.native(program).stdout.splitlines()[-1] == "PASS"
    guest = host.guest(program)
    assert guest.returncode != 0
    assert "NotSupported" in guest.stdout or "NOT_SUPPORTED" in guest.stdout


def test_exit_status_is_passed_on(host: Host) -> None:
    assert host.guest("/bin/sh", "-c", "exit 7").returncode == 7
    assert host.guest("/bin/sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_arguments_reach_the_program(host: Host) -> None:
    assert host.guest("/bin/echo", "--json", "a b").stdout == "--json a b\n"


@pytest.mark.parametrize(("thrown_away", "result"), [("clearenv()", 0), ("unsetenv(b'FAIRGV_REGION')", 100)])
def test_a_program_that_throws_its_environment_away(host: Host, thrown_away: str, result: int) -> None:
    """All of it, as services do, which keeps the GPU; or the region alone, which is meant (CUDA_ERROR_NO_DEVICE)."""
    text = f"import ctypes; ctypes.CDLL(None).{thrown_away}; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    assert host.guest(sys.executable, "-c", text).stdout == f"{result}\n"


def test_status_counts_what_a_program_did(host: Host) -> None:
    before = host.status()
    assert host.guest("vector_add").returncode == 0
    with_vgpu = host.start("/bin/sleep", "30", options=("--vgpu", "counted"))
    try:
        wait_until(lambda: len(host.status()["vgpus"]) == 1, "the vGPU exists")
        assert host.guest("vector_add", options=("--vgpu", "counted")).returncode == 0
        [vgpu] = [entry for entry in host.status()["vgpus"] if entry["name"] == "counted"]
        totals = vgpu["totals"]
        assert totals["nr_clients"] == 1
        assert totals["nr_calls"] > totals["nr_round_trips"] > 0
        assert totals["nr_launches"] >= 1
        assert totals["to_device_bytes"] > 0
        assert totals["from_device_bytes"] > 0
        assert totals["nr_refused"] == 0
        assert vgpu["used_ns"] > 0
        wait_until(lambda: host.status()["vgpus"][0]["memory_bytes"] == 0, "an ended program holds no device memory")
        assert vgpu["region_free_bytes"] > 0
    finally:
        with_vgpu.terminate()
        with_vgpu.communicate()
    assert host.status()["device"] == before["device"]


def test_programs_exist() -> None:
    assert {"vector_add", "matrix_mul", "simple_printf", "vector_add.shared"} <= set(PROGRAM_NAMES)
    assert all((PROGRAMS / name).exists() for name in PROGRAM_NAMES)
