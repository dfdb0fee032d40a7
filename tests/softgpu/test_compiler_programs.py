"""
What nvcc makes of real programs: all of tests/programs compiles with debug code (without it they run, elsewhere), and the kernels of `kernels/`
compute what the CPU computes, on the driver (barriers, warps, calls, the math library).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.nvcc import find_nvcc
from cuda_api.image_set import ALIGNMENT_BYTES
from softgpu.compiler.command import compile_image
from tests.softgpu.compiler_harness import LoadedModule

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests" / "programs").glob("*.cu"))
KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.cu"))
INCLUDES = ("-I", str(ROOT / "frontend_guest" / "include"))
DRIVER = ROOT / "build" / "softgpu" / "libcuda.so.1"


def _ptx(program: Path, folder: Path, *options: str) -> bytes:
    output = folder / "out.ptx"
    subprocess.run(
        [find_nvcc().path, "-ptx", *INCLUDES, *options, "-o", str(output), str(program)],
        check=True,
        capture_output=True,
    )
    return output.read_bytes()


def _image(program: Path, folder: Path, *options: str) -> bytes:
    """The program's PTX, or for one of several files the set of theirs."""
    others = sorted(program.with_suffix("").glob("*.cu"))
    if not others:
        return _ptx(program, folder, *options)
    images = b""
    for source in (program, *others):
        images += bytes(-len(images) % ALIGNMENT_BYTES) + _ptx(source, folder, "-rdc=true", *options) + b"\0"
    return images


@pytest.mark.parametrize("program", [*PROGRAMS, *KERNELS], ids=lambda path: path.stem)
def test_program_compiles(program: Path, tmp_path: Path) -> None:
    image = _image(program, tmp_path, "-arch=compute_80", "-G")
    output = tmp_path / "out.so"
    compile_image(image, 80, output)
    assert len(LoadedModule(output).kernels) == image.count(b".entry")


@pytest.mark.parametrize("optimisation", ["-O3", "-G"])
@pytest.mark.parametrize("program", KERNELS, ids=lambda path: path.stem)
def test_kernels_compute_what_the_cpu_computes(program: Path, optimisation: str, tmp_path: Path) -> None:
    binary = tmp_path / "program"
    subprocess.run(
        [find_nvcc().path, "-arch=compute_75", optimisation, "-o", str(binary), str(program)],
        check=True,
        capture_output=True,
    )
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(DRIVER.parent),
        "FAIRGV_SOFTGPU_CACHE": str(tmp_path / "cache"),
        "FAIRGV_SOFTGPU_COMPILER": f"{sys.executable} -m softgpu.compiler",
    }
    (tmp_path / "cache").mkdir(mode=0o700)
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert (done.returncode, done.stdout) == (0, "PASS\n"), done.stdout + done.stderr
