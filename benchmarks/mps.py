"""NVIDIA's Multi-Process Service for the time of a measurement: what a host without FairGV would share its GPU with.

The control daemon gets folders of its own, so that it meets no other one of the machine, and is told to quit at the end. Programs that
carry its variables become its clients. Wrong when the GPU is in exclusive mode for somebody else, or when the container does not let MPS
have its shared memory: then the first client fails, and its words are the reason.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.build import build
from benchmarks.errors import NotMeasurableError

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 60


@contextmanager
def mps_server(device: str) -> Iterator[dict[str, str]]:
    """The environment of its clients. NotMeasurableError with the reason when it cannot be started or serves nobody."""
    if device != "cuda":
        raise NotMeasurableError("MPS is NVIDIA's: there is none for softgpu")
    program = shutil.which(CONTROL)
    if program is None:
        raise NotMeasurableError(f"MPS cannot be started: there is no {CONTROL} on this machine")
    with tempfile.TemporaryDirectory(prefix="fairgv-mps-", ignore_cleanup_errors=True) as directory:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": f"{directory}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{directory}/log"}
        for folder in folders.values():
            Path(folder).mkdir()
        environment = {**os.environ, **folders}
        started = _run([program, "-d"], environment)
        if started.returncode != 0:
            raise NotMeasurableError(f"MPS cannot be started: {_words(started)}")
        try:
            tried = _run([str(build("spin")), "--seconds", "0.1"], environment)
            if tried.returncode != 0:
                raise NotMeasurableError(f"MPS serves nobody: {_words(tried)}")
            yield environment
        finally:
            _run([program], environment, "quit\n")


def _run(command: list[str], environment: Mapping[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {LIMIT_S} s")


def _words(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr + result.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {result.returncode}"
