"""Whole programs as critical ones of pairs: networks over sequences, by PyTorch, and connected components.

Networks are run by the first python3 of PATH, where that has PyTorch, and on a GPU.
"""

import functools
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager

from benchmarks.guests.process import ProcessSession
from benchmarks.space import live
from benchmarks.space.live import CRITICAL, LARGE, Program
from benchmarks.workloads import SCRIPTS

NETWORKS = ("lstm", "gru")
NAMES = (*NETWORKS, "components")
SCRIPT = SCRIPTS / "torch_networks.py"
ASK_LIMIT_S = 60
_ASKED = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def why_not(name: str, device: str) -> str:
    """Why that program cannot be measured here; empty: it can."""
    if name not in NETWORKS:
        return ""
    if device != "cuda":
        return "softgpu does not run PyTorch: lstm and gru are left out"
    return _why_no_torch()


@functools.cache
def _why_no_torch() -> str:
    python = shutil.which("python3")
    if python is None:
        return "there is no python3 in PATH, which lstm and gru are run by"
    asked = subprocess.run([python, "-c", _ASKED], check=False, timeout=ASK_LIMIT_S)
    return "" if asked.returncode == 0 else f"{python} has no torch, which lstm and gru need: they are left out"


def critical_program(
    session: ProcessSession, name: str, device: str, pause: Sequence[str]
) -> AbstractContextManager[Program]:
    """One of these, or of programs/, as the critical guest of the session, for the block. `pause`: words that say it."""
    if name in NETWORKS:
        return live.program(session, CRITICAL, (name, *pause), SCRIPT)
    return live.program(session, CRITICAL, ("critical", name, *LARGE[device], *pause))
