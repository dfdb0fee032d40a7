"""The window behind a virtual machine's region: memory that its device `fairgv-memory` maps when the guest asks, given piece by piece.

This is the device's peer, at the other end of QEMU's socket; what is said there is defined in docs/specs/fairgv-memory.rst of qemu_patches.
A piece is a memfd that cannot shrink. Its memory is taken at once: a page that the host cannot provide later would end QEMU and the worker
alike. Workers hear of a piece before the guest can, so that they find it when the guest asks for it.

QEMU is not trusted. What it says has no part in how large a piece is, beyond what was wanted and what is allowed; what breaks the protocol
ends the connection for as long as this QEMU runs; a QEMU that is silent, or does not read, stops one thread that serves it alone.

Wrong when: a daemon dies between keeping a piece and giving it. The device and the next daemon do not agree then, and the guest gets no more
until it is reset.
"""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend_host.guest_log import GuestLog
from backend_host.restart.records import PieceRecord
from backend_host.restart.store import Store
from backend_host.sizes import format_size
from backend_host.worker_process import WorkerProcess, stop_all
from ivshmem.front import WINDOW_MAX_BYTES, WINDOW_MIN_BYTES, window_front_bytes
from ivshmem.passing import send_with
from ivshmem.region import PAGE_BYTES, Region, RegionSizeError

HELLO, WANT, RESET, PIECE, REFUSE = range(1, 6)
VERSION = 1
_MESSAGE = struct.Struct("<IIQQQ")
_PIECE = struct.Struct("<QQQ")  # struct fgv_piece
_STEPS = 32
"""A piece has at least such a part of what may be given: a device has 64 pieces."""
_LEAST_BYTES = 16 << 20
_ROUND_BYTES = 2 << 20
_HOSTS_OWN_BYTES = 256 << 20
"""Memory that no piece takes."""
_CONNECT_S = 5.0
_RETRY_S = 1.0
_PAUSE_S = 0.002
"""Between two messages at least: a QEMU that was taken over would otherwise keep the daemon busy."""

log = logging.getLogger("fairgv.windows")


class _BrokenError(Exception):
    """The device said what no device says."""


@dataclass(frozen=True)
class Message:
    """One message of the protocol; `offset` and `nbytes` are of the window."""

    type: int
    version: int
    id: int
    offset: int
    nbytes: int

    def packed(self) -> bytes:
        return _MESSAGE.pack(self.type, self.version, self.id, self.offset, self.nbytes)

    @classmethod
    def receive(cls, device: socket.socket) -> "Message | None":
        """The next one, None at the end of the connection. OSError."""
        data = device.recv(_MESSAGE.size, socket.MSG_WAITALL)
        return cls(*_MESSAGE.unpack(data)) if len(data) == _MESSAGE.size else None


