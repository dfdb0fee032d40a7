"""The ivshmem server of one virtual machine: hands QEMU the region's memory and an eventfd for each bell.

`python -m ivshmem.server --memory FD --guest FD --control FD --daemon FD [--uid N --gid N]`, started by the daemon with descriptors that it
inherits: the region, a listening socket for QEMU, one for daemons, and a connection of the daemon that starts it.

One process and one region for each virtual machine: all peers of a server share its memory, and a process that QEMU can reach is worth
having apart from the daemon. It outlives the daemon, because QEMU keeps the eventfds that it was given first: a daemon that starts anew gets
the same ones from here. It ends when no daemon and no QEMU is connected, or when a daemon says so.

The protocol towards QEMU is that of docs/specs/ivshmem-spec in QEMU's documentation: messages of 8 bytes, each with at most one descriptor, in
one direction only. So whatever QEMU sends is a breach of it and ends the connection, and nothing that QEMU says is ever looked at. Who is
who among the peers stands in ivshmem/bell.h; QEMU is told of all at once, and of no change ever.

Wrong when: QEMU itself, not only its guest, was taken over. It may then make the bells of its own virtual machine ring for ever or never, and
make them block: they are shared objects, which nobody on the host reads or writes for that reason.
"""

import argparse
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from ivshmem.bells import ASK, END, GUEST_PEER, HELLO, MAGIC, NR_GUEST_BELLS, NR_PEERS

PROTOCOL_VERSION = 0
MAX_DAEMONS = 4
"""Connections of daemons: the one that serves, one that takes over, and commands that look."""
ACCEPT_PAUSE_S = 0.05
"""Between two connections of QEMU at least, so that one that comes and goes for ever does not keep a core busy."""
MAX_DESCRIPTORS = 4096
"""On their way to a QEMU that does not read, they count against all servers of this user together."""
_MESSAGE = struct.Struct("<q")
_MEMORY = -1

Message = tuple[int, int | None]


