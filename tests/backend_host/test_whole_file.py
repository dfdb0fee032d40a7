"""Files as a whole or not at all, and what is no file."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from backend_host import timeline
from backend_host.web import report
from backend_host.whole_file import whole
from benchmarks import document


def test_a_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with whole(path) as place:
        place.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(OSError, match="no room"), whole(path) as place:
        place.write_text("half")
        raise OSError("no room")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "link").symlink_to("to/file")
    with whole(tmp_path / "link") as place:
        place.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "to/file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "to"]


@pytest.mark.parametrize("name", ["report", "timeline", "document"])
def test_what_is_no_file_stays_what_it_is(tmp_path: Path, name: str) -> None:
    """As /dev/stdout and /dev/null."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR)
    os.set_blocking(reader, False)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    writes = {
        "report": lambda: report.write(path, {}),
        "timeline": lambda: timeline.write([], path),
        "document": lambda: document.write(path, {}),
    }
    document.check_writable(path)
    writes[name]()
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.read(reader, 1 << 20)
    os.close(reader)
    assert list(tmp_path.iterdir()) == [path]
