"""What the manager of services that started the daemon, systemd say, and the daemon tell each other (sd_notify(3), sd_listen_fds(3)).

It is a datagram and four variables of the environment, so there is no library for it here. The variables are taken out of the environment,
as no child is to speak for the daemon.

Wrong when: the manager is another one that only looks at the process. It sees a daemon in the foreground, and is told nothing.
"""

import contextlib
import json
import logging
import os
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Self

from backend_host.errors import FairGVError

_FIRST_FD = 3
"""Descriptors that a manager passes on begin there."""

log = logging.getLogger("fairgv.service")


class Manager:
    """Who started us, or nobody: then nothing is told. `watchdog_ns`: it ends us when it is not told for so long that we are well; 0: never."""

    def __init__(self, address: str = "", watchdog_ns: int = 0, nr_listening: int = 0) -> None:
        self.watchdog_ns = watchdog_ns
        self._nr_listening = nr_listening
        self._listening: socket.socket | None = None
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    @property
    def is_there(self) -> bool:
        """Whether anybody started us."""
        return self._socket is not None

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Self:
        """The one that the environment names, whose variables are removed. What it says to another process is not for us."""
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = _number(environment.pop("WATCHDOG_USEC", ""))
        watched_pid = environment.pop("WATCHDOG_PID", "")
        nr_listening = _number(environment.pop("LISTEN_FDS", ""))
        is_ours = environment.pop("LISTEN_PID", "") == str(os.getpid())
        environment.pop("LISTEN_FDNAMES", None)
        is_watched = bool(address) and watched_pid in ("", str(os.getpid()))
        return cls(address, watchdog_us * 1000 if is_watched else 0, nr_listening if is_ours else 0)

    def tell(self, **words: str | int) -> None:
        """As `READY=1` and `STATUS=a sentence`. A manager that does not hear is no reason to fail."""
        if self._socket is None:
            return
        text = "\n".join(f"{word}={str(value).replace(chr(10), ' ')}" for word, value in words.items())
        try:
            self._socket.sendto(text.encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, self._address)
        except OSError as error:
            log.warning("the manager of services is not told: %s", error)

    def listening(self, path: Path) -> socket.socket | None:
        """The socket on which it listens for us, or None where it does not. FairGVError where that is not `path`."""
        if self._nr_listening == 0:
            return None
        if self._nr_listening != 1:
            raise FairGVError(f"{self._nr_listening} sockets were passed on to the daemon, which has one: {path}")
        given = socket.socket(fileno=_FIRST_FD)
        self._nr_listening = 0
        given.set_inheritable(False)
        is_stream = given.family == socket.AF_UNIX and given.type == socket.SOCK_STREAM
        name = given.getsockname() if is_stream else "no stream socket of the file system"
        if name != str(path) or not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            given.close()
            raise FairGVError(f"the socket that was passed on to the daemon is {name!r}; let it listen on {path}")
        given.setblocking(True)
        self._listening = given.dup()
        return given

    def turn_away(self, sentence: str) -> None:
        """Answers who waits at the socket that we serve no more. The manager would start us again at once for whoever is left there."""
        for fd in range(_FIRST_FD, _FIRST_FD + self._nr_listening):
            with socket.socket(fileno=fd) as given:
                _refuse_all(given, sentence)
        self._nr_listening = 0
        if self._listening is not None:
            _refuse_all(self._listening, sentence)

    def close(self) -> None:
        """Nothing is told any more."""
        with contextlib.ExitStack() as stack:
            for each in (self._socket, self._listening):
                if each is not None:
                    stack.enter_context(each)
            self._socket = self._listening = None


def _refuse_all(listening: socket.socket, sentence: str) -> None:
    answer = json.dumps({"error": sentence}).encode() + b"\n"
    listening.setblocking(False)
    with contextlib.suppress(OSError):  # nobody waits, or it takes no connections
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                connection.sendall(answer)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
