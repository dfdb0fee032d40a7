"""The Python face of a region: what the daemon, `fairgv-run` and the tests do with one.

A `Region` is one POSIX shared memory object, mapped. It hands out snapshots (frozen dataclasses) and makes the daemon's
steps in a client's life; bytes of rings and arenas never pass through Python. A guest's mistake is data here (a state
nobody defined), never an exception.

Whoever may open the object may truncate it, and this process would get SIGBUS. One that called `survive_cuts` finds the
region empty instead, and `is_cut`.
"""

import enum
import math
import mmap
import os
import select
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import posix_ipc

from ivshmem import _ivshmem
from ivshmem.front import Front, window_front_bytes

ffi: Any = _ivshmem.ffi
lib: Any = _ivshmem.lib

PAGE_BYTES: int = lib.FGV_PAGE_BYTES
NR_CLIENTS: int = lib.FGV_NR_CLIENTS
FACTS_BYTES: int = lib.FGV_FACTS_BYTES
REGION_MIN_BYTES: int = lib.FGV_REGION_MIN_BYTES
BEAT_SECONDS: float = lib.FGV_BEAT_NS / 1e9
BEAT_LOST_SECONDS: float = lib.FGV_BEAT_LOST_NS / 1e9

_SHM_FOLDER = Path("/dev/shm")


def survive_cuts() -> None:
    """From now on a region whose memory was cut short does not end this process. OSError when the kernel does not let us."""
    if not lib.fgv_cut_survive():
        raise OSError("SIGBUS cannot be handled")


class Wake(enum.IntEnum):
    """How a peer that sleeps is woken: POLL (it is not) or BELL across a VM's border, FUTEX between processes of one kernel."""

    POLL = 1
    FUTEX = 2
    BELL = 3


class HostState(enum.IntEnum):
    DOWN = 0
    UP = 1


class ClientState(enum.IntEnum):
    FREE = 0
    CLAIMED = 1
    HELLO = 2
    READY = 3
    REFUSED = 4
    DEAD = 5
    CLOSING = 6


_HOST_STATES = frozenset(int(state) for state in HostState)


class RegionStatus(enum.IntEnum):
    OK = 0
    NO_MAGIC = 1
    WRONG_VERSION = 2
    WRONG_TABLE = 3
    DAMAGED = 4


class RegionError(Exception):
    """A region cannot be used; `status` says why and the text names the remedy."""

    def __init__(self, name: str, status: RegionStatus) -> None:
        super().__init__(f"region {name}: {ffi.string(lib.fgv_region_status_text(status)).decode()}")
        self.name = name
        self.status = status


class RegionSizeError(ValueError):
    """A region of this size, or with facts of this size, cannot be laid out."""


class RegionClosedError(Exception):
    """The region is used after close()."""


@dataclass(frozen=True)
class Client:
    """One client entry as it stood at one moment. `state` is the number found there: a hostile guest may write any."""

    index: int
    state: int
    pid: int
    boot_id: bytes
    beat: int
    refusal: int
    deferred_error: int
    sticky_error: int
    program: str


@dataclass(frozen=True)
class RegionStatistics:
    """How full a region is. Pages are of PAGE_BYTES bytes; `nr_client_pages` is by client index."""

    region_bytes: int
    nr_heap_pages: int
    nr_free_pages: int
    nr_stray_pages: int
    nr_client_pages: tuple[int, ...]
    nr_clients: int
    nr_announcements: int


class _Bell:
    """Sleeps on a bell that the guest rings, and on one of our own. Whoever has the guest's, QEMU say, could make reading or writing it
    block, so neither is done: each ring is an edge."""

    def __init__(self, guest_fd: int) -> None:
        self._own_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        for fd in (guest_fd, self._own_fd):
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def ring(self) -> None:
        with suppress(BlockingIOError):  # full, so it is rung
            os.eventfd_write(self._own_fd, 1)

    def wait(self, timeout_s: float) -> None:
        """A ring since the last wait counts. Returns early on a signal after its Python handler ran."""
        self._epoll.poll(max(timeout_s, 0.0))

    def close(self) -> None:
        self._epoll.close()
        os.close(self._own_fd)


