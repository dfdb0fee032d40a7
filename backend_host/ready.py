"""How a daemon is told to end, and how it tells whoever started it that it serves."""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable

from backend_host.errors import FairGVError
from backend_host.ipc import Message

_MOST_SIGNALS = 4096
"""That are taken note of at once; more wake it again."""


class Latch:
    """An event that a signal handler may set.

    A `threading.Event` is guarded by a lock: a handler that runs just when its own thread holds the lock, at the start of `wait`, never
    gets it.

    Python's handlers run in the main thread, between two of its steps. A signal that comes after the last step before it sleeps, or that
    another thread gets, does not end its sleep. On a loaded machine that is no rare moment, as a thread that lets others in waits for
    them on its way into the kernel. So what the kernel runs for a signal writes into a socket that `wait` looks at.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def __del__(self) -> None:
        os.close(self._fd)

    def set(self) -> None:
        """For good, from any thread or handler."""
        os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        """Whether anybody set it."""
        return bool(self._poll.poll(0))

    def wait(self) -> None:
        """Returns once it is set. For the main thread."""
        heard, tells = socket.socketpair()
        with heard, tells:
            heard.setblocking(False)
            tells.setblocking(False)
            before = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
            self._poll.register(heard, select.POLLIN)
            try:
                while (self._fd, select.POLLIN) not in self._poll.poll():
                    heard.recv(_MOST_SIGNALS)
            finally:
                self._poll.unregister(heard)
                signal.set_wakeup_fd(before)


class ReadyPipe:
    """Tells the process that started us in the background that we serve, or why not. Does nothing in the foreground.

    It is a socket; its other end tells a private daemon that whoever started it is gone, however that came about.
    """

    def __init__(self, fd: int | None) -> None:
        self._socket = socket.socket(fileno=fd) if fd is not None else None

    def ready(self, sentence: str) -> None:
        """We serve; `sentence` is for the person who started us. FairGVError when that person gave up waiting."""
        try:
            self._say({"ready": sentence})
        except OSError:
            raise FairGVError("the command that started this daemon was interrupted") from None

    def failed(self, error: FairGVError) -> None:
        """We do not."""
        with contextlib.suppress(OSError):
            self._say({"error": str(error)})

    def when_gone(self, action: Callable[[], None]) -> None:
        """Calls `action` from a thread when the other end is closed, by its owner or by the end of its owner."""
        if self._socket is not None:
            threading.Thread(target=self._wait, args=(self._socket, action), name="starter", daemon=True).start()

    @staticmethod
    def _wait(other_end: socket.socket, action: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            while other_end.recv(64):
                pass
        action()

    def _say(self, message: Message) -> None:
        if self._socket is None:
            print(message.get("ready") or f"fairgv-host: {message['error']}", file=sys.stderr, flush=True)
        else:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            self._socket.shutdown(socket.SHUT_WR)
