"""Who may write what of the control page: a worker that its guest took over has what `for_worker` lent it, and tries."""

import ctypes
import errno
import mmap
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from backend_host.device.apart import Apart
from backend_host.device.auditor import Auditor
from backend_host.device.control import MAX_VGPUS, NR_OBJECTS, ControlPage
from backend_host.device.pager import Pager
from backend_host.entitlement import PLAIN
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from tests.backend_host.grantees import attach

DECIDED, GRANT, LIVES, OWN = range(4)
MINE = 5
CAPACITY = 1 << 30
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
REOPEN = "for fd; do (: <> /proc/self/fd/$fd) 2>/dev/null && echo $fd; done; echo tried"


def is_writable(fd: int) -> bool:
    """By any of: writing, a mapping, a mapping for reading that is changed later."""
    try:
        os.pwrite(fd, os.pread(fd, 1, 0), 0)
    except OSError as error:
        assert error.errno == errno.EBADF
    else:
        return True
    with pytest.raises((PermissionError, ValueError)):  # the latter of an empty one
        mmap.mmap(fd, 0)
    mapped = LIBC.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    return bool(LIBC.mprotect(mapped, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0)


def test_a_worker_writes_the_grant_and_its_own_vgpu_s_account_alone(control: ControlPage) -> None:
    with control.for_worker(MINE, 0) as lent:
        assert len(lent) == NR_OBJECTS == OWN + MAX_VGPUS
        assert [number for number, fd in enumerate(lent) if is_writable(fd)] == [GRANT, OWN + MINE]


def test_nobody_takes_memory_from_under_those_that_map_it(control: ControlPage) -> None:
    with control.for_worker(MINE, 0) as lent:
        for fd in (lent[GRANT], lent[OWN + MINE]):
            nbytes = os.fstat(fd).st_size
            for other in (0, nbytes - mmap.PAGESIZE, nbytes + mmap.PAGESIZE):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs workers as somebody else")
def test_what_is_lent_for_reading_is_not_opened_again_for_writing(control: ControlPage) -> None:
    with control.for_worker(MINE, 0) as lent:
        command = ["sh", "-c", REOPEN, "sh", *map(str, lent)]
        tried = subprocess.run(
            command,
            pass_fds=lent,
            user="nobody",
            group="nogroup",
            extra_groups=[],
            capture_output=True,
            text=True,
            check=True,
        )
        assert tried.stdout == "tried\n"


def test_what_a_worker_sees_of_others_is_their_account(control: ControlPage) -> None:
    """Programs and counters of others lie behind it, in the same object, and are not mapped."""
    with control.for_worker(MINE, 0) as lent, ControlPage.open(lent, MINE):
        maps = Path("/proc/self/maps").read_text().splitlines()
    sizes = {}
    for line in maps:
        if f"fairgv-vgpu-{MINE + 1} " in line:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            sizes[line.split()[1]] = last - first
    assert sizes["r--s"] == mmap.PAGESIZE


def scribble(memory: mmap.mmap, dice: random.Random) -> None:
    """Some bytes, into the account, what stands behind it, or anywhere."""
    for _ in range(20):
        nbytes = dice.randrange(1, 64)
        at = dice.randrange(dice.choice((128, 8192, len(memory))) - nbytes)
        memory[at : at + nbytes] = dice.choice((dice.randbytes(nbytes), b"\xff" * nbytes, bytes(nbytes)))


def test_the_daemon_reads_whatever_stands_in_a_vgpu_s_own(control: ControlPage) -> None:
    """Looks raise nothing, and give a neighbour no memory that is not there."""
    control.set_capacity(CAPACITY, 2 * CAPACITY)
    keeper = GrantKeeper(control, FairQueuing())
    mine, other = control.vgpu_take(), control.vgpu_take()
    for vgpu in (mine, other):
        keeper.join(vgpu, PLAIN)
    for vgpu in (mine, mine, other, other):
        attach(control, vgpu)
    pager = Pager(control, CAPACITY, CAPACITY, 0.05)
    apart = Apart(control, lambda vgpu, why: None)
    auditor = Auditor(control, lambda vgpu, why: None, keeper.owe, apart.alarm, is_preemptive=True)
    dice = random.Random(29)
    with mmap.mmap(control.objects[OWN + mine], 0) as memory:
        for _ in range(150):
            scribble(memory, dice)
            now_ns = time.monotonic_ns()
            for look in (pager.look, apart.look, keeper.step):
                look(now_ns)
            auditor.look()
            for read in (control.workers, control.vgpus, control.wants, control.hand_overs, control.displaced):
                read()
            assert sum(each.target_bytes for each in control.rooms() if each.vgpu == other) <= CAPACITY
