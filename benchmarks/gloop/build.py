"""Compiles the ports to GLoop into build/benchmarks/gloop: `python -m benchmarks.gloop.build [NAME ...]`.

A port of `PORTS` is NAME.cu with its loops, and the harness of benchmarks/programs; `SERVERS` have neither loops nor rounds;
`LOAD` asks them, on the host alone. A port's loops stand beside it, or where it is one of benchmarks/programs, there.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from benchmarks.build import C_FLAGS, CUDA_FLAGS, LIBRARIES
from benchmarks.build import SOURCES as PROGRAMS
from benchmarks.nvcc import Nvcc, find_nvcc, rebuilding, seal_of

SOURCES = PACKAGE_ROOT / "benchmarks/gloop/programs"
LIBRARY = PACKAGE_ROOT / "gloop/include"
OUTPUT = PACKAGE_ROOT / "build/benchmarks/gloop"
PORTS = ("throttle", "tpacf", "lavaMD", "mummergpu", "hybridsort", "grep", "images")
SERVERS = ("echo", "matrix")
LOAD = "load"
EVERY = (*PORTS, *SERVERS, LOAD)
INCLUDES = tuple(f"-I{folder}" for folder in (LIBRARY, PROGRAMS, SOURCES))
PTX_ALONE = "-arch=compute_75"
"""Every device compiles it for itself. Machine code, of a device that nobody measures, would take half of the time."""
LOAD_FLAGS = ("-O2", "-std=c++17", "-pthread")


def _loops(name: str) -> Path:
    own = SOURCES / f"{name}_loops.c"
    return own if own.exists() else PROGRAMS / f"{name}_loops.c"


def _commands(name: str, nvcc: Nvcc, output: Path) -> list[list[str]]:
    """One for each C file, and one for the rest and to link it."""
    if name == LOAD:
        return [["g++", *LOAD_FLAGS, *INCLUDES, str(SOURCES / "load.cc"), "-o", str(output)]]
    objects = OUTPUT / "objects" / name
    sources = {objects / "common.o": PROGRAMS / "common.c"}
    if name in PORTS:
        sources[objects / "loops.o"] = _loops(name)
    compile_c = [["gcc", *C_FLAGS, *INCLUDES, "-c", "-o", str(made), str(source)] for made, source in sources.items()]
    cuda = [str(nvcc.path), *CUDA_FLAGS, PTX_ALONE, "--extended-lambda", *INCLUDES, str(SOURCES / f"{name}.cu")]
    return [*compile_c, [*cuda, *map(str, sources), "-L", str(nvcc.libraries), *LIBRARIES, "-o", str(output)]]


def _sources(name: str) -> list[Path]:
    """What a program may include, and its own file: a change of any builds it anew."""
    own = [SOURCES / f"{name}.cc"] if name == LOAD else [SOURCES / f"{name}.cu", PROGRAMS / "common.c"]
    loops = [_loops(name)] if name in PORTS else []
    headers = [path for folder in (PROGRAMS, SOURCES) for kind in ("*.h", "*.cuh") for path in folder.glob(kind)]
    return [*own, *loops, *sorted(headers), *sorted(LIBRARY.glob("gloop/*.cuh"))]


def build(name: str) -> Path:
    """The program, up to date. Safe to call from several processes at once."""
    nvcc = find_nvcc()
    program = OUTPUT / name
    with rebuilding(program, seal_of(_commands(name, nvcc, program), _sources(name), nvcc.path)) as unfinished:
        if unfinished:
            (OUTPUT / "objects" / name).mkdir(parents=True, exist_ok=True)
            for command in _commands(name, nvcc, unfinished):
                subprocess.run(command, check=True)
    return program


def build_all() -> list[Path]:
    """Every program; several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as builders:
        return list(builders.map(build, EVERY))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", choices=[[], *EVERY], metavar="NAME", help=f"of {', '.join(EVERY)}; without, all"
    )
    names = parser.parse_args().names
    for path in [build(name) for name in names] or build_all():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
