"""Compiles the programs of GLoop's tests with nvcc into build/gloop: each again when it, a header, nvcc or its command changed.

As PTX alone, which every device takes: machine code, of a device that nobody runs them on, would take half of the time.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.nvcc import find_nvcc, rebuilding, seal_of

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
INCLUDE = ROOT / "gloop" / "include"
HEADERS = sorted((INCLUDE / "gloop").glob("*.cuh"))
OUTPUT = ROOT / "build" / "gloop"
SOURCES = (*sorted((HERE / "programs").glob("*.cu")), HERE / "points.cu")
EXTRA_FLAGS = {"checked": ("-DGLOOP_CHECK",)}


def command_for(source: Path) -> list[str]:
    """nvcc's, with the host compiler's warnings as errors; without the output."""
    nvcc = find_nvcc()
    flags = ["-O2", "-std=c++17", "--extended-lambda", "-arch=compute_75", "-Xcompiler=-Wall,-Wextra,-Werror"]
    return [str(nvcc.path), *flags, "-L", str(nvcc.libraries), "-I", str(INCLUDE), str(source)]


def build_one(source: Path) -> Path:
    program = OUTPUT / source.stem
    command = [*command_for(source), *EXTRA_FLAGS.get(source.stem, ())]
    with rebuilding(program, seal_of([command], [source, *HEADERS], find_nvcc().path)) as unfinished:
        if unfinished:
            subprocess.run([*command, "-o", str(unfinished)], check=True)
    return program


def build_all() -> list[Path]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(build_one, SOURCES))


if __name__ == "__main__":
    build_all()
