"""What the tests of ivshmem share: regions that are removed again, a guest made by hand, C programs compiled with a sanitizer.

The C programs go to a temporary folder, one per name and set of flags, compiled when first asked for.
"""

import itertools
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ivshmem import region as face
from ivshmem.region import ClientState, Region, Wake, ffi, lib

ROOT = Path(__file__).resolve().parents[2]
TABLE_HASH = 0x7AB1E
SOURCES = sorted((ROOT / "ivshmem" / "src").glob("*.c"))

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build_c(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build_c("ring_stress", "-fsanitize=thread") gives the program's path."""
    folder = tmp_path_factory.mktemp("ivshmem-c")
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in built:
            out = folder / f"{name}-{len(built)}"
            compiler = shlex.split(os.environ.get("CC", "gcc"))
            common = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
            include = ["-I", str(ROOT / "ivshmem" / "include")]
            source = str(ROOT / "tests" / "ivshmem" / f"{name}.c")
            command = [*compiler, *common, *flags, *include, source, *map(str, SOURCES), "-o", str(out)]
            subprocess.run(command, check=True)
            built[key] = out
        return built[key]

    return build


_numbers = itertools.count()


@pytest.fixture
def region_name() -> Iterator[str]:
    name = f"fairgv-test-{os.getpid()}-{next(_numbers)}"
    yield name
    Path("/dev/shm", name).unlink(missing_ok=True)


@pytest.fixture
def region(region_name: str) -> Iterator[Region]:
    with Region.create(
        region_name, face.REGION_MIN_BYTES, table_hash=TABLE_HASH, facts=b"facts", wake=Wake.FUTEX
    ) as made:
        yield made


@dataclass(frozen=True)
class Entry:
    """The fields a guest fills, with offsets of docs/region.md."""

    pid: int
    address: int
    commit_key: int
    ring_offset: int
    responses_offset: int
    chunks_offset: int
    arena_offset: int
    ring_bytes: int
    nr_responses: int
    nr_chunks: int
    chunk_bytes: int
    program: bytes = b"vectorAdd"
    boot_id: bytes = bytes(range(16))


ENTRY_BYTES = 320
ENTRY_OFFSETS = {
    "state": (0, 4),
    "pid": (4, 4),
    "address": (24, 8),
    "commit_key": (32, 8),
    "ring_offset": (40, 8),
    "responses_offset": (48, 8),
    "chunks_offset": (56, 8),
    "arena_offset": (64, 8),
    "ring_bytes": (72, 4),
    "nr_responses": (76, 4),
    "nr_chunks": (80, 4),
    "chunk_bytes": (84, 4),
    "beat": (192, 8),
    "refusal": (256, 4),
    "deferred_error": (260, 4),
    "sticky_error": (264, 4),
    "output_pending": (268, 4),
}


def read_layout(region: Region, index: int) -> Any:
    """A `struct fgv_client_layout *`: where a client's things are. None when a check failed."""
    layout = ffi.new("struct fgv_client_layout *")
    return layout if lib.fgv_client_read_layout(region.c_region, index, layout) else None


class Guest:
    """A guest that writes into a region what it likes."""

    def __init__(self, region: Region, index: int) -> None:
        self.region = region
        self.index = index
        self.memory: Any = ffi.buffer(ffi.cast("uint8_t *", region.base), region.region_bytes)
        self._clients_offset = int.from_bytes(self.memory[40:48], "little")

    def allocate(self, nbytes: int) -> int:
        offset = int(lib.fgv_heap_allocate(self.region.c_region, self.index, nbytes))
        assert offset != lib.FGV_HEAP_NONE
        return offset

    def good_entry(self) -> Entry:
        ring_bytes, nr_responses, nr_chunks, chunk_bytes = 65536, 64, 4, 65536
        return Entry(
            pid=4711,
            address=0x2000_0000_0000,
            commit_key=0x1234_5678_9ABC_DEF1,
            ring_offset=self.allocate(192 + ring_bytes),
            responses_offset=self.allocate(nr_responses * 512),
            chunks_offset=self.allocate(nr_chunks * 8),
            arena_offset=self.allocate(nr_chunks * chunk_bytes),
            ring_bytes=ring_bytes,
            nr_responses=nr_responses,
            nr_chunks=nr_chunks,
            chunk_bytes=chunk_bytes,
        )

    def poke(self, field: str, value: int) -> None:
        offset, nbytes = ENTRY_OFFSETS[field]
        at = self._clients_offset + self.index * ENTRY_BYTES + offset
        self.memory[at : at + nbytes] = value.to_bytes(nbytes, "little")

    def peek(self, field: str) -> int:
        offset, nbytes = ENTRY_OFFSETS[field]
        at = self._clients_offset + self.index * ENTRY_BYTES + offset
        return int.from_bytes(self.memory[at : at + nbytes], "little")

    def write(self, entry: Entry, state: ClientState = ClientState.HELLO) -> None:
        for field in ENTRY_OFFSETS:
            if hasattr(entry, field):
                self.poke(field, getattr(entry, field))
        at = self._clients_offset + self.index * ENTRY_BYTES
        self.memory[at + 8 : at + 24] = entry.boot_id
        self.memory[at + 88 : at + 152] = entry.program.ljust(64, b"\0")
        self.poke("state", int(state))

    def is_accepted(self, entry: Entry, **changes: Any) -> bool:
        self.write(replace(entry, **changes))
        return read_layout(self.region, self.index) is not None


@pytest.fixture
def guest(region: Region) -> Iterator[Guest]:
    made = Guest(region, 5)
    yield made
    del made.memory
