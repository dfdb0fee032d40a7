"""The thread that reads what NVML's process says (child.py), and keeps the newest of it. Nobody waits for either.

A process that says nothing for SILENCE_S is killed, and what it said is not known any more: figures that are old would look like new ones. Once
it has ended another is tried, each minute: a driver that hung may have come to. The log says once that figures are unknown, and why.

Wrong when: a process that hangs in the driver cannot be killed. It stays, and no other is started.
"""

import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from backend_host.config import PACKAGE_ROOT
from backend_host.nvml.figures import Figures

CHILD = ("-m", "backend_host.nvml.child")
SILENCE_S = 10.0
AGAIN_S = 60.0
_END_S = 5.0
_MOST_BYTES = 1 << 16
"""Of a line; sixteen devices take 3 KiB."""

log = logging.getLogger("fairgv.nvml")
Event = Callable[[str, Mapping[str, Any]], None]


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


class NvmlWatch:
    """Of the devices with these UUIDs. `on_event` is called from its thread, with a device's UUID and what child.py says of the event."""

    def __init__(
        self,
        uuids: Sequence[str],
        on_event: Event = lambda *_: None,
        silence_s: float = SILENCE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._uuids = tuple(uuids)
        self._on_event = on_event
        self._silence_s, self._again_s = silence_s, again_s
        self._figures = dict.fromkeys(uuids, Figures())
        self._lock = threading.Lock()
        self.unknown = "nothing was heard of it yet"
        """Why figures are not known; empty: they are."""
        self.is_heard = threading.Event()
        """Something was said, or is known not to come."""
        self._said = ""
        self._stop = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    def start(self) -> None:
        """Starts the process, and reads what it says."""
        self._thread.start()

    def stop(self) -> None:
        """Ends both."""
        self._stop.set()
        os.close(self._wake_write)
        self._thread.join()
        os.close(self._wake_read)

    def figures(self, uuid: str) -> Figures:
        """The newest of one device."""
        with self._lock:
            return self._figures.get(uuid, Figures())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._child() as child:
                    why = self._listen(child)
            except OSError as error:
                why = f"no process to ask NVML: {error.strerror}"
            except subprocess.TimeoutExpired:
                self._forget("the process that asks NVML hangs in the driver, and cannot be ended")
                return
            if not self._stop.is_set():
                self._forget(why)
                self._stop.wait(self._again_s)

    @contextlib.contextmanager
    def _child(self) -> Iterator[subprocess.Popen[bytes]]:
        """Killed at the end of the block. Raises OSError, and TimeoutExpired where it does not end."""
        child = subprocess.Popen(
            [sys.executable, *CHILD, *self._uuids],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=PACKAGE_ROOT,
            start_new_session=True,
        )
        assert child.stdout is not None
        try:
            yield child
        finally:
            child.stdout.close()
            child.kill()
            child.wait(_END_S)

    def _listen(self, child: subprocess.Popen[bytes]) -> str:
        """Until it says no more; why."""
        assert child.stdout is not None
        lines = Lines(child.stdout.fileno(), self._wake_read, self._silence_s)
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

    def _take(self, told: Mapping[str, Any]) -> None:
        event, devices = told.get("event"), told.get("devices")
        if isinstance(devices, dict):
            with self._lock:
                self._figures = {uuid: figures.after(devices.get(uuid)) for uuid, figures in self._figures.items()}
            self.unknown = self._said = ""
            self.is_heard.set()
        if isinstance(event, dict) and (uuid := event.get("uuid")) in self._figures:
            self._hear(uuid, event)

    def _hear(self, uuid: str, event: Mapping[str, Any]) -> None:
        if isinstance(xid := event.get("xid"), int):
            with self._lock:
                self._figures[uuid] = self._figures[uuid].with_xid(xid)
        log.warning("%s: %s", uuid, ", ".join(f"{key} {value}" for key, value in event.items() if key != "uuid"))
        self._on_event(uuid, event)

    def _forget(self, why: str) -> None:
        with self._lock:
            self._figures = {uuid: figures.after(None) for uuid, figures in self._figures.items()}
        self.unknown = why
        if why != self._said:
            self._said = why
            self.is_heard.set()
            log.warning("power, energy, clocks, temperature, Xids and ECC errors of devices are unknown: %s", why)


def try_once(uuids: Sequence[str] = ()) -> str:
    """Why NVML is not to be had; empty: it is. Takes up to SILENCE_S, and what it takes to end a process."""
    watch = NvmlWatch(uuids)
    watch.start()
    watch.is_heard.wait(SILENCE_S + _END_S)
    why = watch.unknown
    watch.stop()
    return why
