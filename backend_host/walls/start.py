"""Starts a process behind walls: what `Popen` is for others."""

import contextlib
import os
import resource
import select
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend_host.walls.root import Root
from backend_host.walls.settings import WallSettings
from backend_host.worker._worker import ffi, lib

_ERROR_BYTES = 512
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MOST_DESCRIPTORS = 4096
"""Of a process, and on their way in all sockets of a tenant. Without it the kernel's table for all processes is a worker's to fill."""
_RLIMIT_MSGQUEUE = 12
"""Of <sys/resource.h>; the module resource lacks it."""

UNKNOWN_STATUS = 256
"""No process ends with it."""
_WAIT_S = 60.0

NAMESPACES = {
    "mount": _CLONE_NEWNS,
    "pid": _CLONE_NEWPID,
    "ipc": _CLONE_NEWIPC,
    "net": _CLONE_NEWNET | _CLONE_NEWUTS,
}
"""The walls that are namespaces. The host's name goes with the network."""


class Child:
    """A process that we started, until `wait` has told how it ended."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self.pidfd = pid, pidfd
        self.returncode: int | None = None

    def wait(self) -> int:
        """How it ended: an exit status, or the negative number of a signal."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def has_ended(self, timeout_s: float = 0) -> bool:
        """Whether `wait` would return at once, or does so within this time. Until `close`."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return self.returncode is not None or bool(poll.poll(timeout_s * 1000))

    def kill(self) -> None:
        """Ends it; nothing when it has ended."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Its descriptor, once it was waited for."""
        os.close(self.pidfd)
        self.pidfd = -1


class AdoptedChild(Child):
    """A process that an earlier daemon started. How it ends the kernel tells nobody but its parent."""

    def wait(self) -> int:
        """UNKNOWN_STATUS, once it has ended."""
        while self.returncode is None:
            if self.has_ended(_WAIT_S):
                self.returncode = UNKNOWN_STATUS
        return self.returncode


@dataclass(frozen=True)
class Walls:
    """The walls that a worker has from its start: their names, those that are to be had, and what is behind them."""

    names: frozenset[str]
    settings: WallSettings
    device_memory_bytes: int = 0
    """Of softgpu, whose memory is files in memory; 0: files of any size."""

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        root: Root,
        *,
        folder: str = "/",
        kept_fd: int = -1,
        error_fd: int = -1,
    ) -> Child:
        """Runs `command`, an absolute path and its arguments, with `kept_fd` open at its number. Raises OSError with the wall that failed."""
        kept: list[Any] = []

        def text(value: str) -> Any:
            kept.append(ffi.new("char[]", os.fsencode(value)))
            return kept[-1]

        def texts(values: Iterable[str]) -> Any:
            kept.append(ffi.new("char *[]", [*map(text, values), ffi.NULL]))
            return kept[-1]

        entries = [
            (entry.kind, text(entry.path), ffi.NULL if entry.other is None else text(entry.other))
            for entry in (root.entries() if "mount" in self.names else ())
        ]
        limits = self._limits()
        plan = ffi.new(
            "struct fgw_walls_plan *",
            {
                "command": texts(command),
                "environment": texts(f"{name}={value}" for name, value in environment.items()),
                "folder": text(folder),
                "kept_fd": kept_fd,
                "error_fd": error_fd,
                "namespaces": self._namespaces(),
                "has_root": "mount" in self.names,
                "has_landlock": "landlock" in self.names,
                "nr_entries": len(entries),
                "entries": (own := ffi.new("struct fgw_walls_entry[]", entries)),
                "nr_limits": len(limits),
                "limits": (bounds := ffi.new("struct fgw_walls_limit[]", limits)),
            },
        )
        kept += [own, bounds]
        sys.stderr.flush()
        pidfd, error = ffi.new("int *"), ffi.new(f"char[{_ERROR_BYTES}]")
        pid = lib.fgw_walls_start(plan, pidfd, error, _ERROR_BYTES)
        if pid < 0:
            raise OSError(f"a process behind walls: {ffi.string(error).decode(errors='replace')}")
        return Child(pid, pidfd[0])

    def _namespaces(self) -> int:
        flags = 0
        for name, flag in NAMESPACES.items():
            flags |= flag if name in self.names else 0
        is_ordinary = os.geteuid() != 0
        return flags | (_CLONE_NEWUSER if is_ordinary and "user" in self.names else 0)

    def _limits(self) -> list[tuple[int, int]]:
        limits = [
            # One byte is too few for a file; of no byte a program that the kernel pipes core files to is started, as root.
            (resource.RLIMIT_CORE, 1),
            (_RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS),
            (resource.RLIMIT_NPROC, self.settings.processes),
        ]
        if self.device_memory_bytes:
            limits.append((resource.RLIMIT_FSIZE, self.device_memory_bytes))
        return limits
