"""Players of a worker's handlers (object_player.py and its like), each in a process with a library that is built with sanitizers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.backend_host.parts import build_worker
from tests.backend_host.worker_guest import ROOT

_SANITIZERS = ("-O0", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def build() -> Path:
    """The library of object_table.c."""
    return build_worker("object_table", *_SANITIZERS)


def play(library: Path, player: str, command: str, folder: Path) -> Any:
    """Runs a player's command, and returns what it left in the folder. A mistake with memory, or a leak, fails the test."""
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(Path(asan.stdout.strip()).resolve()),
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
        "PYTHONMALLOC": "malloc",
        "FAIRGV_SOFTGPU_STATE": str(folder / "device"),
        "FAIRGV_SOFTGPU_DEVICES": "2",
        "FAIRGV_SOFTGPU_COMPILER": f"env LD_PRELOAD= {sys.executable} -m softgpu.compiler",
    }
    arguments = [sys.executable, "-m", f"tests.backend_host.{player}", str(library), command, str(folder)]
    done = subprocess.run(
        arguments, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "runtime error" not in done.stderr
    assert "54321 byte(s)" in done.stderr
    leaks = [block for block in done.stderr.split("\n\n") if "leak of" in block and _is_ours(block)]
    assert not leaks, "\n\n".join(leaks)
    return json.loads((folder / f"{command}.json").read_text())


def _is_ours(leak: str) -> bool:
    """Whether it is the worker that asked for the memory, and not the device library or Python."""
    asked = next((line for line in leak.splitlines() if line.strip().startswith("#1 ")), "")
    return str(ROOT / "backend_host") in asked
