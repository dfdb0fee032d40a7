"""Compiles the benchmark programs into build/benchmarks: `python -m benchmarks.build [NAME ...]`.

A program of `NAMES` is NAME.cu and NAME_loops.c in benchmarks/programs, with the harness of common.c; one without loops is a
single NAME.cu. The loops are compiled as plain C of the host, -O2 without vector flags: they are the yardstick for softgpu.
A program is compiled again only when its source, a header, the compiler or a command changed.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.nvcc import Nvcc, find_nvcc, rebuilding, seal_of

SOURCES = PACKAGE_ROOT / "benchmarks/programs"
OUTPUT = PACKAGE_ROOT / "build/benchmarks"
KERNEL_TIMES = PACKAGE_ROOT / "benchmarks/kernel_times.cu"
DEVICE_CLOCK = SOURCES / "device_clock.cuh"
TIMED_SYMBOLS = ("benchmark_main", "cudaLaunchKernel", "__cudaLaunchKernel")
EVERY = tuple(sorted(source.stem for source in SOURCES.glob("*.cu")))
NAMES = tuple(
    sorted(source.stem for source in SOURCES.glob("*.cu") if source.with_name(f"{source.stem}_loops.c").exists())
)
C_FLAGS = ("-O2", "-fopenmp", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Werror")
CUDA_FLAGS = ("-O2", "-std=c++17")
LIBRARIES = ("-lgomp", "-lm")


def _objects(name: str) -> list[Path]:
    return [OUTPUT / "objects" / name / part for part in ("device.o", "loops.o", "common.o")]


def link_command(name: str, output: Path, extra: Sequence[str] = ()) -> list[str]:
    """Makes `output` of the objects that `build` left; tests put something of their own in between with `extra`."""
    nvcc = find_nvcc()
    objects = [str(path) for path in _objects(name)]
    return [str(nvcc.path), "-L", str(nvcc.libraries), *objects, *extra, *LIBRARIES, "-o", str(output)]


def _commands(name: str, nvcc: Nvcc, output: Path) -> list[list[str]]:
    """One for each source and one to link them; for a single file one for both."""
    cuda = [str(nvcc.path), *CUDA_FLAGS, "-I", str(SOURCES), str(SOURCES / f"{name}.cu"), "-o"]
    if name not in NAMES:
        return [[*cuda, str(output), "-L", str(nvcc.libraries)]]
    device, loops, common = (str(path) for path in _objects(name))
    cc = ["gcc", *C_FLAGS, "-I", str(SOURCES), "-c", "-o"]
    return [
        [*cuda, device, "-c"],
        [*cc, loops, str(SOURCES / f"{name}_loops.c")],
        [*cc, common, str(SOURCES / "common.c")],
        link_command(name, output),
    ]


def _sources(name: str) -> list[Path]:
    own = [SOURCES / f"{name}{end}" for end in (".cu", ".cuh", "_space.cuh", "_loops.c", ".h")]
    shared = [SOURCES / part for part in ("check.h", "common.c", "common.h", "requests.h", "stretch.h")]
    return [path for path in [*own, *shared, DEVICE_CLOCK] if path.exists()]


def build(name: str) -> Path:
    """The program, up to date. Safe to call from several processes at once."""
    nvcc = find_nvcc()
    program = OUTPUT / name
    with rebuilding(program, seal_of(_commands(name, nvcc, program), _sources(name), nvcc.path)) as unfinished:
        if unfinished:
            _objects(name)[0].parent.mkdir(parents=True, exist_ok=True)
            for command in _commands(name, nvcc, unfinished):
                subprocess.run(command, check=True)
    return program


def build_without_ptx(name: str, capability: int) -> Path:
    """A program of a single file with machine code for one compute capability (90 for 9.0) and nothing else, as NVIDIA's libraries have it."""
    nvcc = find_nvcc()
    program = OUTPUT / f"{name}.sm_{capability}"
    only = ("-gencode", f"arch=compute_{capability},code=sm_{capability}")

    def command(output: Path) -> list[str]:
        [whole] = _commands(name, nvcc, output)
        return [*whole, *only]

    with rebuilding(program, seal_of([command(program)], _sources(name), nvcc.path)) as unfinished:
        if unfinished:
            subprocess.run(command(unfinished), check=True)
    return program


def build_timed(name: str) -> Path:
    """The program with a pair of events around each kernel: see kernel_times.cu."""
    nvcc = find_nvcc()
    build(name)
    program, wrapper = OUTPUT / f"{name}.timed", _objects(name)[0].with_name("kernel_times.o")
    command = [str(nvcc.path), *CUDA_FLAGS, "-I", str(SOURCES), "-c", str(KERNEL_TIMES), "-o", str(wrapper)]
    wrapped = [word for symbol in TIMED_SYMBOLS for word in ("-Xlinker", f"--wrap={symbol}")]
    link = link_command(name, program, [str(wrapper), *wrapped])
    with rebuilding(
        program, seal_of([command, link], [KERNEL_TIMES, DEVICE_CLOCK, *_objects(name)], nvcc.path)
    ) as unfinished:
        if unfinished:
            subprocess.run(command, check=True)
            subprocess.run(link_command(name, unfinished, [str(wrapper), *wrapped]), check=True)
    return program


def build_all(names: Sequence[str] = EVERY, timed: Sequence[str] = NAMES) -> list[Path]:
    """These programs, and `timed` as those that time their kernels; several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as builders:
        plain = list(builders.map(build, names))
        return [*plain, *builders.map(build_timed, timed)]


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        choices=[[], *EVERY],
        metavar="NAME",
        help=f"of {', '.join(EVERY)}; without, all of them, and those that time their kernels",
    )
    parser.add_argument("--untimed", action="store_true", help="without those that time their kernels")
    options = parser.parse_args()
    timed = () if options.names or options.untimed else NAMES
    for path in build_all(options.names or EVERY, timed):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
