"""The daemon's end of its own process in a space (client.py): it starts it, gets the space's page from it, and asks it for signs of life."""

import itertools
import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

from backend_host.errors import FairGVError
from backend_host.walls.start import Child
from backend_host.worker_start import WorkerStart
from ivshmem.passing import receive_with, send_with

PROBE_S = 5.0
_BEGIN_S = 25.0
_END_S = 5.0
_PROGRAM = ("-m", "backend_host.space.client")
_MESSAGE_BYTES = 4096
GONE, SILENT = -1, -2
"""In place of a CUresult: the process has ended; it did not answer in time."""

log = logging.getLogger("fairgv.space")


class ClientError(FairGVError):
    """There is no such process, or it could not do what it is for."""


class OwnClient:
    """One process. Of one thread."""

    def __init__(self, start: WorkerStart) -> None:
        """Raises ClientError."""
        self.multiprocessors = 0
        """Of the device, once there is a page."""
        self._start = replace(start, program=_PROGRAM)
        self._numbers = itertools.count(1)
        """Of questions, each of which its answer repeats: those to earlier ones may come late."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process: Child = self._start.spawn(theirs.fileno(), 0)
            except OSError as error:
                self._socket.close()
                raise ClientError(f"no process of its own: {error}") from error

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def make(self) -> int:
        """A descriptor of a fresh page, the caller's. Raises ClientError."""
        said, fds = self._ask("make", (), _BEGIN_S)
        if len(fds) != 1:
            raise ClientError("it made no page")
        self.multiprocessors = int(str(said["multiprocessors"]))
        return fds[0]

    def take(self, page: int) -> None:
        """Has it map a page that is there. Raises ClientError."""
        said, _ = self._ask("take", (page,), _BEGIN_S)
        self.multiprocessors = int(str(said["multiprocessors"]))

    def probe(self) -> int:
        """0: the device serves the space. Else the CUresult that it gave, GONE or SILENT."""
        try:
            said, _ = self._ask("probe", (), PROBE_S)
            return int(str(said["error"]))
        except TimeoutError:
            return SILENT
        except (ClientError, KeyError, ValueError):
            return GONE

    def clear(self) -> None:
        """Makes the page's split word zero. Raises ClientError."""
        try:
            self._ask("clear", (), PROBE_S)
        except TimeoutError as error:
            raise ClientError("it did not clear the page in time") from error

    def end(self) -> None:
        """At once, and waits for it. One that a driver keeps from ending is named in the log and left behind."""
        self._socket.close()
        self._process.kill()
        if not self._process.has_ended(_END_S):
            log.error("process %d of a space does not end; the device library holds it", self._process.pid)
            return
        self._process.wait()
        self._start.leave(self._process)
        self._process.close()

    def _ask(self, operation: str, fds: Sequence[int], limit_s: float) -> tuple[dict[str, object], list[int]]:
        """Raises TimeoutError, or ClientError."""
        until_s, number = time.monotonic() + limit_s, next(self._numbers)
        self._socket.settimeout(limit_s)
        try:
            send_with(self._socket, json.dumps({"op": operation, "number": number}).encode(), fds)
        except TimeoutError:
            raise
        except OSError as error:
            raise ClientError(f"its process has ended: {error}") from error
        while True:
            said, received = self._heard(until_s)
            if "failed" not in said and said.get("number") == number:
                return said, received
            for fd in received:
                os.close(fd)
            if "failed" in said and said.get("number", number) == number:  # at its begin it knows of no question
                raise ClientError(str(said["failed"]))

    def _heard(self, until_s: float) -> tuple[dict[str, object], list[int]]:
        """Raises TimeoutError, or ClientError."""
        self._socket.settimeout(max(0.001, until_s - time.monotonic()))
        try:
            text, received = receive_with(self._socket, _MESSAGE_BYTES, 1)
        except TimeoutError:
            raise
        except OSError as error:
            raise ClientError(f"its process has ended: {error}") from error
        if not text:
            raise ClientError("its process has ended")
        return json.loads(text), received
