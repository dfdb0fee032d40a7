"""The guest library built, small C programs beside it, and regions that need no daemon."""

import os
import re
import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ivshmem.region import HostState, Region, Wake

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "tests" / "frontend_guest"
PROGRAMS = Path(__file__).parent / "programs"
INCLUDES = [f"-I{ROOT / folder}" for folder in ("cuda_api/include", "ivshmem/include", "frontend_guest", "")]
CFLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
REGION_BYTES = 256 << 20
NR_ATTRIBUTES = 192
NO_VALUE = -(2**31)


def _table_hash() -> int:
    header = (ROOT / "cuda_api" / "include" / "cuda_api" / "wire.h").read_text()
    found = re.search(r"FGV_TABLE_HASH UINT64_C\((0x[0-9a-f]+)\)", header)
    assert found is not None
    return int(found[1], 16)


TABLE_HASH = _table_hash()


def device_facts(name: str) -> bytes:
    """`struct fgv_device_facts` of a small device: only the attributes that the tests look at have a value."""
    values = {1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 49152, 10: 32, 16: 4, 75: 8, 76: 9}
    values[115] = 1  # memory pools
    attributes = [values.get(number, NO_VALUE) for number in range(NR_ATTRIBUTES)]
    head = struct.pack("<256s16s16sQ", name.encode(), bytes(range(16)), b"0000:01:00.0", 1 << 30)
    limits = struct.pack("<16Q", *[1024] * 10, *[2**64 - 1] * 6)
    return head + limits + struct.pack(f"<{NR_ATTRIBUTES}i", *attributes) + struct.pack("<iiII", 0, -5, 3020, 0)


def facts(*names: str) -> bytes:
    """`struct fgv_facts` with a device for each name."""
    devices = b"".join(device_facts(name) for name in names)
    one = len(device_facts(""))
    return struct.pack("<IIiI", 1, len(names), 13000, 0) + devices.ljust(16 * one, b"\0")


@pytest.fixture(scope="session")
def library() -> Path:
    """build/guest/libcuda.so.1, made as the documentation says."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "frontend_guest")], check=True)
    return ROOT / "build" / "guest" / "libcuda.so.1"


def compile_program(name: str, sources: list[Path], *arguments: str) -> Path:
    """A program of these sources in the build folder."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / name
    fresh = program.with_suffix(f".{os.getpid()}")
    subprocess.run(["cc", *CFLAGS, *INCLUDES, *map(str, sources), "-o", str(fresh), *arguments], check=True)
    fresh.replace(program)
    return program


@pytest.fixture(scope="session")
def guest(library: Path) -> Path:
    """The program with the scenes, linked with the library."""
    return compile_program("guest", [PROGRAMS / "guest.c"], str(library), "-lpthread")


@pytest.fixture(scope="session")
def answerer() -> Path:
    """The program that answers a ring."""
    return compile_program("answerer", [PROGRAMS / "answerer.c", *sorted((ROOT / "ivshmem" / "src").glob("*.c"))])


@contextmanager
def region_of(region_bytes: int) -> Iterator[Region]:
    """A region with one device, its host UP, for the block."""
    name = f"fairgv-test-{uuid.uuid4().hex}"
    with Region.create(name, region_bytes, table_hash=TABLE_HASH, facts=facts("one"), wake=Wake.FUTEX) as made:
        made.set_host_state(HostState.UP)
        try:
            yield made
        finally:
            made.unlink()


@pytest.fixture
def region() -> Iterator[Region]:
    """Large enough for most tests."""
    with region_of(REGION_BYTES) as region:
        yield region


@dataclass(frozen=True)
class Scene:
    """What came of a scene: the guest's words, and those of the answerer, line by line."""

    status: int
    said: list[str]
    errors: list[str]
    answered: list[str]


RunScene = Callable[..., Scene]


def guest_environment(region: Region | str | None, library: Path, **more: str) -> dict[str, str]:
    """The environment of a guest program of this region."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRGV_", "CUDA_"))}
    if region is not None:
        environment["FAIRGV_REGION"] = region if isinstance(region, str) else f"/dev/shm/{region.name}"
    return {**environment, "LD_LIBRARY_PATH": str(library.parent), **more}


@pytest.fixture
def run_alone(guest: Path, library: Path) -> RunScene:
    """Runs a scene with nobody to answer."""

    def run(scene: str, region: Region | str | None, **more: str) -> Scene:
        done = subprocess.run(
            [guest, scene],
            env=guest_environment(region, library, **more),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Scene(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), [])

    return run


@pytest.fixture
def run_answered(guest: Path, answerer: Path, library: Path, region: Region, tmp_path: Path) -> RunScene:
    """Runs a scene with an answerer for its first client."""
    records = tmp_path / "records"  # a pipe would fill up, and stop the answerer

    def run(scene: str, *arguments: str, **more: str) -> Scene:
        command = [str(answerer), f"/dev/shm/{region.name}", *arguments]
        with records.open("w") as out:
            peer = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        try:
            assert peer.stderr is not None
            assert peer.stderr.readline() == "listening\n"
            done = subprocess.run(
                [guest, scene],
                env=guest_environment(region, library, **more),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert peer.wait(30) == 0
        finally:
            peer.kill()
            peer.communicate()
        answered = records.read_text()
        return Scene(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), answered.splitlines())

    return run
