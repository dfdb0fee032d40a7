"""Which images may print: found in compressed ones too, and never denied of one that cannot be looked into."""

import struct
import subprocess
import threading
from pathlib import Path

import pytest
import zstandard

from backend_host.worker import images
from backend_host.worker.images import LEAST_BYTES_FOR_THREAD, Aside, Inspector, Printing, may_print
from benchmarks.nvcc import find_nvcc
from tests.end_to_end.host import wait_until

PRINTS = '#include <cstdio>\n__global__ void say(int n) { printf("%d\\n", n); }\n'
PRINTS_BARE = '#include <cstdio>\n__global__ void say() { printf("hello\\n"); }\n'
SILENT = "__global__ void add(int *n) { *n += 1; }\n"


def image(tmp_path: Path, source: str, *flags: str) -> bytes:
    """A fat binary made by nvcc, compressed as it does by default."""
    (tmp_path / "kernel.cu").write_text(source)
    nvcc = find_nvcc()
    command = [str(nvcc.path), "-fatbin", *flags, "-o", str(tmp_path / "kernel.fatbin"), str(tmp_path / "kernel.cu")]
    subprocess.run(command, check=True)
    return (tmp_path / "kernel.fatbin").read_bytes()


@pytest.mark.parametrize("flags", [(), ("-arch=compute_80",), ("-arch=sm_90",), ("--no-compress",)])
@pytest.mark.parametrize(("source", "prints"), [(PRINTS, True), (PRINTS_BARE, True), (SILENT, False)])
def test_what_nvcc_makes(tmp_path: Path, source: str, prints: bool, flags: tuple[str, ...]) -> None:
    assert may_print(image(tmp_path, source, *flags), 90) is prints


def test_ptx_text() -> None:
    assert may_print(b".version 8.0\n.extern .func (.param .b32 r) vprintf(...);\n", 90)
    assert not may_print(b".version 8.0\n.target sm_75\n", 90)


def test_what_cannot_be_looked_into_may_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = image(tmp_path, SILENT)
    assert may_print(silent[:-8], 90)
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", len(silent) - 1)
    assert may_print(silent, 90)
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", len(silent))
    monkeypatch.setattr(images, "MAX_UNPACKED_BYTES", 1)
    assert may_print(silent, 90)


def test_what_is_for_other_devices_is_not_looked_into(tmp_path: Path) -> None:
    codes = [f"-gencode=arch=compute_{sm},code=sm_{sm}" for sm in (80, 90)]
    both = image(tmp_path, PRINTS, "--no-compress", *codes)
    silent = image(tmp_path, SILENT, "--no-compress", *codes)
    first = image(tmp_path, PRINTS, "--no-compress", codes[0])
    assert may_print(both, 80) and may_print(both, 86) and may_print(both, 90)
    assert not may_print(both, 75) and not may_print(both, 120) and not may_print(silent, 90)
    assert may_print(first, 80) and not may_print(first, 90)


def packed(content: bytes, sm: int = 90, says: int | None = None) -> bytes:
    """A container with one entry of compressed machine code, which says that it unpacks to so many bytes."""
    stored = zstandard.ZstdCompressor().compress(content)
    unpacked_bytes = len(content) if says is None else says
    head = struct.pack("<HHIQIII", 2, 0x101, 64, len(stored), len(stored), 0, 0)
    head += struct.pack("<IIIQQQ", sm, 0, 0, 0x8011, 0, unpacked_bytes)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(head) + len(stored)) + head + stored


class Looking:
    """An inspector, and how many images it found silent so far."""

    def __init__(self) -> None:
        self.nr_silent = 0
        self.inspector = Inspector(self._tell, Aside())

    def _tell(self) -> None:
        self.nr_silent += 1

    def inspect(self, image: bytes) -> Printing:
        return self.inspector.inspect(memoryview(image), 90)


LARGE = LEAST_BYTES_FOR_THREAD + 1
LARGE_SILENT, LARGE_PRINTS = packed(bytes(LARGE)), packed(bytes(LARGE) + b"vprintf")


def test_ptx_for_newer_devices_counts_where_there_is_no_other(tmp_path: Path) -> None:
    """softgpu takes PTX for newer devices, which NVIDIA's driver refuses."""
    newer = ("-gencode=arch=compute_100,code=compute_100",)
    assert may_print(image(tmp_path, PRINTS, *newer), 80)
    assert not may_print(image(tmp_path, SILENT, *newer), 80)


def test_small_images_are_looked_into_at_once() -> None:
    looking = Looking()
    assert looking.inspect(packed(bytes(LARGE - 1))) == Printing.NOT
    assert looking.inspect(packed(bytes(LARGE), sm=80)) == Printing.NOT  # for another device
    assert looking.inspect(b".version 8.0\n.target sm_75\n\0") == Printing.NOT
    assert looking.inspect(packed(b"vprintf")) == Printing.MAY
    assert looking.nr_silent == 0


def test_large_images_are_looked_into_by_a_thread() -> None:
    looking = Looking()
    assert [looking.inspect(LARGE_SILENT) for _ in range(5)] == [Printing.UNKNOWN] * 5
    wait_until(lambda: looking.nr_silent == 5, "all looked into")
    assert looking.inspect(LARGE_PRINTS) == Printing.UNKNOWN
    wait_until(lambda: looking.inspect(LARGE_SILENT) == Printing.MAY, "found")
    assert looking.nr_silent == 5


def test_the_search_goes_over_every_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_SEARCHED_BYTES", 16)
    for before in range(64):
        assert may_print(bytes(before) + b"vprintf" + bytes(40), 90)
        assert not may_print(bytes(before) + b"vprint" + bytes(40), 90)


def test_a_guest_that_loads_faster_than_anybody_can_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, held = Looking(), threading.Event()
    monkeypatch.setattr(images, "may_print", lambda *_: held.wait(60) and False)
    monkeypatch.setattr(images, "MAX_WAITING_BYTES", 3 * (LARGE + len(LARGE_SILENT)))
    assert [looking.inspect(LARGE_SILENT) for _ in range(4)] == [Printing.UNKNOWN] * 3 + [Printing.MAY]
    held.set()
    wait_until(lambda: looking.nr_silent == 3, "all looked into")


@pytest.mark.parametrize(
    "image", [packed(bytes(LARGE), says=LARGE + 1), packed(bytes(LARGE))[:-1], b"\x50\xed\x55\xba"]
)
def test_damaged_images_may_print(image: bytes) -> None:
    looking = Looking()
    looking.inspect(image)
    wait_until(lambda: looking.inspect(LARGE_SILENT) == Printing.MAY or looking.nr_silent > 0, "looked into")
    assert looking.inspect(image) == Printing.MAY
