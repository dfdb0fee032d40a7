"""Compiles the test programs with nvcc into build/programs, each with the static runtime, as nvcc does by default.

A program is one file, and those of a folder of its name, if there is one. Those of `SHARED` get a twin NAME.shared that
loads libcudart.so. A program is compiled again when its source, a header here, nvcc or its command changed. Needs nvcc:
CUDA_HOME, PATH, or the compiler wheels in the virtual environment.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.nvcc import Nvcc, find_nvcc, rebuilding, seal_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "build" / "programs"

NAMES = tuple(sorted(source.stem for source in HERE.glob("*.cu")))
NOT_CARRIED = ("checkpoint",)
"""What a device does for programs and FairGV refuses its guests: a program that is not here is compared."""
CRASHES_NATIVELY = ("share_pool_misuse",)
"""Programs that NVIDIA's own driver (580, on an H100) ends with a signal: what is forged there is refused here."""
SHARED = ("vector_add", "device_query", "simple_streams", "threads")
DRIVER_API = (
    "bad_image",
    "boxes",
    "checkpoint",
    "link_ptx",
    "much_memory",
    "share_descriptor",
    "share_pool_misuse",
    "sharing",
    "stream_values",
    "told_constants",
    "virtual_memory",
)
EXTRA_FLAGS = {
    "architectures": (
        "-gencode=arch=compute_75,code=[sm_75,compute_75]",
        "-gencode=arch=compute_80,code=[sm_80,sm_86,compute_80]",
        "-gencode=arch=compute_90,code=[sm_90,compute_90]",
        "-gencode=arch=compute_90a,code=sm_90a",
    ),
    "gives_way": ("-I", str(ROOT / "frontend_guest" / "include")),
    "per_thread_stream": ("--default-stream", "per-thread"),
    "machine_code": ("-gencode=arch=compute_90,code=sm_90",),
    "tensor_cores": ("-gencode=arch=compute_80,code=compute_80",),
    "linked": ("-rdc=true",),
}


def _link_flags(nvcc: Nvcc, source: Path, folder: Path) -> list[str]:
    """libcuda.so.1 comes with a driver, which this machine need not have: links against one made of names alone."""
    folder.mkdir(parents=True, exist_ok=True)
    compiled = folder / f"{source.stem}.o"
    subprocess.run([nvcc.path, "-std=c++17", "-c", "-I", HERE, "-o", compiled, source], check=True)
    symbols = subprocess.run(["nm", "--undefined-only", compiled], capture_output=True, text=True, check=True).stdout
    names = sorted(set(re.findall(r" U (cu[A-Z]\w*)$", symbols, re.MULTILINE)))
    command = ["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(folder / "libcuda.so")]
    subprocess.run(command, input="".join(f"void {name}(void) {{}}\n" for name in names), text=True, check=True)
    return ["-L", str(folder), "-lcuda"]


def _libcudart_for_linking(nvcc: Nvcc) -> None:
    """The wheels have the shared runtime under its full name only; the linker looks for libcudart.so."""
    if (nvcc.libraries / "libcudart.so").exists():
        return
    versions = sorted(nvcc.libraries.glob("libcudart.so.*"))
    link = OUTPUT / "link" / "libcudart.so"
    if versions and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another one was faster
            link.symlink_to(versions[-1])


def build_one(name: str, *, is_shared: bool = False, nvcc: Nvcc | None = None) -> Path:
    """Compiles one program unless it is up to date. Safe to call from several processes at once."""
    nvcc = nvcc or find_nvcc()
    program = OUTPUT / (f"{name}.shared" if is_shared else name)
    sources = [HERE / f"{name}.cu", *sorted((HERE / name).glob("*.cu"))]
    command = [str(nvcc.path), "-O2", "-std=c++17", "-L", str(nvcc.libraries), "-I", str(HERE)]
    if is_shared:
        command += ["-cudart", "shared", "-L", str(OUTPUT / "link")]
        command += ["-Xlinker", "--enable-new-dtags", "-Xlinker", f"-rpath={nvcc.libraries}"]
    command += EXTRA_FLAGS.get(name, ())
    with rebuilding(program, seal_of([command], [*sources, *sorted(HERE.rglob("*.h"))], nvcc.path)) as unfinished:
        if unfinished:
            if is_shared:
                _libcudart_for_linking(nvcc)
            if name in DRIVER_API:
                command += _link_flags(nvcc, sources[0], OUTPUT / "link" / name)
            subprocess.run([*command, "-o", str(unfinished), *map(str, sources)], check=True)
    return program


def build_all() -> list[Path]:
    nvcc, wanted = find_nvcc(), [*((name, False) for name in NAMES), *((name, True) for name in SHARED)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda one: build_one(one[0], is_shared=one[1], nvcc=nvcc), wanted))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], help="which programs, all without")
    arguments = parser.parse_args()
    programs = [build_one(name) for name in arguments.names] if arguments.names else build_all()
    for program in programs:
        print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
