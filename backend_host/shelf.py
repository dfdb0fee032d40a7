"""Memory that programs of one vGPU share: a shelf for each vGPU, on which workers put descriptors under keys, and find those of others.

A key is random and known to whoever was told it. A worker finds what lies on the shelf of its own vGPU alone, whatever key it has. What it put
there goes when it takes it off, or ends.

A worker that a guest took over may say anything: what no honest one says ends the listening to it, and how much lies on a shelf is bounded.
The descriptors are only kept and passed on, never looked into. backend_host/worker/client/daemon.h has the messages.

Who is told a key was told it after the memory was put on the shelf, if perhaps not long after: so of all that is there to be read at a time,
what is put is read first, and what is looked for is answered last.

Wrong when: the daemon is started anew. Its shelves are empty; what is open stays open.
"""

import contextlib
import logging
import os
import resource
import socket
import struct
import time
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Self

from backend_host.guest_log import GuestLog

PUT, DROP, FIND, FOUND, PAGE = range(1, 6)
"""PAGE is the daemon's: its key is a vGPU and a slot of the control page whose descriptors come with it."""
MOST_FILES = 200
"""Of one allocation; FGW_MAX_SHARED_FILES."""
MOST_SHARED_FILES = 1024
"""On the shelf of one vGPU, where the daemon may have as many open for each: see `most_files`."""
MOST_BYTES = 4096
"""Of any message, a worker's last words included."""
MOST_AT_ONCE = 64
"""Messages of one worker that are read before others are."""
MOST_IN_A_SECOND = 10_000
"""Of one worker: an honest one tells of itself at most each ms, and of what its guest frees."""
_MESSAGE = struct.Struct("<QQQQ")

log = logging.getLogger("fairgv.workers")


def most_files(nr_shelves: int) -> int:
    """On each of so many: none has what would be another's. Half of what this process may have open is for them."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_SHARED_FILES if limit == resource.RLIM_INFINITY else min(MOST_SHARED_FILES, limit // 2 // nr_shelves)


class MalformedError(Exception):
    """A worker said what no worker says; the text tells what."""


@dataclass(frozen=True)
class Message:
    """What a worker says, or hears."""

    word: int
    key: tuple[int, int]
    nbytes: int

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Raises MalformedError."""
        if len(data) != _MESSAGE.size:
            raise MalformedError(f"a message of {len(data)} bytes")
        word, first, second, nbytes = _MESSAGE.unpack(data)
        return cls(word, (first, second), nbytes)

    def packed(self) -> bytes:
        return _MESSAGE.pack(self.word, *self.key, self.nbytes)


@dataclass(frozen=True)
class _Shared:
    owner: Hashable
    nbytes: int
    files: tuple[int, ...]


@dataclass
class _Shelf:
    shared: dict[tuple[int, int], _Shared] = field(default_factory=dict)
    nr_files: int = 0


@dataclass
class _Heard:
    """How much one worker said since a time."""

    since: float
    nr: int = 0


