"""Files of shared memory that others made: what is taken for a region, and what is refused, in a sentence."""

import os
import socket
from pathlib import Path

import pytest

from backend_host.vm.errors import VmError
from backend_host.vm.memory_file import identity_of, open_memory_file
from tests.backend_host.played_machine import REGION_BYTES, memory_file, new_path


def test_a_file_as_qemu_makes_it() -> None:
    with memory_file() as path:
        fd = open_memory_file(path)
        status = os.fstat(fd)
        assert (status.st_dev, status.st_ino) == identity_of(path)
        assert status.st_size == REGION_BYTES
        assert status.st_mode & 0o777 == 0o640, "nobody else reads what the guest computes"
        assert not os.get_inheritable(fd)
        os.close(fd)


@pytest.mark.parametrize("nr_bytes", [0, 1, 8 << 20, (16 << 20) + 4096, 48 << 20, 128 << 30])
def test_sizes_that_no_region_has(nr_bytes: int) -> None:
    with memory_file(nr_bytes=nr_bytes) as path, pytest.raises(VmError, match=f"has {nr_bytes} bytes"):
        open_memory_file(path)


def test_a_file_that_everybody_may_write() -> None:
    with memory_file(mode=0o666) as path, pytest.raises(VmError, match="chmod o-w"):
        open_memory_file(path)


def test_a_link() -> None:
    with memory_file() as path:
        link = new_path()
        link.symlink_to(path)
        try:
            with pytest.raises(VmError, match="symbolic link"):
                open_memory_file(link)
        finally:
            link.unlink()


def test_a_file_of_two_names() -> None:
    """Whoever may link to another's region would have it served as his own."""
    with memory_file() as path:
        other = new_path()
        os.link(path, other)
        try:
            with pytest.raises(VmError, match="other names"):
                open_memory_file(other)
        finally:
            other.unlink()


def test_what_is_no_file() -> None:
    path = new_path()
    for make in (os.mkfifo, os.mkdir):
        make(path)
        try:
            with pytest.raises(VmError, match=r"no memory|cannot be opened"):
                open_memory_file(path)
        finally:
            path.rmdir() if path.is_dir() else path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(VmError, match="cannot be opened"):
            open_memory_file(path)
        path.unlink()
    with pytest.raises(VmError, match="no file"):
        open_memory_file(path)
    assert identity_of(path) is None


def test_a_file_on_a_disk(tmp_path: Path) -> None:
    """The checkout's own file system: where even that is memory, there is nothing to test."""
    path = Path(__file__).with_name(f"disk-{os.getpid()}")
    path.touch()
    os.truncate(path, REGION_BYTES)
    try:
        with pytest.raises(VmError, match="no memory"):
            open_memory_file(path)
    finally:
        path.unlink()


@pytest.mark.parametrize("path", ["region", "/dev/shm/../shm/region", "/dev/shm/fairgv-web"])
def test_places_that_are_refused(path: str) -> None:
    with pytest.raises(VmError, match=r"no path from the root|FairGV's own"):
        open_memory_file(Path(path))


def test_a_folder_where_others_may_put_files() -> None:
    folder = new_path()
    folder.mkdir()
    folder.chmod(0o777)
    try:
        with pytest.raises(VmError, match="chmod go-w"):
            open_memory_file(folder / "region")
    finally:
        folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is somebody else")
def test_a_file_of_another_user() -> None:
    with memory_file() as path:
        os.chown(path, 65534, 65534)
        fd = open_memory_file(path)
        assert os.fstat(fd).st_mode & 0o777 == 0o640
        os.close(fd)
