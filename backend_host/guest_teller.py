"""Tells each guest what its own vGPU has and gets, now and then: what `fairgv-guest status` shows.

Wrong when: a guest looks more often than PERIOD_S. It sees the same figures twice.
"""

import logging
import threading
from collections.abc import Callable

PERIOD_S = 2.0
"""For 60 vGPUs with a program each a look takes 2 ms of a core."""

log = logging.getLogger("fairgv.guests")


class GuestTeller:
    """One thread; `tell` writes into all regions."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._is_stopping = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="guest-teller", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._tell()
                self._is_failing = False
            except Exception:
                if not self._is_failing:  # told once, and not each time
                    log.exception("guests could not be told of their vGPUs; trying again")
                self._is_failing = True
            self._is_stopping.wait(PERIOD_S)
