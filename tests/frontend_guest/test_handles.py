"""The table of handles, and everything again under the sanitizers."""

import subprocess
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.floors import DATA, packages
from tests.frontend_guest.conftest import BUILD, PROGRAMS, ROOT, RunScene, compile_program, guest_environment

SANITIZERS = {"address": "address,undefined", "thread": "thread"}
FLOORS = next(package.floors for package in packages(ROOT, DATA) if package.folder == "frontend_guest")
GUEST_SOURCES = [
    path
    for folder in (
        *(f"frontend_guest/{floor}" for floor in FLOORS),
        "frontend_guest/generated",
        "ivshmem/src",
        "cuda_api/common/handshake",
        "cuda_api/common/managed",
        "cuda_api/common/copy_calls",
        "cuda_api/common/graph_calls",
        "cuda_api/common/green_calls",
        "cuda_api/common/refusals",
        "cuda_api/common/generated",
    )
    for path in sorted((ROOT / folder).glob("*.c"))
]


@pytest.mark.parametrize("sanitizer", ["none", *SANITIZERS])
def test_handles(sanitizer: str) -> None:
    flags = [] if sanitizer == "none" else [f"-fsanitize={SANITIZERS[sanitizer]}"]
    sources = [PROGRAMS / "handles.c", ROOT / "frontend_guest/base/handles.c"]
    program = compile_program(f"handles-{sanitizer}", sources, *flags, "-lpthread")
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.fixture(scope="module")
def checked_guest() -> Path:
    """The guest program and the library with it, in one, under AddressSanitizer and UBSan."""
    return compile_program(
        "guest-checked",
        [PROGRAMS / "guest.c", *GUEST_SOURCES],
        "-DFGV_PLAIN_SYMBOLS",
        "-O0",
        "-fsanitize=address,undefined",
        "-lpthread",
    )


@pytest.fixture
def guest(checked_guest: Path) -> Path:
    return checked_guest


@pytest.mark.parametrize(
    "scene", ["copies", "errors", "death", "launch", "pools", "output", "fork", "threads", "reset"]
)
def test_scenes_under_sanitizers(run_answered: RunScene, scene: str) -> None:
    done = run_answered(scene, FAIRGV_LOG="off")
    assert done.status == 0
    assert done.errors == []


@pytest.mark.parametrize("scene", ["init", "facts"])
def test_scenes_alone_under_sanitizers(checked_guest: Path, library: Path, region: Region, scene: str) -> None:
    assert BUILD in checked_guest.parents
    environment = guest_environment(region, library, FAIRGV_LOG="off")
    done = subprocess.run(
        [checked_guest, scene], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
