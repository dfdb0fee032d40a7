"""The store: a process that keeps a daemon's descriptors, each with a record, for the next daemon. `python -m backend_host.restart.keeping FD`.

systemd's store of descriptors would do the same under systemd alone, and end with `systemctl stop`. This is one way for all daemons.

It serves one daemon at a time, and the next one once it has heard all that the one before said: what a daemon put here before it was killed
is there. It looks into nothing. Of an item with a life the first descriptor tells when it is over: of a process, or the end of a connection
whose other end is closed. While no daemon is there it stays until all lives are over, and LINGER_S more, for a daemon that comes at once.

Wrong when: it is killed, and then the daemon is. Programs go on as before, and no daemon knows of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from collections.abc import Sequence

from ivshmem.passing import receive_with, send_with

TYPE_CHECKING = False  # of `typing`, whose import is a tenth of what this process takes to start
if TYPE_CHECKING:
    from typing import Any

MESSAGE_BYTES = 1 << 16
MOST_DESCRIPTORS = 253
"""In a message: the kernel's limit."""
LINGER_S = 20.0


class Item:
    """What was put under a name: a record in JSON, and descriptors. `has_life`: the first one tells when it is over."""

    def __init__(self, name: str, record: dict[str, Any], fds: tuple[int, ...], has_life: bool = False) -> None:
        self.name, self.record, self.fds, self.has_life = name, record, fds, has_life

    def close(self) -> None:
        """Its descriptors."""
        for fd in self.fds:
            os.close(fd)


class StoreProcess:
    """`run` returns when nobody needs it any more."""

    def __init__(self, listener: socket.socket, linger_s: float = LINGER_S) -> None:
        self._listener = listener
        self._linger_s = linger_s
        self._items: dict[str, Item] = {}

    def run(self) -> None:
        """One daemon after the other."""
        while (daemon := self._await_daemon()) is not None:
            with (
                daemon,
                contextlib.suppress(OSError, ValueError, TypeError, KeyError),
            ):  # one that breaks off, or talks nonsense
                if self._serve(daemon):
                    return

    def close(self) -> None:
        """All that it has."""
        self._listener.close()
        while self._items:
            self._items.popitem()[1].close()

    def _await_daemon(self) -> socket.socket | None:
        """The next one, or None once there is nothing left to wait with."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        lives = {item.fds[0] for item in self._items.values() if item.has_life}
        for life in lives:
            poll.register(life, select.POLLRDHUP if _is_socket(life) else select.POLLIN)
        while True:
            over = {fd for fd, _ in poll.poll(None if lives else self._linger_s * 1000)}
            if self._listener.fileno() in over:
                return self._listener.accept()[0]
            if not over:
                return None
            for life in over:
                poll.unregister(life)
            lives -= over

    def _serve(self, daemon: socket.socket) -> bool:
        """To the end of the connection. True: the daemon wants it to end."""
        while True:
            text, fds = receive_with(daemon, MESSAGE_BYTES, MOST_DESCRIPTORS)
            if not text:
                return False
            try:
                message = json.loads(text)
                operation = message["op"]
                if operation == "put":
                    self._put(message, fds)
                    fds = []
            finally:
                for fd in fds:
                    os.close(fd)
            if operation == "take":
                self._give(daemon)
            elif operation == "end":
                return True

    def _put(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Under this name, or in place of what is there; without descriptors those stay that are there."""
        for name in message["drop"]:
            if (dropped := self._items.pop(name, None)) is not None:
                dropped.close()
        name = message["name"]
        if name is None:
            return
        before = self._items.get(name)
        kept = tuple(fds)
        if before is not None:
            if kept:
                before.close()
            kept = kept or before.fds
        self._items[name] = Item(name, message["record"], kept, message["has_life"] and bool(kept))

    def _give(self, daemon: socket.socket) -> None:
        for item in self._items.values():
            text = json.dumps({"name": item.name, "record": item.record, "has_life": item.has_life}).encode()
            send_with(daemon, text, item.fds)
        daemon.send(b"{}")


def _is_socket(fd: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) > 0
    return False


def main() -> int:
    """The process, whose listening socket was inherited."""
    store = StoreProcess(socket.socket(fileno=int(sys.argv[1])))
    with contextlib.closing(store):
        store.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
