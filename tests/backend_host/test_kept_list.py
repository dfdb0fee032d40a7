"""Lists that daemons write down for each other: what comes back, and what is said of a file that does not."""

import json
import logging
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from backend_host.kept_list import KeptList

LOST = "nobody is known"


def even(entry: object) -> int:
    if int(str(entry)) % 2:
        raise FairGVError(f"{entry} is odd")
    return int(str(entry))


def kept(folder: Path) -> KeptList[int]:
    return KeptList(folder / "numbers.json", even, LOST)


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    kept(tmp_path).write([2, 4])
    assert kept(tmp_path).read() == [2, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]


def test_a_file_that_is_not_there_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert kept(tmp_path).read() == []
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "JSONDecodeError: Expecting value"),
        (b"[2, 4", "JSONDecodeError: "),
        (b"\xff\xfe", "UnicodeDecodeError: "),
        (b"{}", "TypeError: not a list"),
        (b"[2, {}]", "ValueError: "),
        (b"[2, 3]", "FairGVError: 3 is odd"),
        (b"[" * 100_000, "RecursionError: "),
    ],
)
def test_what_cannot_be_read_is_told_and_put_aside(
    text: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numbers.json").write_bytes(text)
    assert kept(tmp_path).read() == []
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"{tmp_path}/numbers.unread cannot be read ({why}")
    assert record.getMessage().endswith(f"): {LOST}")
    assert (tmp_path / "numbers.unread").read_bytes() == text
    kept(tmp_path).write([6])
    assert kept(tmp_path).read() == [6]
    assert (tmp_path / "numbers.unread").read_bytes() == text


def test_what_stays_as_it_is_is_not_written(tmp_path: Path) -> None:
    kept(tmp_path).write([2])
    before = (tmp_path / "numbers.json").stat().st_ino
    kept(tmp_path).write([2])
    assert (tmp_path / "numbers.json").stat().st_ino == before
    kept(tmp_path).write([4])
    assert json.loads((tmp_path / "numbers.json").read_text()) == [4]


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        kept(tmp_path / "gone").write([2])
