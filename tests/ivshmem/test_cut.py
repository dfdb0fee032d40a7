"""Memory that is cut short under a process: one that watches for that goes on, and SIGBUS elsewhere ends it as ever."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from ivshmem.region import Region

from .conftest import TABLE_HASH

REGION_BYTES = 16 << 20
PROLOGUE = f"""
    import mmap, os, threading
    from ivshmem.region import HostState, Region, lib, survive_cuts

    def made(name):
        fd = os.memfd_create(name)
        os.ftruncate(fd, {REGION_BYTES})
        region = Region(name, fd, {REGION_BYTES})
        region.format(table_hash={TABLE_HASH})
        region.set_host_state(HostState.UP)
        return region
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the handler is the whole process's."""
    source = textwrap.dedent(PROLOGUE) + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


def assert_says_so(script: str) -> None:
    done = run(script)
    assert (done.returncode, done.stdout) == (0, "so it is\n"), done.stderr


def test_what_was_cut_is_empty_and_known_and_others_are_as_they_were() -> None:
    assert_says_so("""
        survive_cuts()
        cut, whole = made("cut"), made("whole")
        assert not cut.is_cut and not whole.is_cut
        os.ftruncate(cut.fileno(), 0)
        assert cut.is_cut, "its file tells, before anybody touches it"
        cut.keep_beating(0)
        assert cut.clients() == () and cut.host_state is HostState.DOWN
        assert whole.host_state is HostState.UP and not whole.is_cut
        os.ftruncate(cut.fileno(), 16 << 20)
        assert cut.is_cut, "for good"
        cut.format(table_hash=1)
        assert os.pread(cut.fileno(), 8, 0) == bytes(8), "nothing comes into the file any more"
        cut.close()
        assert made("next").host_state is HostState.UP, "its number is another's"
        print("so it is")
    """)


def test_a_cut_in_the_middle() -> None:
    assert_says_so("""
        survive_cuts()
        region = made("region")
        os.ftruncate(region.fileno(), 1 << 20)
        region.keep_beating(0)
        assert region.host_state is HostState.UP, "what is there still is served until something is missed"
        assert region.c_region.heap[12 << 20] == 0
        assert region.host_state is HostState.DOWN, "then all of it is empty"
        print("so it is")
    """)


def test_the_thread_that_beats_outlives_a_cut() -> None:
    assert_says_so("""
        survive_cuts()
        cut, whole = made("cut"), made("whole")
        for region in (cut, whole): region.keep_beating(3600)
        os.ftruncate(cut.fileno(), 0)
        while not lib.fgv_cut_happened(cut._cut): pass
        before = whole.host_beat()
        while whole.host_beat() < before + 2: pass
        print("so it is")
    """)


def test_many_threads_at_once() -> None:
    assert_says_so("""
        survive_cuts()
        regions = [made(str(number)) for number in range(8)]
        goes_on = threading.Event()
        def touch(region):
            while not goes_on.is_set():
                region.keep_beating(0)
                region.statistics()
        threads = [threading.Thread(target=touch, args=(region,)) for region in regions for _ in range(2)]
        for thread in threads: thread.start()
        for region in regions: os.ftruncate(region.fileno(), 0)
        while not all(lib.fgv_cut_happened(region._cut) for region in regions): pass
        goes_on.set()
        for thread in threads: thread.join()
        print("so it is")
    """)


@pytest.mark.parametrize("first", ["", "survive_cuts()", "survive_cuts(); survive_cuts()"])
def test_a_bus_error_elsewhere_ends_the_process(first: str) -> None:
    done = run(f"""
        {first}
        region = made("region")
        fd = os.memfd_create("other")
        os.ftruncate(fd, 4096)
        other = mmap.mmap(fd, 4096)
        os.ftruncate(fd, 0)
        other[0]
    """)
    assert done.returncode == -signal.SIGBUS, done.stderr


def test_where_nobody_watches_a_cut_ends_the_process() -> None:
    done = run("""
        region = made("region")
        os.ftruncate(region.fileno(), 0)
        region.keep_beating(0)
    """)
    assert done.returncode == -signal.SIGBUS


def test_a_closed_region_is_not_cut() -> None:
    fd = os.memfd_create("region")
    os.ftruncate(fd, REGION_BYTES)
    region = Region("region", fd, REGION_BYTES)
    region.close()
    assert not region.is_cut
