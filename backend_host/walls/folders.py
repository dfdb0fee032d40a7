"""Folders that tenants own, as the daemon, which may be root, looks at them and does away with them: no link in them is followed.

Wrong when: `rm` is missing, or killed. What it leaves goes with the next daemon's `sweep`.
"""

import contextlib
import errno
import os
import subprocess
import threading
from pathlib import Path

_DEPTH = 8
_NR_FILES = 20_000
"""Of compiled code, with room: caches of device libraries are two folders deep and have some thousand files."""
_GONE = ".gone-"
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What this process, or the host, has no more of, whatever a tenant put into its folder."""


def is_within(folder: Path, most_bytes: int) -> bool:
    """
    Whether what is in it takes no more room than that; False, too, where it is deeper or has more files than compiled code. Raises OSError:
    it could not be looked at, for want of descriptors or memory.
    """
    try:
        return (
            _room(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), most_bytes, _DEPTH, [_NR_FILES]) >= 0
        )
    except OSError as error:  # a hostile tenant puts something else in a folder's place
        if error.errno in _OURS:
            raise
        return False


def _room(fd: int, left_bytes: int, depth: int, nr_left: list[int]) -> int:
    """What is left of the bytes, negative when it is too little. Closes the descriptor."""
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                nr_left[0] -= 1
                with contextlib.suppress(FileNotFoundError):  # a compiler removed what it made
                    left_bytes -= entry.stat(follow_symlinks=False).st_blocks * 512
                    if left_bytes < 0 or nr_left[0] < 0 or depth == 0:
                        return -1
                    if entry.is_dir(follow_symlinks=False):
                        below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                        left_bytes = _room(below, left_bytes, depth - 1, nr_left)
    finally:
        os.close(fd)
    return left_bytes


def discard(path: Path) -> None:
    """Takes it away at once, and removes it in a thread: a tenant may have made any number of files. Raises OSError."""
    gone = path.with_name(f"{_GONE}{os.urandom(8).hex()}")
    path.rename(gone)
    _begin_to_remove(gone)


def sweep(folder: Path) -> None:
    """Removes what a daemon which ended had not removed yet."""
    for gone in folder.glob(f"{_GONE}*"):
        _begin_to_remove(gone)


def _begin_to_remove(path: Path) -> None:
    with contextlib.suppress(RuntimeError):  # no more threads: the next daemon does it
        threading.Thread(target=_remove, args=(path,), name="remove", daemon=True).start()


def _remove(path: Path) -> None:
    """Python's own way recurses, and keeps a descriptor for each level, of which a tenant may make any number."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", path], check=False, stderr=subprocess.DEVNULL)
