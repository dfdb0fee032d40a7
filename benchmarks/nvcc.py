"""Where nvcc is, and the seal that keeps a program from being compiled twice. Shared by the builders of benchmarks and of test programs."""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backend_host.errors import FairGVError


class NvccNotFoundError(FairGVError):
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


def seal_of(commands: Iterable[Sequence[str]], sources: Iterable[Path], compiler: Path) -> str:
    """Changes whenever a command, the content of a source or the compiler does."""
    seal = hashlib.sha256("\n".join("\0".join(command) for command in commands).encode())
    for path in sources:
        seal.update(path.read_bytes())
    seal.update(str(compiler.stat().st_mtime_ns).encode())
    return seal.hexdigest()


@contextmanager
def rebuilding(program: Path, seal: str) -> Iterator[Path | None]:
    """The path to write the program to, or None when what is there carries this seal.

    The program appears under its own name, and gets the seal, when the body ends without an exception. Only one process at
    a time is in the body for one program, so that any number may ask for it at once.
    """
    stamp = program.parent / "stamps" / program.name
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with stamp.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if lock.read() == seal and program.exists():
            yield None
            return
        unfinished = program.with_name(program.name + ".new")
        yield unfinished
        unfinished.replace(program)
        lock.truncate(0)
        lock.write(seal)
