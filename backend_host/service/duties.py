"""What the daemon does for its manager of services while it serves: it says that it is well, and reads its configuration again when asked to.

It is well when the grant keeper of each Gpu has looked at its page since that was said the last time, for without them no share holds. A
keeper looks each second at least.
Wrong when: the host stands still for longer than the manager waits. It then starts a daemon anew that was well.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Sequence

from backend_host.errors import FairGVError
from backend_host.service.manager import Manager

_LOOKS = 4
"""Within the manager's time: one that comes late costs nothing."""
_RELOAD, _STOP = 1, 1 << 32
"""What is added to the eventfd: either may be asked for while the other is, and many times."""

log = logging.getLogger("fairgv.service")


class Duties:
    """Two threads, as a reload may take longer than the manager waits. `nr_looks` tells how often each keeper has looked; `reload` reads the
    configuration again."""

    def __init__(self, manager: Manager, nr_looks: Callable[[], Sequence[int]], reload: Callable[[], object]) -> None:
        self._manager = manager
        self._nr_looks = nr_looks
        self._reload = reload
        self._fed: Sequence[int] = ()
        self._wishes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_stopping = threading.Event()
        self._feeding = threading.Thread(target=self._feed_again, name="watchdog-fed", daemon=True)
        self._reloading = threading.Thread(target=self._reload_again, name="reloads", daemon=True)

    def start(self) -> None:
        """Begins."""
        if self._manager.watchdog_ns:
            self._feeding.start()
        self._reloading.start()

    def stop(self) -> None:
        """Ends the threads, once a reload that is under way has ended."""
        os.eventfd_write(self._wishes, _STOP)
        self._is_stopping.set()
        for thread in (self._reloading, self._feeding):
            if thread.ident is not None:
                thread.join()
        os.close(self._wishes)

    def ask_to_reload(self) -> None:
        """From any thread, or from a signal's handler: it takes no lock."""
        os.eventfd_write(self._wishes, _RELOAD)

    def feed(self) -> None:
        """Says that the daemon is well, if it is."""
        looks = tuple(self._nr_looks())
        if len(looks) != len(self._fed) or all(now != before for now, before in zip(looks, self._fed, strict=True)):
            self._fed = looks
            self._manager.tell(WATCHDOG=1)

    def _feed_again(self) -> None:
        while not self._is_stopping.wait(self._manager.watchdog_ns / _LOOKS / 1e9):
            self.feed()

    def _reload_again(self) -> None:
        poll = select.poll()
        poll.register(self._wishes, select.POLLIN)
        while poll.poll() and os.eventfd_read(self._wishes) < _STOP:
            self._read_again()

    def _read_again(self) -> None:
        try:
            self._reload()
        except FairGVError as error:
            log.error("the configuration is as it was: %s", error)
        except Exception:
            log.exception("the configuration could not be read again")
