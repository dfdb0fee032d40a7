"""The thread that reads what one of NVML's processes says (child.py).

A process that says nothing for SILENCE_S is killed. Once it has ended another is tried, each minute: a driver that hung may have come to. The
log says once that nothing is heard, and why.

Wrong when: a process that hangs in the driver cannot be killed. No other is started as long as it is there: there would be more of them each
minute.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backend_host.children import end
from backend_host.config import PACKAGE_ROOT

CHILD = ("-m", "backend_host.nvml.child")
SILENCE_S = 10.0
AGAIN_S = 60.0
END_S = 5.0
_MOST_BYTES = 1 << 16
"""Of a line; sixteen devices take 3 KiB."""


class Lines:
    """Lines of a pipe, each within a time limit."""

    def __init__(self, fd: int, wake: int, silence_s: float) -> None:
        """`wake`: what can be read from once nobody wants a line any more."""
        self._fd, self._silence_s = fd, silence_s
        self._kept = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(fd, selectors.EVENT_READ)
        self._selector.register(wake, selectors.EVENT_READ)

    def close(self) -> None:
        """The pipe stays open."""
        self._selector.close()

    def next(self) -> Mapping[str, Any] | None:
        """An object; None: the pipe has ended, or nobody wants one any more. Raises TimeoutError for silence, ValueError for what is none."""
        while b"\n" not in self._kept:
            ready = {key.fd for key, _ in self._selector.select(self._silence_s)}
            if not ready:
                raise TimeoutError
            if self._fd not in ready:
                return None
            if not (more := os.read(self._fd, _MOST_BYTES)):
                return None
            self._kept += more
            if len(self._kept) > 2 * _MOST_BYTES:
                raise ValueError("a line without an end")
        line, _, self._kept = self._kept.partition(b"\n")
        told = json.loads(line)
        if not isinstance(told, dict):
            raise ValueError(f"no object: {line[:80]!r}")
        return told


class Listener:
    """To the process that is started with these arguments."""

    def __init__(
        self,
        arguments: Sequence[str],
        take: Callable[[Mapping[str, Any]], None],
        on_silence: Callable[[str], None],
        silence_s: float = SILENCE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        """`take` is called with each thing that the process says, `on_silence` where it says no more, with the reason; from this object's
        thread."""
        self._arguments = tuple(arguments)
        self._take = take
        self._on_silence = on_silence
        self._silence_s, self._again_s = silence_s, again_s
        self._left: subprocess.Popen[bytes] | None = None
        """One that was killed, and does not end."""
        self._stop = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"nvml-{arguments[0]}", daemon=True)

    def start(self) -> None:
        """Starts the process, and reads what it says."""
        self._thread.start()

    def stop(self) -> None:
        """Ends both, within END_S."""
        self.tell_to_stop()
        self._thread.join()
        os.close(self._wake_read)

    def tell_to_stop(self) -> None:
        """Before `stop`, which then may take less time. Returns at once."""
        if not self._stop.is_set():
            self._stop.set()
            os.close(self._wake_write)

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._left is None or self._left.poll() is not None:
                self._left = None
                why = self._listened()
                if not self._stop.is_set():
                    self._on_silence(why)
            self._stop.wait(self._again_s)

    def _listened(self) -> str:
        """To one process, until it says no more; why."""
        try:
            child = subprocess.Popen(
                [sys.executable, *CHILD, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=PACKAGE_ROOT,
                start_new_session=True,
            )
        except OSError as error:
            return f"no process to ask NVML: {error.strerror}"
        assert child.stdout is not None
        try:
            why = self._read(child.stdout.fileno())
        finally:
            end(child, END_S)
        if child.poll() is None:
            self._left = child
            return "the process that asks NVML hangs in the driver, and cannot be ended"
        return why

    def _read(self, fd: int) -> str:
        lines = Lines(fd, self._wake_read, self._silence_s)
        try:
            while (told := lines.next()) is not None:
                if "absent" in told:
                    return str(told["absent"])
                self._take(told)
        except TimeoutError:
            return f"NVML has not answered for {self._silence_s:g} s; the process that asked it is ended"
        except ValueError as error:
            return f"the process that asks NVML makes no sense: {error}"
        finally:
            lines.close()
        return "the process that asks NVML has ended"
