"""Whether programs can leave a device, and come to it, by checkpoints: as a trial at the daemon's start found out (move/trial.py)."""

import threading


class MoverKnown:
    """Of one device. Thread-safe."""

    def __init__(self) -> None:
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
        """As `why_not`, once it is known or so much time has passed."""
        self._is_known.wait(timeout_s)
        return self._why_not
