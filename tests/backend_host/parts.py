"""Files of the worker by themselves, with a C file of a test's own around them."""

import ctypes
import subprocess
from collections.abc import Iterable
from pathlib import Path

from backend_host.worker.build_ffi import DEBUG, HERE, INCLUDES, WARNINGS, sources

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


def build_worker(around: str, folder: Path, *flags: str) -> Path:
    """Builds `around` with the whole worker, and returns the library's path."""
    return build(around, sources(), folder, "-ldl", "-pthread", *flags)


def build(around: str, parts: Iterable[Path], folder: Path, *flags: str) -> Path:
    built = folder / f"{around}.so"
    files = [Path(__file__).with_name(f"{around}.c"), *parts]
    includes = [f"-I{include}" for include in INCLUDES]
    command = ["gcc", *WARNINGS, *includes, "-shared", "-fPIC", "-o", str(built), *map(str, files), *flags]
    subprocess.run(command, check=True)
    return built
