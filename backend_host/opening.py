"""What is served at an address that somebody else may have: from the start on, or as soon as that is free.

Metrics and the page are no reason to serve no GPU. Any user of the host may take a port, between two daemons say.
"""

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from backend_host.errors import CannotListenError
from backend_host.looking import Looking

AGAIN_S = 10.0

log = logging.getLogger("fairgv.daemon")


class Stoppable(Protocol):
    """What is served."""

    def stop(self) -> None:
        """Ends it."""


S = TypeVar("S", bound=Stoppable)


class Opening(Looking, Generic[S]):
    """Begins to serve, by one thread where that takes more than one attempt."""

    def __init__(self, begin: Callable[[], S], note: Callable[[str], None]) -> None:
        """`begin` raises CannotListenError. `note` is told why it is not served at the start."""
        super().__init__("opening")
        self._begin = begin
        self._note = note
        self.served: S | None = None
        """What `begin` gave."""

    def start(self) -> None:
        """Tries at once, and goes on to try."""
        try:
            self.served = self._begin()
        except CannotListenError as error:
            log.error("%s; it is tried again every %g s", error, AGAIN_S)
            self._note(str(error))
            super().start()

    def stop(self) -> None:
        """Ends what is served, too."""
        super().stop()
        if self.served is not None:
            self.served.stop()

    def _run(self) -> None:
        while not self._is_stopping.wait(AGAIN_S):
            try:
                self.served = self._begin()
            except CannotListenError:
                continue
            log.info("what could not be served at the start is served now")
            return
