"""Which images may print: found in compressed ones too, and never denied of one that cannot be looked into."""

import subprocess
from pathlib import Path

import pytest

from backend_host.worker import images
from backend_host.worker.images import may_print
from benchmarks.nvcc import find_nvcc

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
