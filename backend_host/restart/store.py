"""A daemon's end of the store: what is put there outlives it."""

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from backend_host.ipc import peer_uid
from backend_host.restart.keeping import MESSAGE_BYTES, MOST_DESCRIPTORS, Item
from backend_host.worker._worker import lib
from ivshmem.passing import receive_with, send_with
from ivshmem.region import lib as region_lib

SOCKET = "store.sock"
_ANSWER_S = 10.0
FORMAT = 4
"""Of records. Another one with each change of what they say."""

log = logging.getLogger("fairgv.restart")


def release() -> str:
    """What the names of items begin with that this release of FairGV can read: records, the layout of regions,
    the control page and the table of calls are its own."""
    layout = (
        FORMAT,
        region_lib.FGV_LAYOUT_VERSION,
        lib.FGW_CONTROL_VERSION,
        lib.FGW_COUNTERS_LAYOUT,
        lib.fgw_table_hash(),
    )
    return "-".join(f"{number:x}" for number in layout)


class Store:
    """One daemon's. Thread-safe. Without a connection, which is a private daemon's, nothing is kept.

    Whatever fails here costs no program anything now: it is logged once.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection
        self._prefix = f"{release()}/"
        self._lock = threading.Lock()

    @classmethod
    def open(cls, state_dir: Path) -> Self:
        """The one of this state directory, which is started if there is none. Raises FairGVError."""
        path = state_dir / SOCKET
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        connection.settimeout(_ANSWER_S)
        try:
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                _launch(path)
                connection.connect(str(path))
            if peer_uid(connection) != os.geteuid():
                raise PermissionError("it is another user's")
        except OSError as error:
            connection.close()
            raise FairGVError(f"no store for descriptors at {path}: {error}") from error
        return cls(connection)

    @classmethod
    def opened(cls, state_dir: Path) -> tuple[Self, list[Item], list[Item]]:
        """`open` and `take`. A store that ends just then, as nobody came for so long, has nothing of worth; another one is started."""
        store = cls.open(state_dir)
        try:
            return store, *store.take()
        except FairGVError:
            store.close()
            store = cls.open(state_dir)
            return store, *store.take()

    @property
    def is_kept(self) -> bool:
        """Whether anything that is put here outlives this process."""
        return self._connection is not None

    def put(
        self,
        name: str,
        record: Mapping[str, Any],
        fds: Sequence[int] = (),
        *,
        has_life: bool = False,
        drop: Sequence[str] = (),
    ) -> None:
        """From now on, whatever becomes of this process, this is kept under the name. Without descriptors those that are there stay.
        `drop`: at the same moment what is there under these names is let go."""
        named = [self._prefix + each for each in drop]
        message = {"op": "put", "name": self._prefix + name, "record": record, "has_life": has_life, "drop": named}
        self._say(message, fds)

    def drop(self, *names: str) -> None:
        """What is there under these names is let go."""
        self.drop_items([self._prefix + name for name in names])

    def drop_items(self, names: Sequence[str]) -> None:
        """The same by the whole names of items."""
        self._say({"op": "put", "name": None, "drop": list(names)})

    def take(self) -> tuple[list[Item], list[Item]]:
        """All that is kept, and stays kept, with descriptors of the caller's: what this release can read, by its own names, and the rest by
        whole names. Raises FairGVError."""
        if self._connection is None:
            return [], []
        items: list[Item] = []
        try:
            with self._lock:
                self._connection.send(json.dumps({"op": "take"}).encode())
                while (item := self._receive(self._connection)) is not None:
                    items.append(item)
        except (OSError, ValueError, KeyError, TypeError) as error:
            for item in items:
                item.close()
            raise FairGVError(f"the store does not tell what it keeps: {error}") from error
        ours = [
            Item(item.name.removeprefix(self._prefix), item.record, item.fds, item.has_life)
            for item in items
            if item.name.startswith(self._prefix)
        ]
        return ours, [item for item in items if not item.name.startswith(self._prefix)]

    def end(self) -> None:
        """Nothing is kept any more."""
        self._say({"op": "end"})
        self.close()

    def close(self) -> None:
        """What is kept stays so."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @staticmethod
    def _receive(connection: socket.socket) -> Item | None:
        text, fds = receive_with(connection, MESSAGE_BYTES, MOST_DESCRIPTORS)
        try:
            message = json.loads(text)
            if not message:
                return None
            name, record, has_life = message["name"], message["record"], message["has_life"]
            if not isinstance(name, str) or not isinstance(record, dict) or (has_life and not fds):
                raise ValueError("an item without a name, a record or its life")
            return Item(name, record, tuple(fds), bool(has_life))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _say(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        with self._lock:
            if self._connection is None:
                return
            text = json.dumps(message).encode()
            if len(text) > MESSAGE_BYTES:
                log.error(
                    "%s is not kept for the next daemon: a record of %d bytes is too long", message["name"], len(text)
                )
                return
            try:
                send_with(self._connection, text, fds)
            except OSError as error:
                log.error("programs would not outlive this daemon from now on: the store does not hear (%s)", error)
                self._connection.close()
                self._connection = None


def _launch(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
        os.fchmod(listener.fileno(), 0o600)  # the file gets the socket's own mode
        listener.bind(str(path))
        listener.listen(1)
        listener.set_inheritable(True)
        os.posix_spawn(
            sys.executable,
            # Without the search for packages, of which it needs none.
            [sys.executable, "-S", "-P", "-m", "backend_host.restart.keeping", str(listener.fileno())],
            {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
            file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)],
            setsid=True,  # what ends the daemon is not for it
        )
