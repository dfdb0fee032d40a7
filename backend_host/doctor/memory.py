"""Memory of the host that FairGV needs, and what this user may do with it: room for regions, locked memory, userfaultfd."""

import ctypes
import fcntl
import os
import resource
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.sizes import format_size
from backend_host.vm.region_file import SHARED_MEMORY_FOLDER

_MAX_MOST = 99
_CAP_IPC_LOCK = 14
_SYS_USERFAULTFD = 323
_NEW_USERFAULTFD = 0xAA00
_UFFDIO_API, _UFFD_API = 0xC018AA3F, 0xAA
_NEEDED_FEATURES = 1 << 0 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12
"""As frontend_guest/managed/trap.c asks for: write protection, missing pages and minor faults of shared memory, the thread's id."""


@dataclass(frozen=True)
class ShmReading:
    """Of /dev/shm, in bytes. `reserved` are regions that are there, `to_come` those of domains that are defined and have no memory yet."""

    total_bytes: int
    free_bytes: int
    reserved: Mapping[str, int]
    to_come: Mapping[str, int]
    region_bytes: int
    """What a region has when none is given."""
    trouble: str = ""


def read_shm(regions: Mapping[str, int], region_bytes: int, folder: Path = SHARED_MEMORY_FOLDER) -> ShmReading:
    """`regions` of all domains, by the name of their file. Other files are free space that is gone."""
    try:
        usage = os.statvfs(folder)
        reserved = {name: (folder / name).stat().st_size for name in regions if (folder / name).exists()}
    except OSError as error:
        return ShmReading(0, 0, {}, {}, region_bytes, f"{folder}: {error.strerror}")
    to_come = {name: nr_bytes for name, nr_bytes in regions.items() if name not in reserved}
    total_bytes, free_bytes = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
    return ShmReading(total_bytes, free_bytes, reserved, to_come, region_bytes)


def shm(reading: ShmReading) -> Verdict:
    """A domain does not start when its region has no room."""
    if reading.trouble:
        return failed("/dev/shm", reading.trouble, "mount -t tmpfs tmpfs /dev/shm")
    needed_bytes = sum(reading.to_come.values())
    text = (
        f"{format_size(reading.free_bytes)} of {format_size(reading.total_bytes)} free; regions have "
        f"{format_size(sum(reading.reserved.values()))}"
    )
    if needed_bytes:
        text += f", domains that are off need {format_size(needed_bytes)}"
    lacking_bytes = needed_bytes - reading.free_bytes
    if lacking_bytes > 0:
        return failed("/dev/shm", text, _enlarge(reading, lacking_bytes))
    nr_more = (reading.free_bytes - needed_bytes) // reading.region_bytes
    size = format_size(reading.region_bytes)
    if nr_more < 1:
        return warned(
            "/dev/shm", f"{text}; no room for another region of {size}", _enlarge(reading, reading.region_bytes)
        )
    return passed(
        "/dev/shm", f"{text}; room for {min(nr_more, _MAX_MOST)}{'+' if nr_more > _MAX_MOST else ''} of {size}"
    )


def _enlarge(reading: ShmReading, more_bytes: int) -> str:
    mib = (reading.total_bytes + more_bytes >> 20) + 1
    return f"mount -o remount,size={mib}M /dev/shm, and the same in /etc/fstab; or smaller regions"


@dataclass(frozen=True)
class MemlockReading:
    """`limit_bytes` of this process; -1: none."""

    limit_bytes: int
    may_exceed: bool
    libvirt_uri: str
    region_bytes: int


def read_memlock(libvirt_uri: str, region_bytes: int) -> MemlockReading:
    """Of this process, which is what a daemon that it starts gets."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    status = Path("/proc/self/status").read_text()
    capabilities = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return MemlockReading(limit_bytes, bool(capabilities >> _CAP_IPC_LOCK & 1), libvirt_uri, region_bytes)


def memlock(reading: MemlockReading) -> Verdict:
    """FairGV locks nothing. QEMU does for some domains, and then the region counts; the system's libvirt sets the limit of each."""
    if reading.limit_bytes == resource.RLIM_INFINITY or reading.may_exceed:
        return passed("memlock", "this user may lock any amount of memory")
    text = f"this user may lock {format_size(reading.limit_bytes)}"
    if not reading.libvirt_uri.partition("?")[0].endswith("/session"):
        return passed("memlock", f"{text}; FairGV locks none, and libvirt gives QEMU what it needs")
    if reading.limit_bytes >= reading.region_bytes:
        return passed("memlock", text)
    text += f", less than a region of {format_size(reading.region_bytes)}, which counts where a session's domain locks its memory"
    return warned(
        "memlock", text, "memlock in /etc/security/limits.conf, for domains with <locked/> or a device passed through"
    )


@dataclass(frozen=True)
class UserfaultfdReading:
    """Whether this user may have one that notices system calls, and the features that the kernel has of it."""

    is_allowed: bool
    features: int = 0


def read_userfaultfd() -> UserfaultfdReading:
    """As the guest library does: by the system call, else by the device."""
    fd = ctypes.CDLL(None, use_errno=True).syscall(_SYS_USERFAULTFD, os.O_CLOEXEC)
    try:
        if fd < 0:
            device = os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC)
            try:
                fd = fcntl.ioctl(device, _NEW_USERFAULTFD, os.O_CLOEXEC)
            finally:
                os.close(device)
        try:
            answer = fcntl.ioctl(fd, _UFFDIO_API, struct.pack("3Q", _UFFD_API, 0, 0))
        finally:
            os.close(fd)
    except OSError:
        return UserfaultfdReading(False)
    return UserfaultfdReading(True, struct.unpack("3Q", answer)[1])


def userfaultfd(reading: UserfaultfdReading) -> Verdict:
    """For programs of this user under fairgv-run; in a guest `fairgv-guest check` tells."""
    lost = "system calls of programs under fairgv-run fail for managed memory that the device has"
    if not reading.is_allowed:
        remedy = "a group for /dev/userfaultfd with mode 660, or sysctl vm.unprivileged_userfaultfd=1; docs/managed.md"
        return warned("userfaultfd", f"this user may not have it: {lost}", remedy)
    if reading.features & _NEEDED_FEATURES != _NEEDED_FEATURES:
        return warned("userfaultfd", f"the kernel's is too old: {lost}", "Linux 5.19 or newer")
    return passed("userfaultfd", "notices touches of managed memory by system calls")
