"""Which process has a memory file, and when it ends or stands still."""

import os
import select
import signal
import subprocess
import sys

from backend_host.vm.memory_file import identity_of
from backend_host.vm.process import find_machines
from tests.backend_host.played_machine import machine, memory_file


def found(*paths: object) -> dict[object, int]:
    files = {path: identity_of(path) for path in paths}  # type: ignore[arg-type]
    machines = find_machines(files)  # type: ignore[arg-type]
    for each in machines.values():
        each.close()
    return {path: each.pid for path, each in machines.items()}


def test_who_names_a_file_and_has_it_mapped() -> None:
    with memory_file() as one, memory_file(",with comma") as other, memory_file() as nobodys:
        assert found(one, other, nobodys) == {}
        with machine(one) as first, machine(other) as second:
            assert found(one, other, nobodys) == {one: first.pid, other: second.pid}
        assert found(one, other, nobodys) == {}


def test_who_only_names_it_is_passed_over() -> None:
    with memory_file() as path:
        command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert found(path) == {}
            process.kill()


def test_a_longer_name_is_another() -> None:
    """Although it is the same file."""
    with memory_file() as path, memory_file("-longer") as longer:
        moved = path.with_name(f"{path.name}-more")
        os.link(path, moved)
        try:
            with machine(moved) as process:
                assert found(path, longer) == {}
                assert found(moved) == {moved: process.pid}
        finally:
            moved.unlink()


def test_another_file_of_that_name_is_another() -> None:
    with memory_file() as path, machine(path):
        status = path.stat()
        assert find_machines({path: (status.st_dev, status.st_ino + 1)}) == {}


def test_an_end_is_heard_of() -> None:
    with memory_file() as path, machine(path) as process:
        identity = identity_of(path)
        assert identity is not None
        [found_machine] = find_machines({path: identity}).values()
        assert not found_machine.has_ended()
        process.kill()
        assert select.select([found_machine.pidfd], [], [], 30)[0]
        assert found_machine.has_ended()
        assert found_machine.threads() is None
        found_machine.close()


NAMED = """
import ctypes, mmap, os, sys, threading
def name(text): ctypes.CDLL(None).prctl(15, text, 0, 0, 0)
fd = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(fd, 0)
goes = threading.Event()
def vcpu(): name(b"CPU 0/KVM"); print("mapped", flush=True); goes.wait()
threading.Thread(target=vcpu, daemon=True).start()
for line in sys.stdin: goes.set()
"""


def test_a_machine_whose_processors_do_not_run_stands_still() -> None:
    with memory_file() as path:
        command = [sys.executable, "-c", NAMED, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "mapped\n"
            identity = identity_of(path)
            assert identity is not None
            [found_machine] = find_machines({path: identity}).values()
            threads = found_machine.threads()
            assert threads is not None and len(threads.tids) == 1
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            found_machine.stands_still()
            assert found_machine.stands_still()
            found_machine.close()
            process.kill()
