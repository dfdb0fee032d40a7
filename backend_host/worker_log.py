"""What workers say on their standard error, on its way into the daemon's log.

A worker may be a guest's by then, and what it writes may be anything, without an end. So each worker writes into a pipe. One thread reads all
pipes, cuts long lines, shows what is not printable escaped, puts the names of vGPU and program before each line, and lets a vGPU have so many
lines a minute and no more (guest_log.py), through all its workers. Others are counted, not made, and between two reads the thread rests: words
without an end take no time of the daemon's that counts. What kernels say goes to the guest, not here (printing.c).

A worker never waits for us: its end does not block, and what finds no room is lost. While no daemon is there nobody reads.
Wrong when: a line comes in pieces, more slowly than it is read: it is told when it is whole, or when the worker has ended.
"""

import contextlib
import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend_host.guest_log import GuestLog

LINE_BYTES = 400
"""Longer lines are cut: a library's words fit, and twenty lines a minute are 12 MB a day."""
_READ_BYTES = 1 << 16
_REST_S = 0.01
NR_KEPT_LOGS = 256
"""vGPUs that are remembered with what they have said in this minute; older ones are forgotten first. A guest cannot choose its vGPU."""

log = logging.getLogger("fairgv.worker")


@dataclass
class Pipe:
    """Of one worker: our end, and what has come by it of a line."""

    fd: int
    vgpu: str = ""
    who: str = "a worker without a client"
    line: bytes = b""
    is_cut: bool = False


def shown(line: bytes) -> str:
    """A line of a stranger's, for a terminal: what is not printable is escaped."""
    text = line.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class WorkerLog:
    """All workers of a Gpu, by slot. Thread-safe."""

    def __init__(self, rest: Callable[[float], None] = time.sleep) -> None:
        self._rest = rest
        self._lock = threading.Lock()
        self._pipes: dict[int, Pipe] = {}
        self._logs: dict[str, GuestLog] = {}
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read_all, name="worker-log", daemon=True)

    def start(self) -> None:
        """Reads from now on."""
        self._thread.start()

    def stop(self) -> None:
        """After all workers have ended."""
        os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join()
        for slot in list(self._pipes):
            self.close(slot)
        self._selector.close()
        os.close(self._wake)

    @contextlib.contextmanager
    def pipe(self, slot: int) -> Iterator[int]:
        """The end for a new worker, which inherits it within the block. When the block fails nothing is left; else `close` follows one day."""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with self._lock:
                self._pipes[slot] = Pipe(ours)
                self._selector.register(ours, selectors.EVENT_READ, slot)
            yield theirs
        except BaseException:
            self.close(slot)
            raise
        finally:
            os.close(theirs)

    def adopt(self, slot: int, fd: int) -> None:
        """Takes over our end of the pipe of a worker that an earlier daemon started."""
        self.take(slot, Pipe(fd))

    def take(self, slot: int, pipe: Pipe) -> None:
        """Takes over the pipe of a worker of another Gpu."""
        with self._lock:
            self._pipes[slot] = pipe
            self._selector.register(pipe.fd, selectors.EVENT_READ, slot)

    def give(self, slot: int) -> Pipe:
        """The counterpart."""
        with self._lock:
            pipe = self._pipes.pop(slot)
            with contextlib.suppress(KeyError):  # its other end is closed already
                self._selector.unregister(pipe.fd)
            return pipe

    def fd(self, slot: int) -> int:
        """Our end of this worker's pipe, which stays ours."""
        with self._lock:
            return self._pipes[slot].fd

    def name(self, slot: int, vgpu: str, program: str) -> None:
        """Whom the worker serves from now on. The program's name is the guest's word."""
        with self._lock:
            if pipe := self._pipes.get(slot):
                pipe.vgpu, pipe.who = vgpu, f"a worker of {shown(program.encode(errors='replace'))}"

    def close(self, slot: int) -> None:
        """Its worker has ended: takes what is left in the pipe. Whoever else still has the other end, a child say, writes in vain."""
        with self._lock:
            if (pipe := self._pipes.pop(slot, None)) is None:
                return
            with contextlib.suppress(KeyError):
                self._selector.unregister(pipe.fd)
            self._take(pipe)
            if pipe.line:
                self._say(pipe, self._log_of(pipe.vgpu))
            os.close(pipe.fd)

    def _read_all(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                with self._lock:
                    pipe = self._pipes.get(key.data)
                    if pipe is not None and not self._take(pipe):
                        with contextlib.suppress(KeyError):
                            self._selector.unregister(pipe.fd)
            self._rest(_REST_S)

    def _take(self, pipe: Pipe) -> bool:
        """What is there, as much as a pipe holds. False: there is never more."""
        try:
            data = os.read(pipe.fd, _READ_BYTES)
        except BlockingIOError:
            return True
        said = self._log_of(pipe.vgpu)
        *lines, rest = data.split(b"\n", said.nr_left())
        for line in lines:
            self._add(pipe, line)
            self._say(pipe, said)
        if nr := rest.count(b"\n"):
            said.drop(nr)
            pipe.line, pipe.is_cut = b"", False
        self._add(pipe, rest[rest.rfind(b"\n") + 1 :])
        return bool(data)

    @staticmethod
    def _add(pipe: Pipe, data: bytes) -> None:
        room = LINE_BYTES - len(pipe.line)
        pipe.is_cut |= len(data) > room
        pipe.line += data[:room]

    def _log_of(self, vgpu: str) -> GuestLog:
        said = self._logs.pop(vgpu, None) or GuestLog(log, vgpu)
        self._logs[vgpu] = said  # the last one is the newest
        if len(self._logs) > NR_KEPT_LOGS:
            del self._logs[next(iter(self._logs))]
        return said

    @staticmethod
    def _say(pipe: Pipe, said: GuestLog) -> None:
        said.say(logging.WARNING, "%s: %s%s", pipe.who, shown(pipe.line), "..." if pipe.is_cut else "")
        pipe.line, pipe.is_cut = b"", False
