"""The driver's cases again, under AddressSanitizer and UndefinedBehaviorSanitizer, leaks included."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs.build import build_one
from tests.softgpu.asking import OK, Asker, Other
from tests.softgpu.driver_harness import SANITIZED_CASES, SANITIZED_LIBRARY, TIMEOUT_S, Device, build_sanitized, tell


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    build_sanitized()


@pytest.mark.parametrize(
    "case",
    [
        *(
            "works",
            "fibers",
            "threads",
            "order",
            "wrong_calls",
            "fault",
            "two_contexts",
            "trap",
            "deadlock",
            "cooperative",
        ),
        *("addresses", "physical", "kinds", "lies", "checkpoint_states", "checkpoint_blocks"),
    ],
)
def test_case_is_clean(tmp_path: Path, case: str) -> None:
    # The sanitizer must leave SIGSEGV to the driver, and may not know where a fiber's stack is when a kernel is left.
    device = Device(
        tmp_path, {"LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent), "ASAN_OPTIONS": "handle_segv=0:log_path=stderr"}
    )
    result = device.run(SANITIZED_CASES, case)
    assert result.returncode == 0, result
    assert "ERROR" not in result.stderr
    assert "runtime error" not in result.stderr


@pytest.mark.parametrize("kind", ["memory", "descriptor", "pool"])
def test_sharing_is_clean(tmp_path: Path, kind: str) -> None:
    settings = {"LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent), "ASAN_OPTIONS": "handle_segv=0:log_path=stderr"}
    device = Device(tmp_path, settings)
    maker, taker = device.start(SANITIZED_CASES, "share", kind), device.start(SANITIZED_CASES, "take", kind)
    assert maker.stdout is not None
    tokens = [maker.stdout.readline() for _ in range(2 if kind == "pool" else 1)]
    output, _ = taker.communicate("".join(tokens) + "\n\n", timeout=TIMEOUT_S)
    assert taker.returncode == 0, output
    maker.communicate("\n\n", timeout=TIMEOUT_S)
    assert maker.returncode == 0
    device.close()


@pytest.mark.parametrize("wall", ["0", "1"])
def test_a_space_is_clean(tmp_path: Path, wall: str) -> None:
    """Two cooperative kernels of all places, and blocks that find them taken."""
    settings = {"LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent), "ASAN_OPTIONS": "handle_segv=0:log_path=stderr"}
    device = Device(tmp_path, settings | {"FAIRGV_SOFTGPU_SPACE": "one", "FAIRGV_SOFTGPU_WALL": wall})
    page = tmp_path / "page"
    page.write_bytes(bytes(65536))
    processes = [device.start(SANITIZED_CASES, "space", str(page)) for _ in range(2)]
    for i, process in enumerate(processes):
        tell(process, f"gather 48 49152 32 {i} {42 + i}\nbrief 100 0 3 2 40\nwait")
    for process in processes:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert output.splitlines() == ["ready", "launched", "launched", "wait CUDA_SUCCESS"]
        assert process.returncode == 0


def test_asking_another_process_is_clean(tmp_path: Path) -> None:
    settings = {"LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent), "ASAN_OPTIONS": "handle_segv=0:log_path=stderr"}
    device = Device(tmp_path, settings)
    target, asker = Other(device, "asked", cases=SANITIZED_CASES), Asker(device, SANITIZED_CASES)
    assert asker.goes_round(target.pid) == [OK] * 4
    assert target.does("compute").startswith("right")
    for process in (target.process, asker.process):
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0


def test_going_on_in_optimised_code_is_clean(tmp_path: Path) -> None:
    settings = {"ASAN_OPTIONS": "handle_segv=0:log_path=stderr", "FAIRGV_SOFTGPU_TIERS": "all"}
    device = Device(tmp_path, {"LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent)} | settings)
    process = device.start(SANITIZED_CASES, "tiers")
    assert process.stdin is not None
    assert process.stdout is not None
    answer = ""
    while "loaded 2" not in answer:
        process.stdin.write("run\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "it ended"
    process.communicate("run\n")
    assert process.returncode == 0


@pytest.mark.parametrize("program", ["pool_memory", "virtual_memory", "managed_memory", "stream_values"])
def test_memory_is_clean(tmp_path: Path, program: str) -> None:
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    device = Device(
        tmp_path,
        {
            "LD_LIBRARY_PATH": str(SANITIZED_LIBRARY.parent),
            "LD_PRELOAD": str(Path(found.stdout.strip()).resolve()),
            "ASAN_OPTIONS": "handle_segv=0:log_path=stderr:detect_leaks=0",  # programs end with what they have
        },
    )
    result = device.run(build_one(program))
    assert result.stdout.splitlines()[-1] == "PASS", result
    assert "ERROR" not in result.stderr
    assert "runtime error" not in result.stderr
