"""Virtual machines without QEMU: a file under /dev/shm, and a process that has it mapped and named."""

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REGION_BYTES = 16 << 20
_SCRIPT = """
import mmap, os, sys
fd = os.open(sys.argv[1].rpartition("=")[2].replace(",,", ","), os.O_RDWR)
memory = mmap.mmap(fd, 0)
print("mapped", flush=True)
sys.stdin.read()
"""
_numbers = itertools.count()


def new_path(more: str = "") -> Path:
    """A name that no other test has."""
    return Path(f"/dev/shm/test-machine-{os.getpid()}-{next(_numbers)}{more}")


def make_file(path: Path, nr_bytes: int = REGION_BYTES, mode: int = 0o644) -> Path:
    """As QEMU's memory-backend-file does."""
    with path.open("xb") as file:
        file.truncate(nr_bytes)
    path.chmod(mode)
    return path


@contextlib.contextmanager
def memory_file(more: str = "", nr_bytes: int = REGION_BYTES, mode: int = 0o644) -> Iterator[Path]:
    """One that is there for the length of a block, if nobody takes it away."""
    path = make_file(new_path(more), nr_bytes, mode)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def machine(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that names the file as QEMU does, and has mapped it."""
    option = f"memory-backend-file,id=ivshmem,share=on,mem-path={str(path).replace(',', ',,')}"
    command = [sys.executable, "-c", _SCRIPT, option]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        try:
            yield process
        finally:
            process.kill()
