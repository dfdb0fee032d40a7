"""NVIDIA's Multi-Process Service for the time of a measurement: what a host without FairGV would share its GPU with.

The control daemon gets folders of its own, so that it meets no other one of the machine, and is told to quit at the end. Programs that
carry its variables become its clients. Wrong when the GPU is in exclusive mode for somebody else, or when the container does not let MPS
have its shared memory: then the first client fails, and its words are the reason.

Where this process is killed, a child of it tells the control daemon to quit (`python -m benchmarks.mps FOLDER`): the end of its standard input
tells that.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from backend_host.space.mps import Mps, MpsError
from benchmarks.build import build
from benchmarks.errors import NotMeasurableError

LIMIT_S = 60


@contextmanager
def mps_server(device: str) -> Iterator[dict[str, str]]:
    """The environment of its clients. NotMeasurableError with the reason when it cannot be started or serves nobody."""
    if device != "cuda":
        raise NotMeasurableError("MPS is NVIDIA's: there is none for softgpu")
    with tempfile.TemporaryDirectory(prefix="fairgv-mps-", ignore_cleanup_errors=True) as directory:
        mps = Mps(Path(directory))
        with _quitting(mps.folder):
            try:
                mps.start()
            except MpsError as error:
                raise NotMeasurableError(f"MPS cannot be started: {error}") from error
            environment = {**os.environ, **mps.of_clients}
            if reason := _trial(environment):
                raise NotMeasurableError(f"MPS serves nobody: {reason}")
            yield environment


@contextmanager
def _quitting(folder: Path) -> Iterator[None]:
    """The one in this folder quits at the end of the block, or of this process."""
    command = [sys.executable, "-P", "-m", "benchmarks.mps", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True) as heir:
        try:
            yield
        finally:
            heir.communicate()


def _trial(environment: Mapping[str, str]) -> str:
    """Why a program that computes for a moment fails; empty: it does not."""
    command = [str(build("spin")), "--seconds", "0.1"]
    try:
        tried = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_S} s"
    lines = (tried.stderr + tried.stdout).strip().splitlines()
    return "" if tried.returncode == 0 else lines[-1] if lines else f"exit status {tried.returncode}"


if __name__ == "__main__":
    sys.stdin.buffer.read()
    Mps(Path(sys.argv[1])).quit()