class Server:
    """One region, one virtual machine at a time, some daemons. `run` returns when nobody needs it any more."""

    def __init__(self, memory_fd: int, guest_listener: socket.socket, control_listener: socket.socket) -> None:
        self._memory_fd = memory_fd
        self._peers = tuple(_eventfd() for _ in range(NR_PEERS - 1))
        self._guest_bells = tuple(_eventfd() for _ in range(NR_GUEST_BELLS))
        self._guest_listener = guest_listener
        self._control_listener = control_listener
        self._guest: socket.socket | None = None
        self._unsent: Iterator[Message] = iter(())
        self._next: Message | None = None
        self._daemons: set[socket.socket] = set()
        self._is_ending = False
        self._accepted_s = 0.0
        self._selector = selectors.DefaultSelector()
        for listener, accept in ((guest_listener, self._accept_guest), (control_listener, self._accept_daemon)):
            listener.setblocking(False)
            self._watch(listener, accept)

    def run(self, daemon: socket.socket) -> None:
        """Serves `daemon`, and whoever else connects, until all have gone."""
        self._welcome_daemon(daemon)
        while not self._is_ending and (self._daemons or self._guest is not None):
            for key, _ in self._selector.select():
                action: Callable[[], None] = key.data
                action()

    def close(self) -> None:
        """All descriptors that it was given or made."""
        self._selector.close()
        for connection in (self._guest, *self._daemons, self._guest_listener, self._control_listener):
            if connection is not None:
                connection.close()
        for fd in (self._memory_fd, *self._peers, *self._guest_bells):
            os.close(fd)

    def _watch(self, connection: socket.socket, action: Callable[[], None], events: int = selectors.EVENT_READ) -> None:
        if connection in self._selector.get_map():
            self._selector.modify(connection, events, action)
        else:
            self._selector.register(connection, events, action)

    def _accept_guest(self) -> None:
        """The next QEMU gets in once the one before has gone; of two at a time the later one is turned away."""
        time.sleep(max(0.0, self._accepted_s + ACCEPT_PAUSE_S - time.monotonic()))
        self._accepted_s = time.monotonic()
        try:
            connection, _ = self._guest_listener.accept()
        except OSError:
            return
        if self._guest is not None:
            self._guest_spoke()  # its end may be waiting behind this event
        if self._guest is not None:
            connection.close()
            return
        connection.setblocking(False)
        self._guest = connection
        self._unsent = self._greeting()
        self._next = next(self._unsent)
        self._send_to_guest()

    def _greeting(self) -> Iterator[Message]:
        """Everything that QEMU is ever told, in the protocol's order."""
        yield PROTOCOL_VERSION, None
        yield GUEST_PEER, None
        yield _MEMORY, self._memory_fd
        for number, bell in enumerate(self._peers, start=1):
            yield number, bell
        for bell in self._guest_bells:
            yield GUEST_PEER, bell

    def _send_to_guest(self) -> None:
        """As much as fits; the rest when QEMU has read."""
        assert self._guest is not None
        try:
            while self._next is not None:
                number, fd = self._next
                _send(self._guest, _MESSAGE.pack(number), () if fd is None else (fd,))
                self._next = next(self._unsent, None)
        except BlockingIOError:
            pass
        except OSError:
            self._drop_guest()
            return
        events = selectors.EVENT_READ if self._next is None else selectors.EVENT_READ | selectors.EVENT_WRITE
        self._watch(self._guest, self._guest_moved, events)

    def _guest_moved(self) -> None:
        if self._guest is not None:  # else it was turned out in the same round
            self._guest_spoke()
        if self._guest is not None and self._next is not None:
            self._send_to_guest()

    def _guest_spoke(self) -> None:
        """QEMU has nothing to say: it left, or it breaks the protocol."""
        assert self._guest is not None
        try:
            self._guest.recv(1)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop_guest()

    def _drop_guest(self) -> None:
        assert self._guest is not None
        if self._guest in self._selector.get_map():
            self._selector.unregister(self._guest)
        self._guest.close()
        self._guest = None

    def _accept_daemon(self) -> None:
        try:
            connection, _ = self._control_listener.accept()
        except OSError:
            return
        if len(self._daemons) < MAX_DAEMONS:
            self._welcome_daemon(connection)
        else:
            connection.close()

    def _welcome_daemon(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._daemons.add(connection)
        self._watch(connection, lambda: self._daemon_asks(connection))
        hello = HELLO.pack(MAGIC, os.fstat(self._memory_fd).st_size)
        try:
            _send(connection, hello, (self._memory_fd, *self._peers, *self._guest_bells))
        except OSError:
            self._drop_daemon(connection)

    def _daemon_asks(self, connection: socket.socket) -> None:
        try:
            message = connection.recv(16)
            if message == ASK:
                connection.send(b"1" if self._guest is not None else b"0", socket.MSG_NOSIGNAL)
                return
            self._is_ending = self._is_ending or message == END
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop_daemon(connection)

    def _drop_daemon(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._daemons.discard(connection)
        connection.close()


def _eventfd() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def _send(connection: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    connection.sendmsg([data], rights, socket.MSG_NOSIGNAL)


def give_up_privileges(uid: int, gid: int) -> None:
    """As whom it runs from here on. The kernel lets nobody of that user look into a process that changed to it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit_fds = MAX_DESCRIPTORS if most == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_fds, limit_fds))
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def main(arguments: Sequence[str] | None = None) -> int:
    """The server's process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="fairgv-ivshmem-server", description=(__doc__ or "").partition("\n")[0])
    for name in ("memory", "guest", "control", "daemon"):
        parser.add_argument(f"--{name}", type=int, required=True, metavar="FD")
    parser.add_argument("--uid", type=int, default=0)
    parser.add_argument("--gid", type=int, default=0)
    options = parser.parse_args(arguments)
    give_up_privileges(options.uid, options.gid)
    server = Server(options.memory, socket.socket(fileno=options.guest), socket.socket(fileno=options.control))
    server.run(socket.socket(fileno=options.daemon))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
