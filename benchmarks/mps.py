"""NVIDIA's Multi-Process Service for the time of a measurement: what a host without FairGV would share its GPU with.

The control daemon gets folders of its own, so that it meets no other one of the machine, and is told to quit at the end. Programs that
carry its variables become its clients. Wrong when the GPU is in exclusive mode for somebody else, or when the container does not let MPS
have its shared memory: then the first client fails, and its words are the reason.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
        try:
            mps.start()
        except MpsError as error:
            raise NotMeasurableError(f"MPS cannot be started: {error}") from error
        try:
            environment = {**os.environ, **mps.of_clients}
            if reason := _trial(environment):
                raise NotMeasurableError(f"MPS serves nobody: {reason}")
            yield environment
        finally:
            mps.quit()


def _trial(environment: Mapping[str, str]) -> str:
    """Why a program that computes for a moment fails; empty: it does not."""
    command = [str(build("spin")), "--seconds", "0.1"]
    try:
        tried = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_S} s"
    lines = (tried.stderr + tried.stdout).strip().splitlines()
    return "" if tried.returncode == 0 else lines[-1] if lines else f"exit status {tried.returncode}"
