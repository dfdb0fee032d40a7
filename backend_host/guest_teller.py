"""Tells each guest what its own vGPU has and gets, now and then: what `fairgv-guest status` shows.

Wrong when: a guest looks more often than PERIOD_S. It sees the same figures twice.
"""

import logging
from collections.abc import Callable

from backend_host.looking import Looking

PERIOD_S = 2.0
"""For 60 vGPUs with a program each a look takes 2 ms of a core."""

log = logging.getLogger("fairgv.guests")


class GuestTeller(Looking):
    """One thread; `tell` writes into all regions."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__("guest-teller")
        self._tell = tell

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._tried(self._tell, log, "guests could not be told of their vGPUs")
            self._is_stopping.wait(PERIOD_S)