class Shelves:
    """Those of all vGPUs of a Gpu, with at most so many files each. One thread's."""

    def __init__(
        self,
        most_files: int = MOST_SHARED_FILES,
        clock: Callable[[], float] = time.monotonic,
        called: Callable[[int], str] = "vGPU {}".format,
    ) -> None:
        """`called`: the name of a vGPU, for the log."""
        self._most_files = most_files
        self._clock = clock
        self._called = called
        self._logs: dict[int, GuestLog] = {}
        self._shelves: dict[int, _Shelf] = {}
        self._heard: dict[Hashable, _Heard] = {}
        self._finds: list[tuple[socket.socket, int, tuple[int, int]]] = []

    @property
    def nr_files(self) -> int:
        """Descriptors that are kept, of all vGPUs."""
        return sum(shelf.nr_files for shelf in self._shelves.values())

    def read(self, owner: Hashable, vgpu: int, worker: socket.socket) -> bool:
        """Reads what a worker of this vGPU says. False: it has ended, or is not to be listened to any more."""
        try:
            for _ in range(MOST_AT_ONCE):
                received = _receive(worker)
                if received is None:
                    return True
                data, files = received
                if not data:
                    _close(files)
                    return False
                self._count(owner)
                self._hear(owner, vgpu, worker, data, files)
        except OSError:
            return False
        except MalformedError as error:
            text = "a worker said what no worker says: %s; it is not listened to any more"
            self._say(vgpu, logging.ERROR, text, error)
            return False
        return True

    def answer(self) -> None:
        """Tells those that look for something. After `read` of all that can be read."""
        finds, self._finds = self._finds, []
        for worker, vgpu, key in finds:
            shelf = self._shelves.get(vgpu)
            shared = shelf.shared.get(key) if shelf is not None else None
            nbytes, files = (shared.nbytes, shared.files) if shared is not None else (0, ())
            with contextlib.suppress(OSError):  # it has ended, or does not read
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
                message = Message(FOUND, key, nbytes).packed()
                worker.sendmsg([message], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def leave(self, owner: Hashable) -> None:
        """The worker has ended: what it put anywhere goes."""
        self._heard.pop(owner, None)
        for vgpu, shelf in list(self._shelves.items()):
            for key in [key for key, shared in shelf.shared.items() if shared.owner == owner]:
                self._take_off(vgpu, key)

    def close(self) -> None:
        """Everything goes."""
        for vgpu, shelf in list(self._shelves.items()):
            for key in list(shelf.shared):
                self._take_off(vgpu, key)

    def _say(self, vgpu: int, level: int, message: str, *arguments: object) -> None:
        """Of what a guest does as often as it likes."""
        said = self._logs.setdefault(vgpu, GuestLog(log, ""))
        said.name = self._called(vgpu)  # its number may be another one's by now
        said.say(level, message, *arguments)

    def _count(self, owner: Hashable) -> None:
        now = self._clock()
        heard = self._heard.setdefault(owner, _Heard(now))
        if now - heard.since >= 1.0:
            heard.since, heard.nr = now, 0
        heard.nr += 1
        if heard.nr > MOST_IN_A_SECOND:
            raise MalformedError(f"{heard.nr} messages in a second")

    def _hear(self, owner: Hashable, vgpu: int, worker: socket.socket, data: bytes, files: list[int]) -> None:
        """Takes the files in any case."""
        is_kept = False
        try:
            if data.startswith(b"{"):
                return  # how its client ended
            message = Message.unpacked(data)
            if message.word == PUT:
                is_kept = self._put(owner, vgpu, message, files)
            elif message.word not in (DROP, FIND) or files:
                raise MalformedError(f"a message of kind {message.word} with {len(files)} files")
            elif message.word == DROP:
                self._drop(owner, vgpu, message.key)
            else:
                self._finds.append((worker, vgpu, message.key))
        finally:
            if not is_kept:
                _close(files)

    def _put(self, owner: Hashable, vgpu: int, message: Message, files: list[int]) -> bool:
        """False: there is no room, and nobody finds it."""
        if not 1 <= len(files) <= MOST_FILES or message.nbytes == 0:
            raise MalformedError(f"memory of {message.nbytes} bytes in {len(files)} files")
        shelf = self._shelves.get(vgpu, _Shelf())
        if message.key in shelf.shared:
            raise MalformedError("a key for the second time")
        if shelf.nr_files + len(files) > self._most_files:
            text = "its programs share more memory than there is room for: some of it cannot be opened"
            self._say(vgpu, logging.WARNING, text)
            return False
        shelf.shared[message.key] = _Shared(owner, message.nbytes, tuple(files))
        shelf.nr_files += len(files)
        self._shelves[vgpu] = shelf
        return True

    def _drop(self, owner: Hashable, vgpu: int, key: tuple[int, int]) -> None:
        """What is not there had no room."""
        shelf = self._shelves.get(vgpu)
        shared = shelf.shared.get(key) if shelf is not None else None
        if shared is None:
            return
        if shared.owner != owner:
            raise MalformedError("another worker's memory to take off")
        self._take_off(vgpu, key)

    def _take_off(self, vgpu: int, key: tuple[int, int]) -> None:
        shelf = self._shelves[vgpu]
        shared = shelf.shared.pop(key)
        shelf.nr_files -= len(shared.files)
        _close(shared.files)
        if not shelf.shared:
            del self._shelves[vgpu]


def _receive(worker: socket.socket) -> tuple[bytes, list[int]] | None:
    """One message and its files; None: there is none yet. No bytes: it has ended. Raises MalformedError, OSError."""
    room = socket.CMSG_LEN(MOST_FILES * array("i").itemsize)
    try:
        data, rights, said, _ = worker.recvmsg(MOST_BYTES, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        return None
    files = [file for _, _, packed in rights for file in array("i", packed)]
    if said & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _close(files)
        raise MalformedError("a message that is too long, or with too many files")
    return data, files


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)
