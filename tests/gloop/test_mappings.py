"""The page cache: what it shares, what it reads again, whose place it gives away, and what it refuses."""

import errno
import os
import random
from pathlib import Path

import pytest

from tests.gloop.conftest import Runner

PAGE = 65536
NR_PAGES = 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As large as the cache, and written to long ago."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(1).randbytes(NR_PAGES * PAGE))
    os.utime(path, (1000, 1000))
    return path


def numbers(runner: Runner, what: str, *paths: Path) -> list[int]:
    result = runner.run("mappings", what, *paths)
    assert result.returncode == 0, result.stderr
    return [int(number) for number in result.stdout.split()]


def test_what_cannot_be_mapped(runner: Runner, file: Path) -> None:
    """Also bytes of which there are so many that their end is before their begin. What is left is mapped."""
    assert numbers(runner, "refused", file) == [
        *[-errno.ENOMEM] * 4,
        -errno.EINVAL,
        -errno.EACCES,
        1,
    ]


def test_pages_leave_for_others_once_nobody_has_them_mapped(runner: Runner, file: Path) -> None:
    data = file.read_bytes()
    begin, end, third = data[PAGE], data[17 * PAGE - 1], data[17 * PAGE]
    assert numbers(runner, "evicted", file) == [begin, end, -errno.ENOMEM, third, begin]


def test_mappings_share_pages_also_after_msync(runner: Runner, file: Path) -> None:
    before = file.read_bytes()
    assert numbers(runner, "shared", file) == [0, 0, 0, 0, 7 * PAGE, 0, 1]
    assert file.read_bytes() == before[:5] + b"S" + before[6:]


def test_what_others_write_is_read_again(runner: Runner, file: Path) -> None:
    """Where the file's time does not tell, as it is too young; and where its size alone does."""
    assert numbers(runner, "changed", file) == [1, 2, 3, 4, 5]


def test_msync_writes_to_its_own_file(runner: Runner, file: Path, tmp_path: Path) -> None:
    """Also when the mapping has ended, and another file has the number that its descriptor had."""
    other = tmp_path / "other"
    os.truncate(file, 60 << 20)
    assert numbers(runner, "closed", file, other) == [0, 0, 1]
    assert other.read_bytes() == b""
    assert file.read_bytes()[:33] != b"Z" * 33
    assert file.read_bytes()[:32] == b"Z" * 32


def test_without_descriptors_calls_say_so(runner: Runner, file: Path) -> None:
    assert numbers(runner, "full", file) == [-errno.EMFILE] * 2
