"""Builds the conformance programs into build/conformance: the cases in C as conformance-driver, those in CUDA C++ as conformance-runtime.

The first opens libcuda.so.1 itself, so nothing is linked. Both are built again when a source, a header, nvcc or a command changed.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.nvcc import Nvcc, find_nvcc, rebuilding, seal_of
from cuda_api.table import CALLS_TOML, read

CASES = Path(__file__).resolve().parent / "cases"
OUTPUT = CASES.parents[2] / "build" / "conformance"
DRIVER = OUTPUT / "conformance-driver"
RUNTIME = OUTPUT / "conformance-runtime"
KERNELS = CASES / "kernels.cu"
NR_JOBS = os.cpu_count() or 1
PTX_FLAGS = ("-std=c++17", "-O1", "-arch=compute_75")


def _sources(pattern: str) -> list[Path]:
    return sorted(path for path in CASES.glob(pattern) if path != KERNELS)


def _include(nvcc: Nvcc) -> Path:
    """The folder of cuda.h, beside the libraries."""
    candidates = [nvcc.libraries.parent / "include", nvcc.libraries.parent / "targets/x86_64-linux/include"]
    for folder in candidates:
        if (folder / "cuda.h").exists():
            return folder
    raise FileNotFoundError(f"no cuda.h in {candidates}")


def _names(header: Path) -> Iterator[str]:
    """C text: every symbol of the table of calls, and every other call that cuda.h declares."""
    symbols = [call.name for call in read().symbols]
    bases = {call.base_name for call in read().symbols}
    declared = re.findall(r"^CUresult CUDAAPI (cu[A-Z]\w*)\(", header.read_text(), re.MULTILINE)
    others = sorted({re.sub(r"_v\d+$", "", name) for name in declared} - bases)
    for macro, names in [("TABLE_SYMBOLS", symbols), ("TABLE_NAMES", sorted(bases)), ("OTHER_NAMES", others)]:
        yield f"#define {macro} " + ", ".join(f'"{name}"' for name in names)


def _run_all(commands: Sequence[Sequence[str | Path]]) -> None:
    with ThreadPoolExecutor(NR_JOBS) as pool:
        for _ in pool.map(lambda command: subprocess.run(command, check=True), commands):
            pass


def build_driver(nvcc: Nvcc) -> Path:
    include, objects = _include(nvcc), OUTPUT / "objects"
    compile_c = [
        "cc",
        "-std=gnu11",
        "-O0",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-deprecated-declarations",
        "-pthread",
    ]
    compile_c += ["-I", str(CASES), "-I", str(OUTPUT), "-isystem", str(include), "-c"]
    compile_ptx = [str(nvcc.path), *PTX_FLAGS, "-ptx"]
    inputs = [*_sources("*.c"), *_sources("*.h"), CASES / "embed.S", KERNELS, CALLS_TOML, include / "cuda.h"]
    with rebuilding(DRIVER, seal_of([compile_c, compile_ptx], inputs, nvcc.path)) as unfinished:
        if unfinished:
            objects.mkdir(exist_ok=True)
            (OUTPUT / "names.h").write_text("\n".join(_names(include / "cuda.h")) + "\n")
            ptx = objects / "kernels.ptx"
            commands = [[*compile_ptx, "-o", str(ptx), str(KERNELS)]]
            commands += [
                [*compile_c, "-o", str(objects / f"{source.stem}.o"), str(source)] for source in _sources("*.c")
            ]
            _run_all(commands)
            compiled = [objects / f"{source.stem}.o" for source in _sources("*.c")]
            link = ["cc", "-pthread", "-o", str(unfinished), f'-DKERNELS="{ptx}"', str(CASES / "embed.S"), "-ldl"]
            subprocess.run([*link, *compiled], check=True)
    return DRIVER


def build_runtime(nvcc: Nvcc) -> Path:
    sources = _sources("*.cu")
    command = [str(nvcc.path), "-std=c++17", "-O1", "-arch=compute_75", "-code=compute_75", "--threads", str(NR_JOBS)]
    command += ["-L", str(nvcc.libraries), "-I", str(CASES)]
    with rebuilding(RUNTIME, seal_of([command], [*sources, *_sources("*.cuh")], nvcc.path)) as unfinished:
        if unfinished:
            subprocess.run([*command, "-o", unfinished, *sources], check=True)
    return RUNTIME


def build_all() -> list[Path]:
    nvcc = find_nvcc()
    return [build_driver(nvcc), build_runtime(nvcc)]


if __name__ == "__main__":
    for program in build_all():
        print(program)
    sys.exit(0)
