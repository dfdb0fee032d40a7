"""The thread that has the shelves of a Gpu: what workers say keeps nobody's worker from being started or reaped, and none of that them."""

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Hashable

from backend_host.shelf import Shelves

_END_S = 10.0


class ShelfThread:
    """Thread-safe. A socket is its owner's to close, after `leave`."""

    def __init__(self, most_files: int, called: Callable[[int], str]) -> None:
        """As `Shelves` has them."""
        self._shelves = Shelves(most_files, called=called)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="shelves", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def listen(self, owner: Hashable, vgpu: int, worker: socket.socket) -> None:
        """To what this worker says of the shelf of its vGPU."""
        with self._lock:
            self._selector.register(worker, selectors.EVENT_READ, (owner, vgpu))
        os.eventfd_write(self._wake, 1)

    def leave(self, owner: Hashable, worker: socket.socket) -> None:
        """The worker has ended: what it put anywhere goes, and its socket is not touched any more."""
        with self._lock:
            self._deafen(worker)
            self._shelves.leave(owner)

    def stop(self) -> None:
        """Everything on the shelves goes."""
        self._is_stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._shelves.close()
            self._selector.close()
            os.close(self._wake)

    def _deafen(self, worker: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker)

    def _run(self) -> None:
        while not self._is_stopping:
            ready = self._selector.select()
            with self._lock:
                for key, _ in ready:
                    self._hear(key)
                self._shelves.answer()

    def _hear(self, key: selectors.SelectorKey) -> None:
        """With the lock: the worker may have left since, and another one have its number."""
        if key.data is None:
            os.eventfd_read(self._wake)
            return
        assert isinstance(key.fileobj, socket.socket)
        owner, vgpu = key.data
        if self._selector.get_map().get(key.fd) is key and not self._shelves.read(owner, vgpu, key.fileobj):
            self._deafen(key.fileobj)
