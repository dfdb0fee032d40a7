"""A list that a daemon writes down in its state directory, as JSON, for the one that comes after it.

Wrong when: two daemons write the same list. A state directory has one daemon (state_dir.py).
"""

import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from backend_host.errors import FairGVError

T = TypeVar("T")

log = logging.getLogger("fairgv.daemon")


class KeptList(Generic[T]):
    """Entries of one file.

    `parse` makes an entry of what JSON gives, and raises KeyError, TypeError, ValueError or FairGVError for what is none. `lost` says for the
    log what it means that nothing of the file is known.
    """

    def __init__(self, path: Path, parse: Callable[[Any], T], lost: str) -> None:
        self._path = path
        self._parse = parse
        self._lost = lost
        self._unwritten_for = ""
        """Why it could not be written last; empty: it was."""

    def read(self) -> list[T]:
        """What was written; nothing where nothing was. What cannot be read is told, and put aside, so that an operator may still look at it."""
        try:
            return [self._parse(entry) for entry in _entries(self._path.read_text())]
        except FileNotFoundError:
            return []
        except (OSError, KeyError, TypeError, ValueError, RecursionError, FairGVError) as error:
            log.error("%s: %s", self._put_aside(error), self._lost)
            return []

    def write(self, entries: list[Any]) -> None:
        """In place of what was there, whole or not at all; nothing is touched where that is the same. Raises OSError."""
        text = json.dumps(entries)
        with contextlib.suppress(OSError, ValueError):
            if self._path.read_text() == text:
                return
        new = self._path.with_suffix(".new")
        new.write_text(text)
        new.replace(self._path)

    def try_write(self, entries: list[Any], what: str) -> bool:
        """As `write`. False: it cannot be now, which the log says once for each reason; `what` the list is of. Who keeps it tries again."""
        try:
            self.write(entries)
            self._unwritten_for = ""
        except OSError as error:
            why = error.strerror or str(error)
            if self._unwritten_for != why:
                cause = "%s cannot be written down (%s): make room in %s, and let this daemon write there"
                log.error(cause, what, why, self._path.parent)
            self._unwritten_for = why
        return not self._unwritten_for

    def _put_aside(self, error: Exception) -> str:
        """What happened to the file."""
        aside = self._path.with_suffix(".unread")
        try:
            self._path.replace(aside)
        except OSError:
            aside = self._path
        return f"{aside} cannot be read ({type(error).__name__}: {error})"


def _entries(text: str) -> list[Any]:
    entries = json.loads(text)
    if not isinstance(entries, list):
        raise TypeError("not a list")
    return entries
