"""Compiles the programs that share in space into build/benchmarks/space: `python -m benchmarks.space.build`."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.build import CUDA_FLAGS
from benchmarks.nvcc import Nvcc, find_nvcc, rebuilding, seal_of

SOURCES = PACKAGE_ROOT / "benchmarks/space/programs"
OUTPUT = PACKAGE_ROOT / "build/benchmarks/space"
NAMES = tuple(sorted(source.stem for source in SOURCES.glob("*.cu")))
ARCHITECTURES = ("-gencode", "arch=compute_80,code=compute_80", "-gencode", "arch=compute_90,code=sm_90")
"""PTX for softgpu and machine code for an H100: a persistent kernel must not wait for a compiler."""
GUESTS = ("pair",)
PTX_ALONE = ("-arch=compute_80",)
"""For guests: variants of kernels, which give way, are made of PTX, and not where machine code of a newer target would run in its place."""


def _command(name: str, nvcc: Nvcc, output: Path) -> list[str]:
    source = str(SOURCES / f"{name}.cu")
    architectures = PTX_ALONE if name in GUESTS else ARCHITECTURES
    return [str(nvcc.path), *CUDA_FLAGS, *architectures, source, "-o", str(output), "-L", str(nvcc.libraries)]


def build(name: str) -> Path:
    """The program, up to date. Safe to call from several processes at once."""
    nvcc = find_nvcc()
    program = OUTPUT / name
    program.parent.mkdir(parents=True, exist_ok=True)
    sources = [SOURCES / f"{name}.cu", *sorted(SOURCES.glob("*.cuh"))]
    with rebuilding(program, seal_of([_command(name, nvcc, program)], sources, nvcc.path)) as unfinished:
        if unfinished:
            subprocess.run(_command(name, nvcc, unfinished), check=True)
    return program


def build_all() -> list[Path]:
    """Every program; several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as builders:
        return list(builders.map(build, NAMES))


def main() -> int:
    """Entry point."""
    for path in build_all():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
