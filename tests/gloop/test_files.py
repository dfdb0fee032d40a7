"""Files: what a kernel reads and writes is what lies on the disk, by pinned pages, by the driver, and mapped."""

import errno
import os
import random
from pathlib import Path

import pytest

from tests.gloop.conftest import Runner


def sum_of(data: bytes) -> int:
    return sum(byte * (place % 251 + 1) for place, byte in enumerate(data))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(random.Random(1).randbytes(500_001))
    os.utime(path, (1000, 1000))  # who was written to at this moment is not kept
    return path


@pytest.mark.parametrize("points", [0, 1, 3])
@pytest.mark.parametrize("chunk", [5000, 65536, 200_000])
def test_a_file_is_copied_by_chunks(runner: Runner, source: Path, tmp_path: Path, chunk: int, points: int) -> None:
    target = tmp_path / "target"
    result = runner.run("files", "copy", source, target, chunk, points=points)
    assert (result.returncode, result.stdout) == (0, "copied 1\n"), result.stderr
    assert target.read_bytes() == bytes(byte ^ 0x55 for byte in source.read_bytes())[:-1]


def test_pieces_of_a_few_bytes_are_copied_from_any_byte_on(runner: Runner, source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:1000])
    target = tmp_path / "target"
    result = runner.run("files", "copy", source, target, 11)
    assert (result.returncode, result.stdout) == (0, "copied 1\n"), result.stderr
    assert target.read_bytes() == bytes(byte ^ 0x55 for byte in source.read_bytes())[:-1]


@pytest.mark.parametrize("points", [0, 2])
def test_a_mapped_file_is_kept_and_written_by_msync_alone(runner: Runner, source: Path, points: int) -> None:
    before = source.read_bytes()
    after = before[:70000] + b"AAAAA" + before[70005:]
    result = runner.run("files", "map", source, points=points)
    assert source.read_bytes() == after, result.stderr
    assert result.stdout.splitlines() == [
        f"sum {sum_of(before)}",
        f"sum {sum_of(before)}",
        "had 1",
        f"sum {sum_of(after)}",
    ]


def test_calls_that_fail_give_minus_errno(runner: Runner, tmp_path: Path) -> None:
    result = runner.run("files", "errors", tmp_path)
    assert [errno.errorcode[-int(number)] for number in result.stdout.split()] == [
        "ENAMETOOLONG",
        "ENOENT",
        "EISDIR",
        "EBADF",
        "EFAULT",  # a buffer in shared memory
        "EBADF",
        "EINVAL",
        "EBADF",
        "EBADF",
        "EBADF",
        "EFAULT",  # no buffer
        "EFAULT",
    ], result.stderr


def test_more_requests_at_once_than_a_block_has_pages(runner: Runner, tmp_path: Path) -> None:
    result = runner.run("files", "busy", tmp_path / "busy")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "busy").read_bytes() == bytes(place % 241 for place in range(6 * 30 * 5000))
