"""What NVML says of devices, the newest of it, and their events. Nobody waits for either.

Two processes are asked (child.py), so that events come also while figures take long, or hang. Figures of a process that says no more are not
known any more: those that are old would look like new ones.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from backend_host.nvml.child import EVENTS, FIGURES
from backend_host.nvml.figures import Figures
from backend_host.nvml.listener import AGAIN_S, END_S, SILENCE_S, Listener

log = logging.getLogger("fairgv.nvml")
Event = Callable[[str, Mapping[str, Any]], None]


class NvmlWatch:
    """Of the devices with these UUIDs. `on_event` is called from its threads, with a device's UUID and what child.py says of the event; or
    "missing": 1, NVML knows it no more."""

    def __init__(
        self,
        uuids: Sequence[str],
        on_event: Event = lambda *_: None,
        silence_s: float = SILENCE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._on_event = on_event
        self._figures = dict.fromkeys(uuids, Figures())
        self._lock = threading.Lock()
        self._known: set[str] = set()
        """Devices that NVML knew when it was last asked for figures."""
        self.unknown = "nothing was heard of it yet"
        """Why figures are not known; empty: they are."""
        self.is_heard = threading.Event()
        """Something was said of figures, or is known not to come."""
        self._said: dict[str, str] = {}
        """Why nothing is heard, of figures and of events, as the log has it."""
        self._listeners = [
            Listener((what, *uuids), partial(self._take, what), partial(self._miss, what), silence_s, again_s)
            for what in (FIGURES, EVENTS)
        ]

    def start(self) -> None:
        """Starts the processes, and reads what they say."""
        for listener in self._listeners:
            listener.start()

    def stop(self) -> None:
        """Ends all of that."""
        for listener in self._listeners:
            listener.tell_to_stop()
        for listener in self._listeners:
            listener.stop()

    def figures(self, uuid: str) -> Figures:
        """The newest of one device."""
        with self._lock:
            return self._figures.get(uuid, Figures())

    def _take(self, what: str, told: Mapping[str, Any]) -> None:
        event, devices = told.get("event"), told.get("devices")
        if isinstance(devices, dict):
            with self._lock:
                self._figures = {uuid: figures.after(devices.get(uuid)) for uuid, figures in self._figures.items()}
            self.unknown = ""
            self.is_heard.set()
            for uuid in sorted(self._known - devices.keys()):
                self._hear(uuid, {"missing": 1})
            self._known = self._figures.keys() & devices.keys()
        if isinstance(event, dict) and event.get("uuid") in self._figures:
            self._hear(event["uuid"], event)
        self._said.pop(what, None)

    def _hear(self, uuid: str, event: Mapping[str, Any]) -> None:
        if isinstance(xid := event.get("xid"), int):
            with self._lock:
                self._figures[uuid] = self._figures[uuid].with_xid(xid)
        log.warning("%s: %s", uuid, ", ".join(f"{key} {value}" for key, value in event.items() if key != "uuid"))
        self._on_event(uuid, event)

    def _miss(self, what: str, why: str) -> None:
        if what == FIGURES:
            with self._lock:
                self._figures = {uuid: figures.after(None) for uuid, figures in self._figures.items()}
            self.unknown = why
            self.is_heard.set()
        if why != self._said.get(what):
            self._said[what] = why
            log.warning(_MISSED[what], why)


_MISSED = {
    FIGURES: "power, energy, clocks, temperature and ECC errors of devices are unknown: %s",
    EVENTS: "Xids of devices are not heard of: %s",
}


def try_once(uuids: Sequence[str] = ()) -> str:
    """Why NVML is not to be had; empty: it is. Takes up to SILENCE_S, and what it takes to end a process."""
    watch = NvmlWatch(uuids)
    watch.start()
    watch.is_heard.wait(SILENCE_S + END_S)
    why = watch.unknown
    watch.stop()
    return why
