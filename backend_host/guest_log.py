"""What is said of one guest in the daemon's log: so many lines within a minute and no more, since most of them are the guest's doing.

How many were dropped is told with the first line after that minute.
"""

import logging
import time

from backend_host.service.journal import about

NR_LINES = 20
"""Within a minute at most: a guest must not fill the host's disk with its mistakes."""
_LINES_NS = 60_000_000_000


class GuestLog:
    """One guest's share of a log. `name` begins each line, and may change."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self.name = name
        self._log = log
        self._nr_lines = 0
        self._since_ns = 0

    def say(self, level: int, message: str, *arguments: object) -> None:
        """As `logging.Logger.log`, or nothing."""
        self._begin_minute()
        self._nr_lines += 1
        if self._nr_lines <= NR_LINES:
            self._log.log(level, f"%s: {message}", self.name, *arguments, extra=about(self.name))
        elif self._nr_lines == NR_LINES + 1:
            self._log.warning(
                "%s: too much to say of this guest; no more within this minute", self.name, extra=about(self.name)
            )

    def nr_left(self) -> int:
        """How many lines would be told now, with the one that says that no more are: spares who has thousands to make them."""
        self._begin_minute()
        return max(0, NR_LINES + 1 - self._nr_lines)

    def drop(self, nr: int) -> None:
        """Lines that were not made, after `nr_left` were said."""
        self._nr_lines += nr

    def _begin_minute(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._since_ns <= _LINES_NS:
            return
        if self._nr_lines > NR_LINES:
            nr_dropped = self._nr_lines - NR_LINES
            self._log.warning("%s: %d lines more were dropped", self.name, nr_dropped, extra=about(self.name))
        self._nr_lines, self._since_ns = 0, now_ns
