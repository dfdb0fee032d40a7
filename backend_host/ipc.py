"""How the commands talk to the daemon: one JSON object a line over a UNIX socket, answered by one JSON object.

A connection that opened a vGPU keeps it: when the connection ends, however it ends, the vGPU goes. So nothing is left behind by a command
that was killed. Who may do what is the socket's file mode, and the peer's user and groups, which the kernel tells (service/roles.py).
"""

import contextlib
import fcntl
import json
import logging
import os
import pwd
import select
import shlex
import socket
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from backend_host.errors import DaemonNotRunningError, DaemonRunningError, FairGVError, RefusedError
from backend_host.state_dir import SYSTEM_DIR, default_state_dir
from ivshmem.passing import receive_with, send_with

if TYPE_CHECKING:
    from multiprocessing.synchronize import Semaphore

MAX_LINE_BYTES = 1 << 16
"""Of a request: names, sizes and a path. Whoever may only look may send one, and all threads of the daemon wait while it is read."""
MAX_CONNECTIONS = 64
"""Of one user who is not root, nor the daemon's own: a program under `fairgv-run` has one."""
MAX_AT_ONCE = 2
"""Requests of a user who is no administrator either that are answered at the same time: with each more all other threads of the daemon run
later. An administrator's may take minutes, as an `attach` does that waits for libvirt, and are not to hold up his `stop`."""
_END_S = 10.0
_RETRY_S = 0.1
_SO_PEERGROUPS = 59
"""Of <asm-generic/socket.h>; the module socket lacks it."""
_MAX_OPTION_BYTES = 1024
_TOO_LONG = "a socket's path has 107 bytes at most; choose a folder of a shorter name"
Message = dict[str, Any]

log = logging.getLogger("fairgv.ipc")


def peer_uid(connection: socket.socket) -> int:
    """User id of the process at the other end, as the kernel recorded it at connect."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def peer_groups(connection: socket.socket) -> frozenset[int]:
    """Ids of all groups of the process at the other end, its own first one too, as the kernel recorded them at connect."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, gid = struct.unpack("3i", credentials)
    try:
        more = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_OPTION_BYTES)
        return frozenset({gid, *struct.unpack(f"{len(more) // 4}I", more)})
    except OSError:  # more groups than Python's getsockopt takes: those of the user, as the host knows them
        with contextlib.suppress(KeyError):
            return frozenset({gid, *os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)})
    return frozenset({gid})


SILENT_S = 10.0
"""So long a person waits for an answer without a word."""


class Connection:
    """The commands' end. Use as a context manager; `ask` raises RefusedError with the daemon's sentence.

    A daemon of another user is not spoken to: it could name any library for a program to load.
    """

    def __init__(self, socket_path: Path, when_silent: Callable[[], None] | None = None) -> None:
        """`when_silent`: called once an answer has not come for SILENT_S; it is waited for all the same."""
        self._received: list[int] = []
        self._when_silent = when_silent
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(str(socket_path))
            owner = peer_uid(self._socket)
        except OSError as error:
            self._socket.close()
            raise DaemonNotRunningError(_why_not_connected(socket_path, error)) from None
        if owner not in (0, os.geteuid()) and os.geteuid() != 0:
            self._socket.close()
            raise DaemonNotRunningError(f"the daemon on {socket_path} belongs to user {owner}; start one of your own")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it what it opened."""
        self._socket.close()
        while self._received:
            os.close(self._received.pop())

    def abandon(self) -> None:
        """From another thread: who waits for an answer is told at once that there is none."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ask(self, operation: str, **arguments: object) -> Message:
        """One request, one answer. A descriptor that came with it is in `fd`, and the caller's."""
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):  # whoever is not admitted is told so before it asks
                self._socket.sendall(json.dumps({"op": operation, **arguments}).encode() + b"\n")
            if self._when_silent is not None and not _is_readable(self._socket, SILENT_S):
                self._when_silent()
            while not line.endswith(b"\n"):
                data, fds = receive_with(self._socket, 1 << 16, 4)
                self._received += fds
                if not data:
                    raise ConnectionResetError
                line += data
        except OSError:
            raise DaemonNotRunningError("the daemon ended while it was asked; its log says why") from None
        answer: Message = json.loads(line)
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        if self._received:
            answer["fd"] = self._received.pop()
        return answer


def say_silent(command: str) -> None:
    """To the person who waits."""
    text = "the daemon has not answered for 10 s, and is waited for: Ctrl-C ends that. See: fairgv-host doctor"
    print(f"{command}: {text}", file=sys.stderr)


