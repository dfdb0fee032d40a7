"""Folders that tenants own, as the daemon, which may be root, looks at them, removes files of them, and does away with them: no link in them is
followed.

Wrong when: `rm` is missing, or killed. What it leaves goes with the next `sweep`.
"""

import contextlib
import errno
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DEPTH = 8
NR_FILES = 20_000
"""Of compiled code, with room: caches of device libraries are two folders deep and have some thousand files."""
_NR_ENTRIES = 2 * NR_FILES
"""Files and folders that are looked at: with more it is no compiled code."""
_GONE = ".gone-"
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What this process, or the host, has no more of, whatever a tenant put into its folder."""
_at_it: set[Path] = set()
"""What is being removed."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True)
class File:
    """Anything but a folder: its names from the tenant's folder down, the room it takes, when it was used last. Its owner may have written any
    time there."""

    path: tuple[str, ...]
    nr_bytes: int
    used_ns: int


@dataclass(frozen=True)
class Contents:
    """Of a tenant's folder; `nr_bytes` with the folders in it."""

    files: Sequence[File]
    nr_bytes: int


class NoCodeError(Exception):
    """What lies there is no compiled code: it is deeper, or much more, or no folder at all."""


def contents(folder: Path) -> Contents:
    """What is in it. Raises NoCodeError, and OSError where it could not be looked at, for want of descriptors or memory."""
    files: list[File] = []
    try:
        nr_bytes = _look(os.open(folder, _FOLDER), (), files, [_NR_ENTRIES])
    except FileNotFoundError:  # another daemon took it away
        return Contents((), 0)
    except OSError as error:  # a hostile tenant puts something else in a folder's place
        if error.errno in _OURS:
            raise
        raise NoCodeError from error
    return Contents(files, nr_bytes)


def _look(fd: int, above: tuple[str, ...], files: list[File], nr_left: list[int]) -> int:
    """The bytes of all that is in it. Closes the descriptor."""
    nr_bytes = 0
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                nr_left[0] -= 1
                if nr_left[0] < 0 or len(above) == _DEPTH:
                    raise NoCodeError
                with contextlib.suppress(FileNotFoundError):  # a compiler removed what it made
                    status = entry.stat(follow_symlinks=False)
                    nr_bytes += status.st_blocks * 512
                    path = (*above, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        nr_bytes += _look(os.open(entry.name, _FOLDER, dir_fd=fd), path, files, nr_left)
                    else:
                        used_ns = max(status.st_atime_ns, status.st_mtime_ns)
                        files.append(File(path, status.st_blocks * 512, used_ns))
    finally:
        os.close(fd)
    return nr_bytes


def remove(folder: Path, file: File) -> bool:
    """Whether this did it: its owner may have been first, or put something else there."""
    try:
        fd = os.open(folder, _FOLDER)
        try:
            for name in file.path[:-1]:
                below = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
            os.unlink(file.path[-1], dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


def discard(path: Path) -> None:
    """Takes it away at once, and removes it in a thread: a tenant may have made any number of files. Raises OSError."""
    gone = path.with_name(f"{_GONE}{os.urandom(8).hex()}")
    path.rename(gone)
    _begin_to_remove(gone)


def sweep(folder: Path) -> None:
    """Removes what was not removed yet: a daemon ended, or a tenant put more into it meanwhile."""
    for gone in folder.glob(f"{_GONE}*"):
        _begin_to_remove(gone)


def _begin_to_remove(path: Path) -> None:
    if path in _at_it:
        return
    _at_it.add(path)
    try:
        threading.Thread(target=_remove, args=(path,), name="remove", daemon=True).start()
    except RuntimeError:  # no more threads
        _at_it.discard(path)


def _remove(path: Path) -> None:
    """Python's own way recurses, and keeps a descriptor for each level, of which a tenant may make any number."""
    try:
        subprocess.run(["rm", "-rf", "--one-file-system", "--", path], check=False, stderr=subprocess.DEVNULL)
    finally:
        _at_it.discard(path)
