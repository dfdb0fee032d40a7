"""When a device has failed, and how that is found out.

Whoever learns of something that may be a failure, a worker's error or one that got no context, raises a suspicion. The daemon then has a
process of its own make a context there: twice none, and the device has failed. Workers may be their guests', whose word alone is no reason to
take a device from all others. What the driver's own monitor says (nvml/watch.py) needs no trial, and waits for none that hangs.

A device that has failed stays so until the daemon is started anew: then it is tried as any other. Nothing else is known to be safe, as what is
left in the driver of a device that was reset nobody can tell.

Wrong when: a context takes longer than TRIAL_S on a host that is overloaded, twice in a row.
"""

import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from backend_host.children import run_within
from backend_host.config import PACKAGE_ROOT
from backend_host.device.readings import WantReading
from backend_host.worker_start import WORKER, WorkerStart

OUT_OF_MEMORY = 2
UNAVAILABLE = 46
SUSPICIOUS = {UNAVAILABLE: "unavailable", 214: "uncorrectable ECC error", 220: "uncorrectable NVLink error"}
"""CUDA_ERROR_DEVICE_UNAVAILABLE, _ECC_UNCORRECTABLE, _NVLINK_UNCORRECTABLE: by what workers say, it may be the device."""
TRIAL_S = 60.0
_BETWEEN_S = 1.0
_APART_S = 10.0
"""Between two trials of suspicions that turned out wrong: a guest may raise any number, and a context takes memory."""
_ERROR = re.compile(r"CUDA error (\d+)\b")

log = logging.getLogger("fairgv.device")


@dataclass(frozen=True)
class Failure:
    """Why a device is out, in words that go on after "it has failed:", and what its programs are told: a CUresult."""

    reason: str
    code: int = UNAVAILABLE


class Trial(Protocol):
    """Makes a context on the device, and ends it. None: it could, or nobody can tell."""

    def __call__(self) -> Failure | None:
        """See there."""


def trial_of(start: WorkerStart) -> Trial:
    """By a process that opens the device as its workers do."""
    command = [sys.executable, *WORKER, "--check", "--library", start.library, "--device", str(start.ordinal)]

    def try_once() -> Failure | None:
        try:
            child = run_within(TRIAL_S, command, cwd=PACKAGE_ROOT, env=dict(start.environment), start_new_session=True)
        except subprocess.TimeoutExpired:
            return Failure(f"a context was not there within {TRIAL_S:g} s")
        except OSError as error:
            log.warning("no process to try a device with: %s", error)
            return None
        return None if child.returncode == 0 else _read(child.returncode, child.stderr)

    return try_once


def _read(status: int, said: str) -> Failure | None:
    """A full device gives no context, and has not failed. Nor has one whose process the host ended, or whose library is gone."""
    found = _ERROR.search(said)
    code = int(found[1]) if found else OUT_OF_MEMORY
    if code == OUT_OF_MEMORY:
        log.info(
            "a trial of a device ended with status %d, which does not tell of the device: %s", status, said.strip()
        )
        return None
    what = f", {SUSPICIOUS[code]}" if code in SUSPICIOUS else ""
    return Failure(f"it gives no context (CUDA error {code}{what})", code if code in SUSPICIOUS else UNAVAILABLE)


class Ward:
    """Of one device: one thread tries it where there is a suspicion, and another acts on a failure, whoever tells of it."""

    def __init__(self, name: str, trial: Trial, between_s: float = _BETWEEN_S) -> None:
        """`name`: what it is called in the log. `between_s`: between two trials of one suspicion."""
        self._name = name
        self.failure: Failure | None = None
        """As soon as it is known. The first word holds."""
        self._trial = trial
        self._on_failure: Callable[[Failure], None] = lambda _: None
        self._between_s = between_s
        self._suspicion = ""
        self._given: Failure | None = None
        self._said: set[tuple[int, int]] = set()
        """Workers, by slot and process, of whose errors it has heard."""
        self._tried_s = -_APART_S
        self._news = threading.Condition()
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._act, name="ward", daemon=True),
            threading.Thread(target=self._try, name="ward-trials", daemon=True),
        ]

    def start(self, on_failure: Callable[[Failure], None]) -> None:
        """Begins to act on suspicions. `on_failure` is called once, from a thread of this object's."""
        self._on_failure = on_failure
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """The counterpart; a trial that goes on is waited for by nobody."""
        with self._news:
            self._is_stopping = True
            self._news.notify_all()

    def suspect(self, why: str) -> None:
        """It may have failed. From any thread; returns at once."""
        with self._news:
            self._suspicion = self._suspicion or why
            self._news.notify_all()

    def fail(self, failure: Failure) -> None:
        """It has, by the word of who knows. From any thread; returns at once."""
        with self._news:
            self._given = self._given or failure
            self._news.notify_all()

    def look(self, readings: Sequence[WantReading]) -> None:
        """Raises a suspicion for each program whose worker says what may be the device's fault, once. What one said at its end comes by its
        reaper (workers.py)."""
        said = {
            (reading.slot, reading.pid): reading.last_error for reading in readings if reading.last_error in SUSPICIOUS
        }
        for worker in said.keys() - self._said:
            self.suspect(f"a program got CUDA error {said[worker]}")
        self._said = set(said)

    @property
    def _is_over(self) -> bool:
        return self._is_stopping or self._given is not None

    def _act(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._is_over)
            failure = self._given
            if self._is_stopping or failure is None:
                return
        self.failure = failure
        log.error("%s has failed: %s", self._name, failure.reason)
        try:
            self._on_failure(failure)
        except Exception:
            log.exception("what follows the failure of a device failed")

    def _try(self) -> None:
        while why := self._next_suspicion():
            log.warning("%s: is it in order? %s: a context is tried", self._name, why)
            if (failure := self._tried()) is not None:
                self.fail(failure)

    def _next_suspicion(self) -> str:
        """Waits for one, and until there may be a trial; "": none is needed any more."""
        with self._news:
            self._news.wait_for(lambda: self._is_over or self._suspicion)
            self._news.wait_for(lambda: self._is_over, max(0.0, self._tried_s + _APART_S - time.monotonic()))
            if self._is_over:
                return ""
            why, self._suspicion = self._suspicion, ""
            self._tried_s = time.monotonic()
        return why

    def _tried(self) -> Failure | None:
        if self._trial() is None:
            log.info("%s gives a context: it is in order", self._name)
            return None
        with self._news:
            self._news.wait_for(lambda: self._is_over, self._between_s)
        return None if self._is_over else self._trial()