def piece_bytes(wanted: int, mapped: int, window: int, limit: int) -> int | None:
    """How large the next piece is when so many bytes are wanted behind those that are mapped; None: they are too many."""
    left = min(window, limit) - mapped
    least = window_front_bytes(window) + PAGE_BYTES if mapped == 0 else 0
    if not 0 < wanted <= left or least > left:
        return None
    step = -(-max(_LEAST_BYTES, limit // _STEPS) // _ROUND_BYTES) * _ROUND_BYTES
    return min(max(wanted, least, step), left) // PAGE_BYTES * PAGE_BYTES


def available_bytes() -> int:
    """What the host can give without taking from others."""
    with Path("/proc/meminfo").open() as lines:
        [kib] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kib) << 10


def make_piece(name: str, nbytes: int) -> int:
    """A descriptor of new memory, all of it there. OSError when the host has not so much."""
    if nbytes > available_bytes() - _HOSTS_OWN_BYTES:  # the kernel itself would rather end processes than refuse
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    fd = os.memfd_create(f"fairgv-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(fd)
        raise
    return fd


class Window:
    """The window of one region: its pieces, and the workers that are told of them. Thread-safe."""

    def __init__(self, name: str, region: Region, store: Store | None = None, gpu: int = 0, vgpu: int = 0) -> None:
        """`store`: where its pieces are kept for the next daemon, as those of this vGPU of this Gpu."""
        self.log = GuestLog(log, name)
        self._store = store or Store()
        self._gpu, self._vgpu = gpu, vgpu
        self.limit_bytes = 0
        """How much may be given at most."""
        self._region = region
        self._lock = threading.Lock()
        self._pieces: list[tuple[int, bytes]] = []
        self._workers: list[WorkerProcess] = []
        self._mapped_bytes = 0

    @property
    def mapped_bytes(self) -> int:
        """What the guest was given."""
        return self._mapped_bytes

    def subscribe(self, worker: WorkerProcess) -> None:
        """This worker of the region is told of all pieces, those that are there already and those that come."""
        with self._lock:
            self._workers = [each for each in self._workers if not each.is_ended.is_set()]
            self._workers.append(worker)
            for fd, message in self._pieces:
                _send(worker, fd, message)

    def add(self, window_bytes: int, wanted_bytes: int) -> tuple[int, int] | None:
        """A piece for at least so many bytes more: its descriptor, which stays this object's, and its size. None: refused."""
        nbytes = piece_bytes(wanted_bytes, self._mapped_bytes, window_bytes, self.limit_bytes)
        if nbytes is None:
            self.log.say(logging.INFO, "%s more are beyond what it may have", format_size(wanted_bytes))
            return None
        try:
            fd = make_piece(self.log.name, nbytes)
        except OSError as error:
            self.log.say(logging.ERROR, "no piece of %s: %s", format_size(nbytes), error.strerror)
            return None
        with self._lock:
            message = _PIECE.pack(window_bytes, self._mapped_bytes, nbytes)
            record = PieceRecord(self._gpu, self._vgpu, window_bytes, self._mapped_bytes, nbytes)
            self._store.put(self._item(len(self._pieces)), record.written(), [fd])
            if self._mapped_bytes == 0:
                self._region.open_window(fd, window_bytes)
            self._pieces.append((fd, message))
            self._mapped_bytes += nbytes
            self._region.grow_window(self._mapped_bytes)
            for worker in self._workers:
                _send(worker, fd, message)
        self.log.say(logging.INFO, "the window has %s now", format_size(self._mapped_bytes))
        return fd, nbytes

    def adopt(self, pieces: Sequence[tuple[PieceRecord, int]], workers: Sequence[WorkerProcess]) -> None:
        """Takes over pieces that an earlier daemon gave, of which these workers know, and their descriptors. RegionSizeError or OSError where
        they are no window: all are closed then."""
        with self._lock:
            self._workers = list(workers)
            try:
                for record, fd in sorted(pieces, key=lambda piece: piece[0].offset):
                    if record.offset != self._mapped_bytes or os.fstat(fd).st_size != record.nbytes:
                        raise RegionSizeError(f"a piece of {record.nbytes} bytes at {record.offset}")
                    if not self._pieces:
                        self._region.open_window(fd, record.window_bytes)
                    self._mapped_bytes += record.nbytes
                    self._region.grow_window(self._mapped_bytes)
                    self._pieces.append((fd, _PIECE.pack(record.window_bytes, record.offset, record.nbytes)))
            except (OSError, RegionSizeError):
                self._region.close_window()
                self._pieces, self._mapped_bytes = [], 0
                for _, fd in pieces:
                    os.close(fd)
                raise

    def _item(self, number: int) -> str:
        return f"piece/{self._gpu}/{self._vgpu}/{number}"

    def move(self, gpu: int, vgpu: int) -> None:
        """Its vGPU has another place; its pieces are kept as those of that one."""
        with self._lock:
            before = [self._item(number) for number in range(len(self._pieces))]
            self._gpu, self._vgpu = gpu, vgpu
            for number, (fd, message) in enumerate(self._pieces):
                record = PieceRecord(gpu, vgpu, *_PIECE.unpack(message))
                self._store.put(self._item(number), record.written(), [fd], drop=[before[number]])

    def drop(self) -> None:
        """The guest has no piece any more: the workers that were told of one are ended, then all are given back."""
        with self._lock:
            if not self._pieces:
                return
            workers, self._workers = self._workers, []
            pieces, self._pieces = self._pieces, []
            self._mapped_bytes = 0
            self._region.close_window()
            self._store.drop(*(self._item(number) for number in range(len(pieces))))
        stop_all(workers)
        for fd, _ in pieces:
            os.close(fd)


def _send(worker: WorkerProcess, fd: int, message: bytes) -> None:
    """One that cannot be told is ended, because its guest would be told nevertheless."""
    try:
        send_with(worker.socket, message, [fd], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError as error:
        if not worker.is_ended.is_set():
            log.warning("worker %d cannot be told of a piece: %s", worker.process.pid, error)
        worker.stop()


class WindowPeer:
    """One thread for one device, from the start of its QEMU to its end. Connects to the socket at `path`, whose other end must be user `uid`,
    and answers. `earlier`: the one before, whose end is awaited first."""

    def __init__(self, window: Window, path: Path, uid: int, earlier: "WindowPeer | None" = None) -> None:
        self._window = window
        self._path = path
        self._uid = uid
        self._earlier = earlier
        self._is_foreign = False
        """The device has pieces that an earlier daemon gave."""
        self._device: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"window-{window.log.name}", daemon=True)

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Its QEMU has ended, or is left alone from now on. What was given is given back; `join` waits for that."""
        with self._lock:
            self._is_stopping.set()
            if self._device is not None:
                with contextlib.suppress(OSError):
                    self._device.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        """Returns when it has ended."""
        self._thread.join()

    def _run(self) -> None:
        if self._earlier is not None:
            self._earlier.join()
            self._earlier = None
        try:
            self._serve_until_stopped()
        except _BrokenError as error:
            text = "its device fairgv-memory %s; it is not listened to any more"
            self._window.log.say(logging.ERROR, text, error)
            self._is_stopping.wait()
        finally:
            self._window.drop()

    def _serve_until_stopped(self) -> None:
        is_told = False
        while not self._is_stopping.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as device:
                try:
                    self._connect(device)
                except OSError as error:
                    self._window.drop()  # there is no QEMU
                    if not is_told and not self._is_stopping.is_set():
                        self._window.log.say(logging.WARNING, "no device fairgv-memory at %s: %s", self._path, error)
                    is_told = True
                else:
                    with contextlib.suppress(OSError):  # an end like any other
                        self._serve(device)
                with self._lock:
                    self._device = None
            self._is_stopping.wait(_RETRY_S)

    def _connect(self, device: socket.socket) -> None:
        """OSError when nobody is there, or somebody else."""
        device.settimeout(_CONNECT_S)
        device.connect(str(self._path))
        _, uid, _ = struct.unpack("iII", device.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != self._uid:
            raise PermissionError(f"it is user {uid}, not QEMU's user {self._uid}")
        with self._lock:
            if self._is_stopping.is_set():
                raise ConnectionAbortedError("stopped")
            self._device = device
        device.settimeout(None)

    def _serve(self, device: socket.socket) -> None:
        """To the end of the connection. Raises _BrokenError, OSError."""
        hello = Message.receive(device)
        if hello is None:
            return
        window_bytes = self._take_hello(hello)
        while (message := Message.receive(device)) is not None:
            if message.type == WANT:
                self._answer(device, message, window_bytes)
            elif message.type == RESET:
                self._window.drop()
                self._is_foreign = False
            else:
                raise _BrokenError(f"sent a message of kind {message.type}")
            self._is_stopping.wait(_PAUSE_S)

    def _take_hello(self, hello: Message) -> int:
        """Returns the window's size."""
        if hello.type != HELLO or hello.version != VERSION:
            raise _BrokenError(f"begins with a message of kind {hello.type}, version {hello.version}")
        nbytes = hello.nbytes
        if not WINDOW_MIN_BYTES <= nbytes <= WINDOW_MAX_BYTES or nbytes & (nbytes - 1):
            raise _BrokenError(f"has a window of {nbytes} bytes")
        if hello.offset == 0:
            self._window.drop()
        self._is_foreign = hello.offset != self._window.mapped_bytes
        if self._is_foreign:
            text = "its guest has memory that an earlier daemon gave; it gets more once it was reset"
            self._window.log.say(logging.WARNING, text)
        return nbytes

    def _answer(self, device: socket.socket, want: Message, window_bytes: int) -> None:
        if self._is_foreign:
            device.sendall(Message(REFUSE, 0, want.id, 0, 0).packed())
            return
        if want.offset != self._window.mapped_bytes:
            raise _BrokenError(f"wants memory at {want.offset}, and has {self._window.mapped_bytes}")
        piece = self._window.add(window_bytes, want.nbytes)
        if piece is None:
            device.sendall(Message(REFUSE, 0, want.id, 0, 0).packed())
            return
        fd, nbytes = piece
        answer = Message(PIECE, 0, want.id, want.offset, nbytes).packed()
        if (nr_sent := send_with(device, answer, [fd])) < len(answer):
            device.sendall(answer[nr_sent:])
