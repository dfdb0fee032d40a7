"""Files of the worker by themselves, with a C file of a test's own around them."""

import ctypes
import subprocess
from collections.abc import Iterable
from pathlib import Path

from backend_host.worker.build_ffi import HERE, INCLUDES, WARNINGS


def load_parts(around: str, parts: Iterable[str], folder: Path) -> ctypes.CDLL:
    """Builds `around` (NAME.c, beside this file) with these of the worker's files (names without .c) in `folder`, and loads them. What the
    functions that a test calls never ask for may be missing."""
    built = folder / f"{around}.so"
    sources = [Path(__file__).with_name(f"{around}.c"), *(next(HERE.glob(f"*/{part}.c")) for part in parts)]
    includes = [f"-I{include}" for include in INCLUDES]
    command = ["gcc", *WARNINGS, *includes, "-shared", "-fPIC", "-o", str(built), *map(str, sources)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(built), mode=1)  # RTLD_LAZY
