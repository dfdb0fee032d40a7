"""Processes that bound one folder of compiled code at once leave as much as one alone would."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from tests.softgpu.driver_harness import ROOT

NR_FILES, NR_KEPT = 10, 6
BYTES = 1000


def test_what_another_process_removed_makes_room_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as if it were there, and younger files went in its place: the one that the other process had just compiled among them."""
    library = tmp_path / "sweepers.so"
    include = [f"-I{ROOT / folder}" for folder in ("softgpu/driver", "cuda_api/include")]
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", *include, "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, Path(__file__).with_name("cache_sweepers.c")], check=True)
    folder = tmp_path / "compiled"
    folder.mkdir()
    for number in range(NR_FILES):
        (folder / f"{number:032}.so").write_bytes(bytes(BYTES))
        os.utime(folder / f"{number:032}.so", (number, number))
    monkeypatch.setenv("FAIRGV_SOFTGPU_CACHE_BYTES", str(NR_KEPT * BYTES))
    ctypes.CDLL(str(library)).bound_by_two(os.fsencode(folder))
    left = sorted(int(path.stem) for path in folder.iterdir())
    assert left == list(range(NR_FILES - NR_KEPT, NR_FILES))
