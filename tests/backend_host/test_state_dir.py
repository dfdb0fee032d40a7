"""The folder of a daemon: how often one has started there."""

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


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match=r"cannot write to .*gone"):
        count_start(tmp_path / "gone")
