"""Recordings in processes of their own: a process can hold one libcuda.so.1, and two of them compile at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.softgpu.arithmetic.answers import Answers, load
from tests.softgpu.arithmetic.catalogue import FAMILIES

ROOT = Path(__file__).parents[3]
NR_PROCESSES = 2
_TIMEOUT_S = 240


class RecordingError(Exception):
    """The recorder failed; its last words."""


def _shares(names: Sequence[str]) -> list[list[str]]:
    """Families dealt out, the largest first, so that each process has about as many forms."""
    shares: list[list[str]] = [[] for _ in range(NR_PROCESSES)]
    for name in sorted(names, key=lambda name: -len(FAMILIES[name].forms)):
        min(shares, key=lambda share: sum(len(FAMILIES[member].forms) for member in share)).append(name)
    return [share for share in shares if share]


def recorded(library: str, names: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ) -> Answers:
    """What a library answers for these families. Raises RecordingError."""
    files, processes = [], []
    for index, share in enumerate(_shares(names)):
        files.append(folder / f"part{index}.npz")
        command = [sys.executable, "-m", "tests.softgpu.arithmetic.record", "--library", library]
        command += ["--output", str(files[-1].absolute()), *(f"--family={name}" for name in share)]
        processes.append(
            subprocess.Popen(
                command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    _finish(processes)
    parts = [load(file) for file in files]
    for part in parts[1:]:
        parts[0].families |= part.families
    return parts[0]


def _finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    try:
        for process in processes:
            words = process.communicate(timeout=_TIMEOUT_S)[1]
            if process.returncode:
                raise RecordingError(words.strip().splitlines()[-1] if words.strip() else f"exit {process.returncode}")
    except subprocess.TimeoutExpired:
        raise RecordingError(f"no end after {_TIMEOUT_S} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
