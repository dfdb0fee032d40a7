"""Programs of an earlier release of FairGV, whose control page or table of calls is not ours: they go on until they end, and we wait.

Their workers share the device by a page of their own, fairly among themselves. A second page beside it would give turns that know nothing of
theirs, and there would be no shares. So as long as one of them lives no program is served here, and each is told why.

Wrong when: such a program never ends. `fairgv-host stop` ends it.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Sequence

from backend_host.errors import RefusedError
from backend_host.restart.keeping import Item
from backend_host.restart.left import end, has_ended, is_process

log = logging.getLogger("fairgv.restart")


class OldPrograms:
    """One thread, while there are some. `items` are those of other releases; `on_end` is called once, when all have ended: at the start where
    there are none."""

    def __init__(self, items: Sequence[Item], on_end: Callable[[], None]) -> None:
        self._items = list(items)
        self._processes = [item.fds[0] for item in items if is_process(item)]
        self._on_end = on_end
        self._is_over = not self._nr_alive()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._wait, name="old-programs", daemon=True)

    @property
    def nr(self) -> int:
        """How many are waited for; 0 once nobody waits any more."""
        return 0 if self._is_over else max(1, self._nr_alive())

    def _nr_alive(self) -> int:
        return sum(not has_ended(pidfd) for pidfd in self._processes)

    def start(self) -> None:
        """Begins to wait."""
        if self._is_over:
            self._on_end()
            return
        log.warning("%s", self.sentence())
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        os.eventfd_write(self._stop, 1)
        if self._thread.ident is not None:
            self._thread.join()
        for item in self._items:
            item.close()
        os.close(self._stop)

    def end(self) -> None:
        """Ends the programs' workers."""
        end(self._processes)

    def sentence(self) -> str:
        """Why nobody is served; "" where that is over."""
        nr = self.nr
        if not nr:
            return ""
        programs, they, those = (
            ("program is", "it goes", "that has") if nr == 1 else ("programs are", "they go", "those have")
        )
        return (
            f"{nr} {programs} served by an earlier release of FairGV, which this one cannot take over: {they} on, and new ones are served when "
            f"{those} ended"
        )

    def check(self) -> None:
        """RefusedError while they are there."""
        if sentence := self.sentence():
            raise RefusedError(sentence)

    def _wait(self) -> None:
        poll = select.poll()
        for fd in (*self._processes, self._stop):
            poll.register(fd, select.POLLIN)
        left = set(self._processes)
        while left:
            for fd, _ in poll.poll():
                if fd == self._stop:
                    return
                poll.unregister(fd)
                left.discard(fd)
        self._is_over = True
        log.info("the programs of an earlier release have ended: all are served from now on")
        try:
            self._on_end()
        except Exception:
            log.exception("not all that was to be served now is")
