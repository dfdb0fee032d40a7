"""The daemon, asked from several threads at once: a connection for each question, so that a slow answer keeps no other one waiting.

So a daemon that was started anew is found by the next question.
"""

import threading
from collections.abc import Callable

from backend_host.errors import DaemonNotRunningError
from backend_host.ipc import Connection, Message


class Asker:
    """`connect` makes a connection, or raises DaemonNotRunningError."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._guard = threading.Lock()
        self._open: set[Connection] = set()
        self._is_ended = False

    def ask(self, operation: str, **arguments: object) -> Message:
        """As a connection does."""
        with self._connect() as connection:
            with self._guard:
                if self._is_ended:
                    raise DaemonNotRunningError("the view ends")
                self._open.add(connection)
            try:
                return connection.ask(operation, **arguments)
            finally:
                with self._guard:
                    self._open.discard(connection)

    def end(self) -> None:
        """Nobody waits for an answer any more."""
        with self._guard:
            self._is_ended = True
            for connection in self._open:
                connection.abandon()
