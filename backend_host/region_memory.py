"""The memory of a region, as a descriptor: made for a command of this host, or opened, where a virtual machine has it too.

A virtual machine's memory may still be served by workers of a daemon that died. They are ended first.
"""

import fcntl
import os
import time

from backend_host.errors import RefusedError
from ivshmem.bells import Bells
from ivshmem.region import REGION_MIN_BYTES, HostState, Region, RegionStatus

TAKE_OVER_S, _TAKE_OVER_LOOK_S = 30.0, 0.05
_BEAT_WAIT_S = 1.0
"""A daemon that lives beats four times in it."""
Identity = tuple[int, int]
"""Device and inode number of the file that is a region."""


def identity(memory: int) -> Identity:
    """Of the file with this descriptor. Raises OSError."""
    status = os.fstat(memory)
    return status.st_dev, status.st_ino


def sealed_memory(name: str, region_bytes: int) -> int:
    """A descriptor of new shared memory that nobody can shrink: a program that has it could otherwise end the daemon with SIGBUS."""
    try:
        fd = os.memfd_create(f"fairgv-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise RefusedError(f"no region for {name}: {error.strerror}") from error
    try:
        os.ftruncate(fd, region_bytes)
        os.posix_fallocate(fd, 0, _front_bytes(region_bytes))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise RefusedError(f"no region of {region_bytes >> 20} MiB for {name}: {error.strerror}") from error
    return fd


def _front_bytes(region_bytes: int) -> int:
    """At least what lies before the heap: the daemon touches it, and where no memory is left it must learn so from an error."""
    return min(region_bytes, (1 << 20) + region_bytes // 1024)


def open_shared_memory(shm_name: str, table_hash: int, bells: Bells | None = None) -> int:
    """A descriptor of a domain's region: of a file that QEMU opens too, or of the memory that its ivshmem server hands out, opened anew: the
    server's descriptor stays open when we are gone, and a lock with it."""
    try:
        if bells is None:
            memory = os.open(f"/dev/shm/{shm_name}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        else:
            memory = os.open(f"/proc/self/fd/{bells.memory_fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(f"cannot open the region /dev/shm/{shm_name}: {error.strerror}") from error
    try:
        await_sole_use(f"/dev/shm/{shm_name}", memory, table_hash)
    except BaseException:
        os.close(memory)
        raise
    return memory


def await_sole_use(path: str, memory: int, table_hash: int, limit_s: float = TAKE_OVER_S) -> None:
    """Ends what workers of a daemon that died still serve in this region, and waits for them: they would write into it after it was laid out.

    The lock belongs to the open file, which a worker's mapping keeps open: it is free once the last worker of the last daemon has ended.
    RefusedError when that is not so within the limit, or another daemon lives.
    """
    deadline = time.monotonic() + limit_s
    is_told = is_checked = False
    while True:
        try:
            fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RefusedError(
                    f"the region {path} is still served by a worker of an earlier daemon: end the programs in that "
                    "virtual machine, or shut it down, and start fairgv-host again"
                ) from None
        if not is_checked:
            _check_nobody_beats(path, memory, table_hash)
            is_checked = True
        if not is_told:
            tell_of_the_end(path, memory, table_hash)
            is_told = True
        time.sleep(_TAKE_OVER_LOOK_S)


def _check_nobody_beats(path: str, memory: int, table_hash: int) -> None:
    """Raises RefusedError when another daemon, that lives, serves this region."""
    with Region(path, os.dup(memory), os.fstat(memory).st_size) as region:
        if region.check(table_hash=table_hash) is not RegionStatus.OK:
            return
        before, deadline = region.host_beat(), time.monotonic() + _BEAT_WAIT_S
        while time.monotonic() < deadline:
            if region.host_beat() != before:
                raise RefusedError(
                    f"the region {path} is served by another fairgv-host of this machine: stop that one first"
                )
            time.sleep(_TAKE_OVER_LOOK_S)


def tell_of_the_end(path: str, memory: int, table_hash: int) -> None:
    """Every client of the region is dead from now on: guests learn it, and workers end. Nothing where it is no region."""
    if (region_bytes := os.fstat(memory).st_size) < REGION_MIN_BYTES:
        return
    with Region(path, os.dup(memory), region_bytes) as region:
        if region.check(table_hash=table_hash) is RegionStatus.OK:
            region.set_host_state(HostState.DOWN)
            for client in region.clients():
                region.declare_dead(client.index)
