"""Threads of the daemon's that look at something again and again until they are told to stop."""

import threading
from abc import ABC, abstractmethod


class Looking(ABC):
    """One thread. `_run` goes on until `_is_stopping` is set, which it waits on between two looks."""

    def __init__(self, name: str) -> None:
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, if it was started."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """What the thread does."""