def _is_readable(connection: socket.socket, within_s: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


class Session:
    """The daemon's view of one connection: who it is, and what to undo when it ends."""

    def __init__(self, uid: int, groups: frozenset[int] = frozenset()) -> None:
        self.uid = uid
        self.groups = groups
        self.is_trusted = _is_trusted(uid)
        """It waits for no other request of its user. Who admits it may say so of more."""
        self.connection: socket.socket | None = None
        """To who asks, for what is kept beyond this process."""
        self.opened: set[Hashable] = set()
        """vGPUs that are there for as long as it is."""
        self.send_fd: int | None = None
        """A descriptor to send with the next answer; it stays the daemon's."""
        self.after_answer: Callable[[], None] | None = None
        """Called once the next answer has been sent."""
        self._cleanups: list[Callable[[], None]] = []

    def at_end(self, cleanup: Callable[[], None]) -> None:
        """Runs `cleanup` once when the connection ends."""
        self._cleanups.append(cleanup)

    def end(self) -> None:
        """Runs the cleanups, last one first; one that fails keeps no other from running."""
        while self._cleanups:
            try:
                self._cleanups.pop()()
            except Exception:
                log.exception("undoing what a command did failed")


def session_of(connection: socket.socket) -> Session:
    """Whoever is at the other end, as the kernel recorded it at connect. Raises OSError."""
    session = Session(peer_uid(connection), peer_groups(connection))
    session.connection = connection
    return session


Handler = Callable[[Session, Message], Message]


class Server:
    """Listens, one thread a connection. A handler's FairGVError becomes the answer's `error`.

    A file beside the socket is locked for as long as it lives, so that of two daemons started at the same moment one is refused. `listening`:
    the socket at this path that somebody else made, and keeps. `admit` raises RefusedError for a peer that is not answered; where there is
    one, everybody reaches the socket.
    """

    def __init__(
        self,
        socket_path: Path,
        handler: Handler,
        listening: socket.socket | None = None,
        admit: Callable[[Session], None] | None = None,
    ) -> None:
        from multiprocessing import get_context  # noqa: PLC0415 - of 7 ms, and commands serve nobody

        self._path = socket_path
        self._handler = handler
        self._admit = admit
        self._is_others = listening is not None
        self._open: dict[threading.Thread, tuple[socket.socket, int]] = {}
        self._places: defaultdict[int, Semaphore] = defaultdict(partial(get_context("fork").Semaphore, MAX_AT_ONCE))
        """Of requests that are answered, by user. The system's: of threads in threading.Semaphore one wakes at each answer, mostly in vain."""
        self._guard = threading.Lock()
        self._is_stopping = False
        self._lock_fd = _lock(socket_path.with_suffix(".lock"), socket_path)
        try:
            self._socket = _listen(socket_path) if listening is None else listening
            socket_path.chmod(0o600 if admit is None else 0o666)
        except OSError as error:
            os.close(self._lock_fd)
            raise FairGVError(f"cannot listen on {socket_path}: {error.strerror or _TOO_LONG}") from error
        self._socket.setblocking(False)
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._accept, name="control-socket", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def adopt(self, connection: socket.socket, session: Session, answer: Message | None = None) -> None:
        """Serves a connection that an earlier daemon had taken. `answer`: to what was asked of that one, with the session's descriptor. OSError
        where it has ended, or has no room for an answer as nobody reads there: who does not read keeps no daemon from its start."""
        try:
            if answer is not None:
                connection.setblocking(False)
                self._send(session, connection, _line(answer))
                connection.setblocking(True)
        except OSError:
            session.end()
            raise
        finally:
            session.send_fd = None
        self._begin(connection, session)

    def stop(self) -> None:
        """Ends every connection, runs what is to be undone for each, and removes the socket."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if not self._is_others:
            self._path.unlink(missing_ok=True)
        os.eventfd_write(self._stop_fd, 1)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        with self._guard:
            peers = dict(self._open)
        for connection, _ in peers.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _END_S
        for thread in peers:
            thread.join(max(0.0, deadline - time.monotonic()))
        os.close(self._stop_fd)
        os.close(self._lock_fd)

    def _accept(self) -> None:
        poll = select.poll()
        for each in (self._socket.fileno(), self._stop_fd):
            poll.register(each, select.POLLIN)
        while not self._is_stopping:
            poll.poll()
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                log.error("cannot take a connection: %s", error)
                time.sleep(_RETRY_S)  # no descriptors or no memory left: until somebody gives some back
                continue
            session = self._admitted(connection)
            if session is None:
                connection.close()
                continue
            self._begin(connection, session)

    def _begin(self, connection: socket.socket, session: Session) -> None:
        thread = threading.Thread(target=self._serve, args=(session, connection), name="control-peer", daemon=True)
        with self._guard:
            self._open[thread] = (connection, session.uid)
        try:
            thread.start()
        except RuntimeError as error:
            log.error("cannot serve a connection: %s", error)
            self._forget(thread, connection)

    def _admitted(self, connection: socket.socket) -> Session | None:
        """Whoever is at the other end, or None for one that is answered with a refusal and no more: no thread is for whoever comes."""
        try:
            session = session_of(connection)
            self._check_number(session.uid)
            if self._admit is not None:
                self._admit(session)
            return session
        except FairGVError as error:
            with contextlib.suppress(OSError):
                connection.setblocking(False)
                connection.sendall(_line({"error": str(error)}))
        except OSError:
            pass  # it went away
        except Exception:
            log.exception("who is at the other end of a connection cannot be told")
        return None

    def _check_number(self, uid: int) -> None:
        """RefusedError for a user with too many connections: each takes a thread and a descriptor of the daemon."""
        if _is_trusted(uid):
            return
        with self._guard:
            nr = sum(user == uid for _, user in self._open.values())
        if nr >= MAX_CONNECTIONS:
            raise RefusedError(
                f"user {uid} has {nr} connections to the daemon, as many as a user may; end some programs first"
            )

    def _forget(self, thread: threading.Thread, connection: socket.socket) -> None:
        with self._guard:
            self._open.pop(thread, None)
        connection.close()

    def _serve(self, session: Session, connection: socket.socket) -> None:
        try:
            try:
                with connection.makefile("rb") as reader:
                    while (line := reader.readline(MAX_LINE_BYTES)).endswith(b"\n"):
                        self._answer(session, connection, line)
            except OSError:
                pass  # it went away
            finally:
                session.end()
        finally:
            self._forget(threading.current_thread(), connection)

    def _answer(self, session: Session, connection: socket.socket, line: bytes) -> None:
        try:
            with self._place_of(session):
                answer = _line(self._handle(session, line))
            self._send(session, connection, answer)  # who does not read it keeps nobody waiting
        finally:
            session.send_fd = None
            after_answer, session.after_answer = session.after_answer, None
            if after_answer is not None:
                after_answer()

    def _place_of(self, session: Session) -> contextlib.AbstractContextManager[object]:
        """Around an answer to this user; waits for a place."""
        if session.is_trusted:
            return contextlib.nullcontext()
        with self._guard:
            return self._places[session.uid]

    @staticmethod
    def _send(session: Session, connection: socket.socket, answer: bytes) -> None:
        fds = [session.send_fd] if session.send_fd is not None else []
        sent = send_with(connection, answer, fds) if fds else 0
        connection.sendall(answer[sent:])

    def _handle(self, session: Session, line: bytes) -> Message:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "a request is one line of JSON"}
        if not isinstance(request, dict) or not isinstance(request.get("op"), str):
            return {"error": "a request is a JSON object with the key op"}
        try:
            return self._handler(session, request)
        except FairGVError as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("the request %s failed", request["op"])
            return {"error": f"the daemon could not do it ({type(error).__name__}: {error}); its log says more"}


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _lock(path: Path, socket_path: Path) -> int:
    """Raises DaemonRunningError when another daemon holds it. The file stays: to remove it would be to let two hold one each."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FairGVError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise DaemonRunningError(
            f"a daemon already listens on {socket_path}; stop it with: {to_type(socket_path, 'stop')}"
        ) from None
    return fd


def _listen(socket_path: Path) -> socket.socket:
    """In place of the socket that a daemon which died left behind."""
    socket_path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    old_mask = os.umask(0o177)
    try:
        listening.bind(str(socket_path))
        listening.listen(64)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(old_mask)
    return listening


def _why_not_connected(socket_path: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"no permission for {socket_path}; the daemon runs as another user"
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return f"no daemon listens on {socket_path}; start one with: {to_type(socket_path, 'start')}"
    return f"cannot reach a daemon on {socket_path}: {error.strerror or _TOO_LONG}"


def to_type(socket_path: Path, *words: str) -> str:
    """The command line that means the daemon which listens there."""
    is_usual = socket_path.parent in (default_state_dir(), SYSTEM_DIR)
    return shlex.join(["fairgv-host", *([] if is_usual else ["--state-dir", str(socket_path.parent)]), *words])
