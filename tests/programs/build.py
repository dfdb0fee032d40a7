"""Compiles the test programs with nvcc into build/programs, each with the static runtime, as nvcc does by default.

Those of `SHARED` get a twin NAME.shared that loads libcudart.so. A program is compiled again when its source, a header
here, nvcc or its command changed. Needs nvcc: CUDA_HOME, PATH, or the compiler wheels in the virtual environment.
"""

import argparse
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "build" / "programs"

NAMES = tuple(sorted(source.stem for source in HERE.glob("*.cu")))
SHARED = ("vector_add", "device_query", "simple_streams", "threads")
DRIVER_API = ("bad_image",)
EXTRA_FLAGS = {"per_thread_stream": ("--default-stream", "per-thread")}


class NvccNotFoundError(Exception):
    """There is no CUDA compiler on this machine."""


@dataclass(frozen=True)
class Nvcc:
    path: Path
    libraries: Path
    """The folder of libcudart_static.a and libcudart.so."""


@functools.cache
def find_nvcc() -> Nvcc:
    """The compiler of CUDA_HOME, else of PATH, else of the wheels in this virtual environment."""
    candidates = []
    if os.environ.get("CUDA_HOME"):
        candidates.append(Path(os.environ["CUDA_HOME"]) / "bin" / "nvcc")
    on_path = shutil.which("nvcc")
    if on_path:
        candidates.append(Path(on_path))
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    candidates.extend(sorted(Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc"), reverse=True))
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return Nvcc(candidate, _libraries_of(candidate))
    raise NvccNotFoundError(
        "no nvcc in CUDA_HOME, PATH, /usr/local/cuda or the virtual environment; make setup gets one"
    )


def _libraries_of(nvcc: Path) -> Path:
    """Asks nvcc itself where it lives: what PATH has may be a script. Wheels keep their libraries in lib, not in lib64."""
    dry_run = subprocess.run([nvcc, "-dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True, check=True)
    home = re.search(r"^#\$ TOP=(.*)$", dry_run.stderr, re.MULTILINE)
    if home is None:
        raise NvccNotFoundError(f"{nvcc} does not say where its toolkit is: {dry_run.stderr}")
    for name in ("lib64", "lib"):
        libraries = (Path(home[1]) / name).resolve()
        if (libraries / "libcudart_static.a").exists():
            return libraries
    raise NvccNotFoundError(f"the toolkit of {nvcc} in {home[1]} has no libcudart_static.a")


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
        link.symlink_to(versions[-1])


def build_one(name: str, *, is_shared: bool = False, nvcc: Nvcc | None = None) -> Path:
    """Compiles one program unless it is up to date. Safe to call from several processes at once."""
    nvcc = nvcc or find_nvcc()
    program = OUTPUT / (f"{name}.shared" if is_shared else name)
    source = HERE / f"{name}.cu"
    command = [str(nvcc.path), "-O2", "-std=c++17", "-L", str(nvcc.libraries), "-I", str(HERE)]
    if is_shared:
        command += ["-cudart", "shared", "-L", str(OUTPUT / "link")]
        command += ["-Xlinker", "--enable-new-dtags", "-Xlinker", f"-rpath={nvcc.libraries}"]
    command += EXTRA_FLAGS.get(name, ())
    seal = hashlib.sha256("\0".join(command).encode())
    for path in [source, *sorted(HERE.glob("*.h"))]:
        seal.update(path.read_bytes())
    seal.update(str(nvcc.path.stat().st_mtime_ns).encode())
    stamp = OUTPUT / "stamps" / program.name
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with stamp.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if lock.read() == seal.hexdigest() and program.exists():
            return program
        if is_shared:
            _libcudart_for_linking(nvcc)
        if name in DRIVER_API:
            command += _link_flags(nvcc, source, OUTPUT / "link" / name)
        unfinished = program.with_name(program.name + ".new")
        subprocess.run([*command, "-o", str(unfinished), str(source)], check=True)
        unfinished.replace(program)
        lock.truncate(0)
        lock.write(seal.hexdigest())
    return program


def build_all() -> list[Path]:
    nvcc = find_nvcc()
    programs = [build_one(name, nvcc=nvcc) for name in NAMES]
    return programs + [build_one(name, is_shared=True, nvcc=nvcc) for name in SHARED]


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
