"""The folder of a daemon: how often one has started there."""

import errno
import os
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from backend_host.state_dir import count_start


def test_starts_are_counted(tmp_path: Path) -> None:
    assert [count_start(tmp_path) for _ in range(3)] == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["starts"]


@pytest.mark.parametrize("left", [b"", b"many", b"\xff"])
def test_a_count_that_was_cut_off_begins_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "starts").write_bytes(left)
    assert [count_start(tmp_path) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_folder_that_is_full_keeps_no_daemon_from_its_start(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before has died, and its programs wait."""
    assert count_start(tmp_path) == 0

    def fail(_: Path, _text: str) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fail)
        assert count_start(tmp_path) == 1
    assert f"this start is not counted: {os.strerror(number)} ({tmp_path})" in caplog.text
    assert count_start(tmp_path) == 1


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match=r"cannot write to .*gone"):
        count_start(tmp_path / "gone")
