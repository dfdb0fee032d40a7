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

LIVE_ON = b"L"
"""What whoever started a daemon says to one that is to outlive it. A daemon whose starter ends without this word, however it ends, ends too."""
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

    It is a socket, so that we are told of the end of that process, too, however that came about.
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

    def when_alone(self, action: Callable[[], None]) -> None:
        """Calls `action` from a thread when the other end is closed, by its owner or by the end of its owner, unless we are to live on."""
        if self._socket is not None:
            threading.Thread(target=self._wait, args=(self._socket, action), name="starter", daemon=True).start()

    def is_alone(self) -> bool:
        """Whether the other end is closed: nobody is there who looks after what we leave."""
        if self._socket is None:
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @staticmethod
    def _wait(other_end: socket.socket, action: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            if other_end.recv(len(LIVE_ON)) == LIVE_ON:
                return
        action()

    def _say(self, message: Message) -> None:
        if self._socket is None:
            print(message.get("ready") or f"fairgv-host: {message['error']}", file=sys.stderr, flush=True)
        else:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            self._socket.shutdown(socket.SHUT_WR)
