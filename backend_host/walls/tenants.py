"""Tenants: whose programs a worker serves. A domain is one, so is each virtual machine that libvirt does not know, and so is each
user of this host under `fairgv-run`.

A tenant has a user id from the operator's range, and a folder for compiled code that this user owns; the folder's owner is where the id is
written down, so it outlives the daemon, and daemons of one host agree. Where the daemon is an ordinary user all folders are that user's, and
what keeps tenants apart is that a worker sees its own folder alone.

An id is nobody else's while a process has it, such as a worker that outlived its daemon.

Wrong when: the range has fewer ids than there are tenants. The one without a worker that was quiet longest loses its folder, and its id goes to
the next; one that begins in that moment shares the id with it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend_host.errors import FairGVError
from backend_host.walls import folders
from backend_host.walls.settings import WallSettings

_NAME = re.compile(r"[a-z]+-[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UID = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)
_LOCK = ".lock"


@dataclass(frozen=True)
class Tenant:
    """`uid` is 0 where workers stay who they are. `name` is the folder's, too."""

    name: str
    uid: int


def name_of(kind: str, name: str, uid: int) -> str:
    """Of the tenant of a vGPU: a virtual machine's own, one for all sessions of a user. A name that makes no folder is one by its digest."""
    if kind == "session":
        return f"user-{uid}"
    tenant = f"{kind}-{name}"
    return tenant if _NAME.fullmatch(tenant) else f"digest-{hashlib.sha256(name.encode()).hexdigest()}"


def name_of_space(gpu: int, name: str) -> str:
    """Of the tenant of a space on this Gpu. Another Gpu may have one of the same name, and what is its user's is ended with it."""
    return name_of("space", f"{gpu}-{name}", 0)


class Tenants:
    """All tenants of the folder that the settings name. Thread-safe, also among daemons."""

    def __init__(self, settings: WallSettings) -> None:
        """Raises FairGVError where there can be no such folder."""
        self.folder = settings.cache_path
        self._range = range(settings.first_uid, settings.last_uid + 1)
        self._is_root = os.geteuid() == 0
        try:
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            folders.sweep(self.folder)
        except OSError as error:
            raise FairGVError(
                f"cannot have compiled code of programs in {self.folder}: {error.strerror}; name another folder by cache_dir in [walls] of "
                "the configuration, or have XDG_CACHE_HOME name one of this user's"
            ) from error

    def take(self, name: str) -> Tenant:
        """The tenant of this name, made if it is new. Raises OSError."""
        assert _NAME.fullmatch(name), name
        folder = self.folder / name
        with self._locked():
            uid = self._uid_in(folder)
            if uid is None:
                uid = self._free_uid()
                self._replace(folder, uid)
            os.utime(folder)
        return Tenant(name, uid if self._is_root else 0)

    def folders(self) -> list[Path]:
        """All that tenants of this host have."""
        return [folder for folder in self.folder.iterdir() if _NAME.fullmatch(folder.name)]

    def begin_anew(self, name: str) -> None:
        """Takes away all that is in the folder of this tenant, which keeps its user. Raises OSError."""
        folder = self.folder / name
        with self._locked():
            uid = self._uid_in(folder)
            if uid is not None:
                self._replace(folder, uid)
            else:
                folders.discard(folder)

    def _uid_in(self, folder: Path) -> int | None:
        """Whose the folder is, if it is one that we made."""
        with contextlib.suppress(FileNotFoundError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and self._is_ours(status.st_uid):
                return status.st_uid
        return None

    def _is_ours(self, uid: int) -> bool:
        return uid in self._range if self._is_root else uid == os.geteuid()

    def _replace(self, folder: Path, uid: int) -> None:
        """An empty one, in place of what a tenant left there, or another range's, or whoever ran the daemon before."""
        with contextlib.suppress(FileNotFoundError):
            folders.discard(folder)
        folder.mkdir(mode=0o700)
        if self._is_root:
            os.chown(folder, uid, uid)

    def _free_uid(self) -> int:
        if not self._is_root:
            return os.geteuid()
        found = self.folders()
        taken = {folder.lstat().st_uid for folder in found}
        at_work = _uids_at_work()
        free = next((uid for uid in self._range if uid not in taken and uid not in at_work), None)
        if free is not None:
            return free
        quiet = [folder for folder in found if (uid := folder.lstat().st_uid) in self._range and uid not in at_work]
        if not quiet:
            raise OSError(errno.EUSERS, "all users of [walls] users are at work")
        longest = min(quiet, key=_last_use)
        uid = longest.lstat().st_uid
        folders.discard(longest)
        return uid

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _uids_at_work() -> set[int]:
    """Who has a process on this host, whoever started it."""
    uids = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it has ended
            uids |= {int(uid) for uid in _UID.findall(status.read_text(errors="replace"))}
    return uids


def _last_use(folder: Path) -> int:
    return folder.lstat().st_mtime_ns
