"""A memory file that somebody else made for a virtual machine, opened as its region: what it must be, and who could harm whom with it.

QEMU's memory-backend-file makes it: mode 0644, its own user's, and everybody on the host could read what the guest computes. So others' rights
are taken away here. What lies in it was written by strangers, and is laid out anew before anybody reads it.

Whoever owns the file may put it away, cut it short or map it elsewhere at any time. It is on tmpfs, which gives no seals to files, or on
hugetlbfs. That it can be cut is told in docs/security.md; `ivshmem.region.survive_cuts` is why the daemon outlives it.

Wrong when: QEMU was given a size that is less than the file's. Then the guest finds a region that is larger than its device, and refuses it.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

from backend_host.config import MAX_REGION_BYTES, MIN_REGION_BYTES
from backend_host.region_memory import Identity
from backend_host.sizes import format_size
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import REGION_PREFIX, SHARED_MEMORY_FOLDER

_OTHERS = 0o007


def identity_of(path: Path) -> Identity | None:
    """Of the file that is there now, None: there is none, or nobody may look."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_memory_file(path: Path) -> int:
    """A descriptor of the file, which is the caller's. Raises VmError for one that cannot be a region, or that is not safe to use."""
    _check_place(path)
    try:
        # Not blocking, as what is there may be a pipe.
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise VmError(_why_not_opened(path, error)) from error
    try:
        _check(path, fd)
        _close_to_others(path, fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_place(path: Path) -> None:
    if not path.is_absolute() or ".." in path.parts:
        raise VmError(f"{path} is no path from the root: give one, as mem-path of QEMU's memory-backend-file has it")
    if path.parent == SHARED_MEMORY_FOLDER and path.name.startswith(REGION_PREFIX):
        raise VmError(
            f"{path} has a name of FairGV's own regions: attach its domain by name, or let QEMU's mem-path be another"
        )
    try:
        mode = path.parent.stat().st_mode
    except OSError as error:
        raise VmError(f"{path.parent} cannot be looked at ({error.strerror})") from error
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise VmError(f"others may put any file in the place of {path}: chmod go-w {path.parent}, or put it elsewhere")


def _why_not_opened(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"there is no file {path}: QEMU's memory-backend-file makes it, so start the virtual machine first"
    if error.errno == errno.ELOOP:
        return f"{path} is a symbolic link: name the file itself"
    return f"{path} cannot be opened ({error.strerror})"


def _check(path: Path, fd: int) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or not _is_memory(fd):
        raise VmError(f"{path} is no memory: a region is a file on tmpfs, as /dev/shm is, or on hugetlbfs")
    if status.st_nlink != 1:
        raise VmError(f"{path} has other names, or none any more, so it may be another's: a region has one")
    if status.st_mode & stat.S_IWOTH:
        raise VmError(f"everybody may write to {path}, and so to the memory of that guest: chmod o-w {path}")
    size = status.st_size
    if not MIN_REGION_BYTES <= size <= MAX_REGION_BYTES or size & (size - 1):
        raise VmError(
            f"{path} has {size} bytes, and a region is a power of two from {format_size(MIN_REGION_BYTES)} to {format_size(MAX_REGION_BYTES)}: "
            "give the memory-backend-file such a size, 256M say"
        )


def _is_memory(fd: int) -> bool:
    """Linux knows seals of such files only."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


def _close_to_others(path: Path, fd: int) -> None:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & _OTHERS == 0:
        return
    try:
        os.fchmod(fd, mode & ~_OTHERS)
    except OSError as error:
        raise VmError(
            f"everybody may read {path}, and it is not ours to change that ({error.strerror}): chmod o-rwx {path}, or run fairgv-host as root"
        ) from error
