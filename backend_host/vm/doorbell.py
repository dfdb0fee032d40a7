"""The ivshmem servers of domains whose device is `ivshmem-doorbell`: started, found again by the next daemon, ended.

There is one for each domain (`ivshmem.server`), with the region's memory and the eventfds. Memory is a sealed memory file here, no file under
/dev/shm: QEMU gets a descriptor and can shrink nothing. A server outlives the daemon that started it for as long as a QEMU is connected, and
the next daemon takes memory and bells over from it; so under systemd the daemon's unit needs `KillMode=process`. libvirt starts no domain
whose server does not listen: it must run before them.

A server that is killed under a running guest costs nothing as long as the daemon lives, which has all that it had; the next start of the domain
finds a new one.

Wrong when: a server is killed and then the daemon ends. Nobody but QEMU has that memory any more, and the guest's programs find no daemon until
the domain is started anew.
"""

import contextlib
import logging
import os
import pwd
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from backend_host.errors import ConfigError, RefusedError
from backend_host.region_memory import sealed_memory
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import RegionOwner, region_path
from ivshmem.bells import Bells, BellsError

_MAX_PATH_BYTES = 107
_BACKLOG = 4
_END_S = 5.0

log = logging.getLogger("fairgv.doorbells")


@dataclass(eq=False)
class _Server:
    bells: Bells
    process: subprocess.Popen[bytes] | None
    """None when an earlier daemon started it."""


class Doorbells:
    """The servers of one daemon's domains, by the name of the domain's region. Not thread-safe."""

    def __init__(self, folder: Path, identity: tuple[int, int]) -> None:
        """`identity`: user and group that servers run as when the daemon is root."""
        self._folder = folder
        self._identity = identity
        self._servers: dict[str, _Server] = {}
        self._left: list[subprocess.Popen[bytes]] = []

    def socket_path(self, name: str) -> Path:
        """Where QEMU finds the server of this region."""
        region_path(name)  # for the check of the name
        path = self._folder / f"{name}.sock"
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise VmError(f"the path {path} is too long for a socket: choose a shorter --state-dir")
        return path

    def start(self, name: str, region_bytes: int, owner: RegionOwner) -> None:
        """Makes sure that the server listens where `socket_path` says; one that an earlier daemon left is taken over. Raises VmError."""
        server = self._servers.get(name)
        if server is not None and server.bells.region_bytes == region_bytes and self.answers(name):
            return
        if server is not None:
            self.end(name)
        try:
            bells = Bells.connect(self._control_path(name))
            if bells is not None and bells.region_bytes != region_bytes:
                bells.end()
                bells = None
            self._servers[name] = self._launch(name, region_bytes, owner) if bells is None else _Server(bells, None)
        except (BellsError, RefusedError, OSError) as error:
            raise VmError(f"no ivshmem server for {name}: {error}") from error

    def inherit(self, name: str, memory: int) -> Bells:
        """Takes over the server of an earlier daemon, whose region is the memory behind this descriptor. Raises VmError when it is gone."""
        try:
            bells = Bells.connect(self._control_path(name))
        except BellsError as error:
            raise VmError(str(error)) from error
        if bells is None:
            raise VmError("its ivshmem server has ended")
        if not os.path.sameopenfile(bells.memory_fd, memory):
            bells.close()
            raise VmError("its ivshmem server has another region")
        self._servers[name] = _Server(bells, None)
        return bells

    def find(self, name: str) -> Bells | None:
        """The bells of a region that has a server."""
        server = self._servers.get(name)
        return None if server is None else server.bells

    def has_guest(self, name: str) -> bool:
        """Whether QEMU is connected to this server: else a guest that runs has the memory of an earlier one."""
        try:
            return self._servers[name].bells.has_guest()
        except (KeyError, BellsError):
            return False

    def answers(self, name: str) -> bool:
        """Whether the server is there for the domain's next start."""
        try:
            self._servers[name].bells.has_guest()
        except (KeyError, BellsError):
            return False
        return True

    def end(self, name: str) -> None:
        """A guest that runs keeps the memory and its bells. One that is not there is no error."""
        server = self._servers.pop(name, None)
        if server is None:
            return
        server.bells.end()
        if server.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(_END_S)
        for path in (self.socket_path(name), self._control_path(name)):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """For a daemon that stops: servers with a guest go on, the others end by themselves."""
        for server in self._servers.values():
            server.bells.close()
        self._left = [server.process for server in self._servers.values() if server.process is not None]
        self._servers.clear()

    def _control_path(self, name: str) -> Path:
        return self._folder / f"{name}.control"

    def _launch(self, name: str, region_bytes: int, owner: RegionOwner) -> _Server:
        self._folder.mkdir(mode=0o711, exist_ok=True)
        with contextlib.ExitStack() as ends:
            guest = ends.enter_context(_listener(self.socket_path(name), socket.SOCK_STREAM))
            control = ends.enter_context(_listener(self._control_path(name), socket.SOCK_SEQPACKET))
            if owner.uid != os.geteuid():
                os.chown(self.socket_path(name), owner.uid, owner.gid, follow_symlinks=False)
            memory = sealed_memory(name, region_bytes)
            ends.callback(os.close, memory)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ends.callback(theirs.close)
            descriptors = {
                "memory": memory,
                "guest": guest.fileno(),
                "control": control.fileno(),
                "daemon": theirs.fileno(),
            }
            process = self._start_process(descriptors)
        try:
            bells = Bells(ours)
        except BaseException:
            process.kill()
            process.wait()
            raise
        log.info("%s: ivshmem server %d started", name, process.pid)
        return _Server(bells, process)

    def _start_process(self, descriptors: dict[str, int]) -> subprocess.Popen[bytes]:
        uid, gid = self._identity
        options = [word for option, fd in descriptors.items() for word in (f"--{option}", str(fd))]
        return subprocess.Popen(
            [sys.executable, "-m", "ivshmem.server", *options, "--uid", str(uid), "--gid", str(gid)],
            pass_fds=list(descriptors.values()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=PACKAGE_ROOT,
            start_new_session=True,  # what ends the daemon is not for it
        )


def server_identity(user: str) -> tuple[int, int]:
    """User and group id for servers: `user` when we are root, else our own. ConfigError when there is no such user."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"server_user: there is no user {user!r} on this host") from None
    return entry.pw_uid, entry.pw_gid


def _listener(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Listens at `path`, for its owner alone; what a server that died left there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the file gets the socket's own mode
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
