"""Threads of the daemon's that look at something again and again until they are told to stop."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Looking(ABC):
    """One thread. `_run` goes on until `_is_stopping` is set, which it waits on between two looks."""

    def __init__(self, name: str) -> None:
        self._is_stopping = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, if it was started."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _tried(self, look: Callable[[], T], log: logging.Logger, failed: str) -> T | None:
        """What a look gives. None: it failed, as the log says once until one goes well again; the thread goes on."""
        try:
            found = look()
        except Exception:
            if not self._is_failing:
                log.exception("%s; trying again", failed)
            self._is_failing = True
            return None
        self._is_failing = False
        return found

    @abstractmethod
    def _run(self) -> None:
        """What the thread does."""
