"""The file under /dev/shm that backs a VM's ivshmem device: who makes it, who may open it, how long it lives.

Tried with libvirt 9.0 and QEMU 7.2, system and session instances:

* libvirt neither makes, chowns nor removes the file. QEMU opens it, and makes it when it is missing: mode 0644, owned
  by the user QEMU runs as. A daemon that is not root could then not write to it.
* A file that is there already is taken as it is, contents included. It must be readable and writable for QEMU's user
  (else the domain does not start: "Permission denied") and at least as large as the device (else: "backing store size
  does not match"); an empty one QEMU extends.
* The file and what is in it outlive a reset, a crash and the end of the domain. After each the daemon must initialise
  the region anew; nobody else does. It is gone after a reboot of the host.

So FairGV makes the file before the domain sees the device: owned by the daemon's user, group of QEMU's user, mode 0660.
All its memory is reserved at once: a page that /dev/shm cannot provide later would kill daemon and QEMU alike (SIGBUS).

An existing file must be opened without O_CREAT: with the usual `fs.protected_regular`, the kernel refuses O_CREAT on
another user's file in a sticky folder even to root. POSIX shared memory wrappers (`posix_ipc` with O_CREAT) run into
that.

Wrong when: the host has its POSIX shared memory elsewhere than in /dev/shm; libvirt and QEMU share that assumption.
"""

import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from backend_host.sizes import format_size
from backend_host.vm.errors import VmError

SHARED_MEMORY_FOLDER = Path("/dev/shm")
REGION_PREFIX = "fairgv-"
"""What the names of all regions of virtual machines begin with."""


@dataclass(frozen=True)
class RegionOwner:
    """User and group that QEMU runs as."""

    uid: int
    gid: int

    @classmethod
    def this_process(cls) -> "RegionOwner":
        """For a QEMU of the same user."""
        return cls(os.geteuid(), os.getegid())


def region_name(domain_uuid: str) -> str:
    """Name of a domain's shared memory object; a domain keeps its UUID when it is renamed."""
    return f"{REGION_PREFIX}{domain_uuid}"


def region_path(name: str) -> Path:
    """Where the object of that name lies. Raises VmError for a name that would leave the folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", name):
        raise VmError(f"{name!r} is no name for shared memory: letters, digits, dot, dash and underscore only")
    return SHARED_MEMORY_FOLDER / name


def prepare_region_file(name: str, nr_bytes: int, owner: RegionOwner | None = None) -> Path:
    """Makes sure that the region's file is there, of that size, reserved, and open to this process and to QEMU's user
    alone.

    A file of the right size keeps its contents; one of another size is replaced. Raises VmError.
    """
    owner = owner or RegionOwner.this_process()
    path = region_path(name)
    descriptor = _open_existing(path, nr_bytes, owner)
    is_new = descriptor is None
    if descriptor is None:
        check_room(nr_bytes)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, nr_bytes)
        _hand_to(descriptor, path, owner)
    except OSError as error:
        if is_new:
            path.unlink()
        if error.errno == errno.ENOSPC:
            raise VmError(_no_room(nr_bytes)) from error
        raise VmError(f"{path} cannot be prepared: {error.strerror}") from error
    except VmError:
        if is_new:
            path.unlink()
        raise
    finally:
        os.close(descriptor)
    return path


def remove_region_file(name: str) -> None:
    """Takes the file away; who still maps it keeps the memory until it unmaps it. One that is not there is no error."""
    with contextlib.suppress(FileNotFoundError):
        region_path(name).unlink()


def check_room(nr_bytes: int) -> None:
    """Raises VmError when /dev/shm has no room for another region of that size."""
    usage = os.statvfs(SHARED_MEMORY_FOLDER)
    if usage.f_bavail * usage.f_frsize < nr_bytes:
        raise VmError(_no_room(nr_bytes))


def _open_existing(path: Path, nr_bytes: int, owner: RegionOwner) -> int | None:
    """None when there is no file yet; one of another size is taken away first, as its pages may be mapped."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VmError(f"{path} is there and cannot be opened ({error.strerror}): remove it if no VM uses it") from error
    status = os.fstat(descriptor)
    is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid in (os.geteuid(), owner.uid)
    if is_ours and status.st_size == nr_bytes:
        return descriptor
    os.close(descriptor)
    if not is_ours:
        raise VmError(f"{path} belongs to somebody else (user {status.st_uid}): remove it if no VM uses it")
    path.unlink()
    return None


def _hand_to(descriptor: int, path: Path, owner: RegionOwner) -> None:
    me = os.geteuid()
    if owner.uid == me:
        os.fchmod(descriptor, 0o600)
    elif me == 0 or owner.gid in (os.getegid(), *os.getgroups()):
        if os.fstat(descriptor).st_uid == me or me == 0:
            os.fchown(descriptor, me, owner.gid)
            os.fchmod(descriptor, 0o660)
    else:
        raise VmError(
            f"QEMU runs as user {owner.uid} and could not open {path}, which belongs to user {me}: "
            f"run fairgv-host as root, as that user, or in group {owner.gid}"
        )


def _no_room(nr_bytes: int) -> str:
    usage = os.statvfs(SHARED_MEMORY_FOLDER)
    free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
    return (
        f"{SHARED_MEMORY_FOLDER} has {format_size(free)} left and the region needs {format_size(nr_bytes)}: "
        f"choose a smaller --region, or enlarge it (sudo mount -o remount,size={(total + nr_bytes) >> 20}M {SHARED_MEMORY_FOLDER})"
    )
