"""Whether programs can move by checkpoints on this host, tried once at the daemon's start: one cycle on each Gpu.

A throw-away process has a context there (holder.py), and the process that carries moves out (checkpoint.py) takes it off the device and puts it
back where it was. Neither is a worker: they have no turn, no account, and no place in any page. Where there is one Gpu nothing is tried, as
nothing moves.

Wrong when: what was missing is there later, room for a context say. The next start of the daemon tries again.
"""

import contextlib
import logging
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from backend_host.children import end
from backend_host.config import PACKAGE_ROOT
from backend_host.device.gpu import Gpu
from backend_host.move.checkpointing import Checkpointer
from backend_host.move.driver_process import CheckpointError
from backend_host.worker_start import WorkerStart

TRIAL_S = 60.0
HOLDER = ("-m", "backend_host.move.holder")
_END_S = 1.0
_FAILED = re.compile(r"^(\w+) of worker \d+ gives CUDA error (\d+)$")
_RESULTS = {
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    401: "CUDA_ERROR_ILLEGAL_STATE",
    600: "CUDA_ERROR_NOT_READY",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
}

log = logging.getLogger("fairgv.moves")


class Trial:
    """Of one device, whose UUID this is, and which workers open as `start` has it."""

    def __init__(self, start: WorkerStart, uuid: str) -> None:
        self._start = start
        self._uuid = uuid
        self._holder: subprocess.Popen[str] | None = None
        self._is_stopping = False

    def run(self) -> str:
        """Why a program cannot be moved; "": it can."""
        try:
            with Checkpointer(self._start.library, TRIAL_S) as mover, self._holding() as holder:
                if why := _why_no_context(holder):
                    return why
                mover.wait()
                return plainly(mover.change([holder.pid], self._uuid, self._uuid).reason)
        except CheckpointError as error:
            return str(error)
        except OSError as error:
            return f"no process to try it with: {error.strerror}"

    def stop(self) -> None:
        """Ends it early. From any thread."""
        self._is_stopping = True
        if self._holder is not None:
            self._holder.kill()

    @contextlib.contextmanager
    def _holding(self) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, *HOLDER, "--library", self._start.library, "--device", str(self._start.ordinal)]
        self._holder = child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=PACKAGE_ROOT,
            env=dict(self._start.environment),
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the daemon
        )
        try:
            if self._is_stopping:
                child.kill()
            yield child
        finally:
            end(child)


class Trials:
    """Of all Gpus of a daemon, one after the other: one thread, which ends with the last of them."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._trials = [(gpu, Trial(gpu.start, gpu.device.uuid)) for gpu in gpus] if len(gpus) > 1 else []
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="move-trials", daemon=True)

    def start(self) -> None:
        """Begins, and returns at once."""
        if self._trials:
            self._thread.start()

    def stop(self) -> None:
        """Ends what is being tried; a driver that hangs is waited for by nobody."""
        self._is_stopping = True
        for _, trial in self._trials:
            trial.stop()
        if self._thread.ident is not None:
            self._thread.join(_END_S)

    def _run(self) -> None:
        for gpu, trial in self._trials:
            why = trial.run()
            if self._is_stopping:
                return
            gpu.mover.set(why)
            if why:
                log.warning("GPU %d: programs cannot move to another Gpu: %s", gpu.number, why)


def _why_no_context(holder: subprocess.Popen[str]) -> str:
    assert holder.stdout is not None
    poll = select.poll()
    poll.register(holder.stdout, select.POLLIN)
    if not poll.poll(TRIAL_S * 1000):
        return f"a trial had no context within {TRIAL_S:g} s"
    said = holder.stdout.readline().strip()
    return "" if said == "ready" else f"a trial got no context: {said or 'its process ended'}"


def plainly(reason: str) -> str:
    """Which call of the driver's gives what."""
    found = _FAILED.match(reason)
    if found is None:
        return reason
    result = int(found[2])
    said = f"cuCheckpointProcess{found[1].capitalize()} gives {_RESULTS.get(result, f'CUDA error {result}')}"
    return said if os.geteuid() == 0 else f"{said}, and the daemon is not root's"
