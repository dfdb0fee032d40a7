"""Whether programs can leave a device, and come to it, by checkpoints: as a trial at the daemon's start found out (move/trial.py)."""

import threading
import time
from collections.abc import Callable


class MoverKnown:
    """Of one device. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._began_s = now_s, now_s()
        self._why_not: str | None = None
        self._is_known = threading.Event()

    @property
    def why_not(self) -> str | None:
        """ "": they can. None: it was not tried, or that goes on."""
        return self._why_not

    def set(self, why_not: str) -> None:
        """What the trial found."""
        self._why_not = why_not
        self._is_known.set()

    def wait(self, timeout_s: float) -> str | None:
        """As `why_not`, once it is known or so much time has passed since the daemon's start: devices that hang are given up together."""
        self._is_known.wait(max(0.0, self._began_s + timeout_s - self._now_s()))
        return self._why_not