class Region:
    """One mapped region. `create` lays out a new one (the host), `open` checks an existing one. A context manager that
    closes."""

    def __init__(self, name: str, fd: int, nbytes: int) -> None:
        """Takes over `fd`. Use `create` or `open`."""
        self.name = name
        self.region_bytes = nbytes
        self._fd = fd
        try:
            self._map = mmap.mmap(fd, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except BaseException:
            os.close(fd)
            raise
        self._buffer: Any = ffi.from_buffer("uint8_t[]", self._map, require_writable=True)
        self._cut = int(lib.fgv_cut_watch(self._buffer, nbytes))
        self._struct: Any = ffi.new("struct fgv_region *")
        self._nr_announcements_seen = 0
        self._nr_announcements = 0
        self._host_beat: Any = ffi.new("struct fgv_host_beat *")
        self._bell: _Bell | None = None
        self._front: Front | None = None
        self._window_bytes = self._mapped_bytes = 0
        self._front_lock = threading.Lock()

    @classmethod
    def create(
        cls, name: str, nbytes: int, *, table_hash: int, facts: bytes = b"", wake: Wake = Wake.FUTEX, mode: int = 0o600
    ) -> Self:
        """A new shared memory object `/dev/shm/NAME` of `nbytes`, laid out, host state DOWN. FileExistsError when the
        name is taken, RegionSizeError when the sizes do not fit; nothing is left behind then."""
        if nbytes < REGION_MIN_BYTES or nbytes % PAGE_BYTES or len(facts) > FACTS_BYTES:
            raise RegionSizeError(f"no region of {nbytes} bytes with {len(facts)} bytes of facts")
        try:
            shm = posix_ipc.SharedMemory(f"/{name}", posix_ipc.O_CREX, mode=mode, size=nbytes)
        except posix_ipc.ExistentialError as error:
            raise FileExistsError(f"shared memory object /{name} exists") from error
        region: Self | None = None
        try:
            region = cls(name, shm.fd, nbytes)
            region.format(table_hash=table_hash, facts=facts, wake=wake)
        except BaseException:
            if region is not None:
                region.close()
            shm.unlink()
            raise
        return region

    @classmethod
    def open(cls, name: str, *, table_hash: int) -> Self:
        """An existing object `/dev/shm/NAME`, or the path of any file when `name` holds a slash. Raises RegionError
        when the region is not in order, FileNotFoundError when there is none."""
        path = Path(name) if "/" in name else _SHM_FOLDER / name
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        nbytes = os.fstat(fd).st_size
        if nbytes < REGION_MIN_BYTES:
            os.close(fd)
            raise RegionError(name, RegionStatus.DAMAGED)
        region = cls(name, fd, nbytes)
        status = region.check(table_hash=table_hash)
        if status is not RegionStatus.OK:
            region.close()
            raise RegionError(name, status)
        return region

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps. Safe to repeat. The object itself stays until `unlink`."""
        if self._buffer is None:
            return
        self.close_window()
        self.stop_beating()
        lib.fgv_cut_forget(self._cut)
        ffi.release(self._buffer)
        self._buffer = None
        self._struct = None
        self._map.close()
        os.close(self._fd)
        if self._bell is not None:
            self._bell.close()

    def listen(self, bell_fd: int) -> None:
        """From now on `wait_announce` sleeps until this eventfd is rung, which the guest does with its announcements under BELL.
        Without it, or before, it looks now and then."""
        self._bell = _Bell(bell_fd)

    def open_window(self, first_piece_fd: int, window_bytes: int) -> None:
        """The host's look at the window behind the region, whose first piece is this file: its pages count and are taken back as those of
        the region are, once `grow_window` said how many there are. The descriptor stays the caller's. RegionSizeError when there is no
        such window, or the piece does not hold its owners."""
        if not lib.fgv_window_is_sound(window_bytes, 0):
            raise RegionSizeError(f"no window of {window_bytes} bytes")
        nbytes = window_front_bytes(window_bytes)
        if os.fstat(first_piece_fd).st_size < nbytes:
            raise RegionSizeError(f"no window of {window_bytes} bytes with a first piece of less than {nbytes}")
        front = Front(first_piece_fd, nbytes)
        self.close_window()
        with self._front_lock:
            self._front, self._window_bytes = front, window_bytes
            self._set_window(0)

    def grow_window(self, mapped_bytes: int) -> None:
        """So much of the window is mapped now."""
        with self._front_lock:
            if self._front is None or not lib.fgv_window_is_sound(self._window_bytes, mapped_bytes):
                raise RegionSizeError(f"no window of {self._window_bytes} bytes with {mapped_bytes} mapped")
            self._set_window(mapped_bytes)

    def close_window(self) -> None:
        """Nothing of it is mapped any more. Safe to repeat."""
        with self._front_lock:
            front, self._front, self._window_bytes = self._front, None, 0
            if front is not None:
                self._set_window(0)
                front.close()

    def _set_window(self, mapped_bytes: int) -> None:
        self._mapped_bytes = mapped_bytes
        owners = ffi.NULL if self._front is None else self._front.buffer
        lib.fgv_face_set_window(self._checked(), owners, self._window_bytes, mapped_bytes)

    def unlink(self) -> None:
        """Removes the name; the memory goes when the last peer has unmapped it. Nothing happens when it is gone
        already."""
        with suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(f"/{self.name}")

    def fileno(self) -> int:
        """To set owner and label of the object, or to hand it to a worker."""
        self._checked()
        return self._fd

    @property
    def base(self) -> int:
        """Address of the first byte in this process, for C code of the caller; valid until close()."""
        self._checked()
        return int(ffi.cast("uintptr_t", self._buffer))

    @property
    def c_region(self) -> Any:
        """`struct fgv_region *` of this module's ffi. C code of another cffi module casts its address."""
        return self._checked()

    @property
    def is_cut(self) -> bool:
        """Whether somebody cut its memory short. Once this process touched what is missing, all of it is this process's own, and no guest's."""
        if self._buffer is None:
            return False
        return bool(lib.fgv_cut_happened(self._cut)) or os.fstat(self._fd).st_size < self.region_bytes

    @property
    def wake(self) -> Wake:
        return Wake(self._checked().wake)

    @property
    def facts(self) -> bytes:
        """A copy of the facts as they are in the region now."""
        region = self._checked()
        return bytes(ffi.buffer(region.facts, region.facts_bytes))

    def set_facts(self, facts: bytes) -> None:
        """Facts of the same length in place of those there, for clients to come. RegionSizeError for another length."""
        region = self._checked()
        if len(facts) != region.facts_bytes:
            raise RegionSizeError(f"{len(facts)} bytes of facts in place of {region.facts_bytes}")
        ffi.memmove(region.facts, facts, len(facts))

    def format(self, *, table_hash: int, facts: bytes = b"", wake: Wake = Wake.FUTEX) -> None:
        """Lays the region out anew: every client and every page of the heap is gone, the window's too; the region's memory goes back to the
        system."""
        with self._front_lock:
            if not lib.fgv_region_format(
                self._address(), self.region_bytes, table_hash, int(wake), facts, len(facts), self._struct
            ):
                raise RegionSizeError(f"no region of {self.region_bytes} bytes with {len(facts)} bytes of facts")
            self._nr_announcements_seen = 0
            if self._front is not None:
                self._front.clear()
                self._set_window(self._mapped_bytes)
        heap_offset = int(self._struct.heap - self._struct.base)
        with suppress(OSError):  # a file system that cannot punch holes keeps the old bytes, which nobody reads
            self._map.madvise(mmap.MADV_REMOVE, heap_offset, self.region_bytes - heap_offset)

    def check(self, *, table_hash: int) -> RegionStatus:
        """Whether the header is what it must be for this size and table; the rest of this object works only after OK
        (or `format`)."""
        return RegionStatus(lib.fgv_region_check(self._address(), self.region_bytes, table_hash, self._struct))

    @property
    def host_state(self) -> HostState | None:
        """None when somebody wrote a state there that does not exist."""
        state = int(lib.fgv_face_host_state(self._checked()))
        return HostState(state) if state in _HOST_STATES else None

    def set_host_state(self, state: HostState) -> None:
        lib.fgv_face_set_host_state(self._checked(), int(state))

    def keep_beating(self, for_s: float) -> None:
        """Tells the guests that the daemon lives: now, and for so long every BEAT_SECONDS, in a thread that Python does not hold up."""
        lib.fgv_host_beat_keep(self._host_beat, self._checked(), int(for_s * 1e9))

    def stop_beating(self) -> None:
        """Tells them no longer."""
        lib.fgv_host_beat_stop(self._host_beat)

    def host_beat(self) -> int:
        """The daemon's beat as it stands in the region, whoever's daemon that is."""
        return int(lib.fgv_face_host_beat(self._checked()))

    def announce(self) -> None:
        """What a guest does after it changed a client's state."""
        lib.fgv_announce(self._checked())
        if self._bell is not None:
            self._bell.ring()

    def wait_announce(self, timeout_s: float) -> bool:
        """True when a client announced something since the last call that said so; waits at most `timeout_s`, without
            the GIL.
        Returns early, False, on a signal, so that its Python handler runs."""
        timeout_ns = math.ceil(max(timeout_s, 0.0) * 1e9)
        if self._bell is not None and self.wake is Wake.BELL:
            if (
                int(lib.fgv_announce_wait(self._checked(), self._nr_announcements_seen, 0))
                == self._nr_announcements_seen
            ):
                self._bell.wait(timeout_s)
            timeout_ns = 0
        now = int(lib.fgv_announce_wait(self._checked(), self._nr_announcements_seen, timeout_ns))
        self._nr_announcements += (now - self._nr_announcements_seen) % 2**32
        is_new = now != self._nr_announcements_seen
        self._nr_announcements_seen = now
        return is_new

    def client(self, index: int) -> Client:
        view = ffi.new("struct fgv_client_view *")
        if not lib.fgv_client_look(self._checked(), index, view):
            raise IndexError(f"client {index} of {NR_CLIENTS}")
        return Client(
            index=index,
            state=view.state,
            pid=view.pid,
            boot_id=bytes(view.boot_id),
            beat=view.beat,
            refusal=view.refusal,
            deferred_error=view.deferred_error,
            sticky_error=view.sticky_error,
            program=ffi.string(view.program).decode("ascii"),
        )

    def clients(self) -> tuple[Client, ...]:
        """The entries that are not free."""
        in_use = int(lib.fgv_clients_in_use(self._checked()))
        clients = (self.client(index) for index in range(NR_CLIENTS) if in_use >> index & 1)
        return tuple(client for client in clients if client.state != ClientState.FREE)

    def step(self, index: int, seen: int, to: ClientState) -> bool:
        """The entry's state from `seen` to `to`; False, and nothing done, when the guest moved on meanwhile."""
        return bool(lib.fgv_client_step(self._checked(), index, seen, int(to)))

    def refuse(self, index: int, code: int) -> bool:
        """HELLO -> REFUSED with CUresult `code`; False when the entry was not in HELLO."""
        return bool(lib.fgv_client_refuse(self._checked(), index, code))

    def fail(self, index: int, code: int) -> bool:
        """Every call of the program gives CUresult `code` from now on, also when its worker has ended; False when it is not READY."""
        return bool(lib.fgv_client_fail(self._checked(), index, code))

    def declare_dead(self, index: int) -> bool:
        """READY -> DEAD: the worker died; False when the client was closing already."""
        return self.step(index, ClientState.READY, ClientState.DEAD)

    def finish_events(self, index: int) -> None:
        """What the client recorded in events that it shares is over. The worker must have ended."""
        lib.fgv_events_finish(self._checked(), index)

    def free(self, index: int, seen: int) -> bool:
        """Takes back the client's pages and makes the entry FREE; False when its state was not `seen`. The worker must
        have ended."""
        if self.client(index).state != seen:
            return False
        self.reclaim(index)
        return bool(lib.fgv_client_release(self._checked(), index, seen))

    def reclaim(self, index: int) -> int:
        """Takes back the events and the pages a client held; returns the number of pages."""
        lib.fgv_events_reclaim(self._checked(), index)
        with self._front_lock:
            return int(lib.fgv_heap_reclaim(self._checked(), index))

    def statistics(self) -> RegionStatistics:
        region = self._checked()
        census = ffi.new("struct fgv_heap_census *")
        with self._front_lock:
            lib.fgv_heap_count(region, census)
        return RegionStatistics(
            region_bytes=self.region_bytes,
            nr_heap_pages=region.nr_heap_pages,
            nr_free_pages=census.nr_free,
            nr_stray_pages=census.nr_stray,
            nr_client_pages=tuple(census.nr_owned),
            nr_clients=len(self.clients()),
            nr_announcements=self._nr_announcements,
        )

    def _address(self) -> Any:
        if self._buffer is None:
            raise RegionClosedError(self.name)
        return ffi.cast("uint8_t *", self._buffer)

    def _checked(self) -> Any:
        """The C structure; raises when it must not be used: its pointers are into memory that is not mapped (any more,
        or yet)."""
        if self._struct is None or self._struct.base == ffi.NULL:
            raise RegionClosedError(self.name)
        return self._struct
