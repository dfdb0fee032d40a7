"""Files of the worker by themselves, with a C file of a test's own around them."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from backend_host.worker.build_ffi import DEBUG, HERE, INCLUDES, ROOT, WARNINGS, sources
from benchmarks.nvcc import rebuilding, seal_of

OUTPUT = ROOT / "build" / "tests" / "worker"

TURN = (
    "turn", "phase", "change", "moves", "charge", "patience", "newcomer", "queue", "watch",
    "way", "ways", "critical", "stop", "turn/yield", "drain", "withdraw", "tail", "share",
)  # fmt: skip
"""What a worker's turn is made of, without copies beside it."""

PAGE = (
    "grant",
    "apart",
    "outlook",
    "allowance",
    "hand_over",
    "lives",
    "nudge",
    "account",
    "motion",
    "room",
    "shares",
    "sleep",
    "page/space",
    "demand",
    "control",
)
"""What the control page is made of, without bells."""
TRACK = ("due", "running", "latency", "burst")
"""What is known of work on the device."""


def load_parts(around: str, parts: Iterable[str], folder: Path, flags: Iterable[str] = (DEBUG,)) -> ctypes.CDLL:
    """Builds `around` (NAME.c, beside this file) with these of the worker's files (names without .c) in `folder`, and loads them. Such
    a library stops at its mistakes. What the functions that a test calls never ask for may be missing."""
    files = [next(HERE.rglob(f"{part}.c")) for part in parts]
    return ctypes.CDLL(str(build(around, files, folder, *flags)), mode=1)  # RTLD_LAZY


def build_worker(around: str, *flags: str) -> Path:
    """Builds `around` with the whole worker, unless it is there as it would be built now, and returns the library's path. Any number of
    processes may ask for it at once."""
    built = OUTPUT / f"{around}.so"
    files = [_own(around), *sources()]
    headers = sorted({path for include in INCLUDES for path in include.rglob("*.h")})
    flags = ("-ldl", "-pthread", *flags)
    seal = seal_of([_command(files, built, *flags)], [*files, *headers], Path(str(shutil.which("gcc"))))
    with rebuilding(built, seal) as unfinished:
        if unfinished:
            subprocess.run(_command(files, unfinished, *flags), check=True)
    return built


def build(around: str, parts: Iterable[Path], folder: Path, *flags: str) -> Path:
    built = folder / f"{around}.so"
    subprocess.run(_command([_own(around), *parts], built, *flags), check=True)
    return built


def _own(around: str) -> Path:
    return Path(__file__).with_name(f"{around}.c")


def _command(files: Iterable[Path], built: Path, *flags: str) -> list[str]:
    includes = [f"-I{include}" for include in INCLUDES]
    return ["gcc", *WARNINGS, *includes, "-shared", "-fPIC", "-o", str(built), *map(str, files), *flags]
