"""Programs natively and through `fairgv-run` in turn: what benchmarks of whole programs have in common."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend_host.config import Config
from benchmarks.devices import SOFTGPU, choose_device, device_name
from benchmarks.errors import ProgramFailedError
from benchmarks.guests.process import daemon

RUN_LIMIT_S = 300


@dataclass(frozen=True)
class Beside:
    """A device, with a daemon of its own."""

    device: str
    name: str
    state_dir: Path

    def native(self, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """What the program prints natively. Raises ProgramFailedError."""
        library = {} if self.device == "cuda" else {"LD_LIBRARY_PATH": str(SOFTGPU)}
        return _run(command, {**environment, **library})

    def through(self, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """What it prints as a guest. Raises ProgramFailedError."""
        return _run(
            [sys.executable, "-m", "backend_host.run", "--state-dir", str(self.state_dir), "--", *command], environment
        )

    def write(self, path: Path | None, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """The document, if one was asked for."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"kind": kind, "device": self.name, "rows": rows}, indent=1) + "\n")


def parser(name: str, about: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """With the options that all of them have."""
    made = argparse.ArgumentParser(prog=f"benchmarks.{name}", description=(about or "").partition("\n")[0])
    made.add_argument("--device", choices=("auto", "soft", "cuda"), default="auto")
    made.add_argument(
        "--rounds", type=int, default=rounds, metavar="N", help="each way once in each (default %(default)s)"
    )
    made.add_argument("--json", type=Path, metavar="FILE")
    return made


@contextlib.contextmanager
def beside(device: str) -> Iterator[Beside]:
    """On this device, "auto" being NVIDIA's if it answers. Raises FairGVError."""
    chosen = choose_device(device)
    with tempfile.TemporaryDirectory(prefix="fairgv-beside-") as folder:
        state_dir = Path(folder)
        state_dir.chmod(0o711)
        with daemon(Config(state_dir=state_dir, device=chosen), None):
            yield Beside(chosen, device_name(chosen), state_dir)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, check=False, env={**os.environ, **environment}, capture_output=True, text=True, timeout=RUN_LIMIT_S
    )
    if done.returncode != 0:
        raise ProgramFailedError(f"{' '.join(command)} failed ({done.returncode}): {done.stdout}{done.stderr}")
    return done.stdout
