"""The file for node_exporter: whole at each moment, gone afterwards, and what is said when it cannot be written."""

import itertools
import logging
import re
import stat
import threading
from pathlib import Path

import pytest

from backend_host.metrics import textfile
from backend_host.metrics.textfile import MetricsFile
from tests.end_to_end.host import wait_until


def test_it_is_there_at_once_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "fairgv.prom"
    file = MetricsFile(path, lambda: b"a 1\n")
    file.start()
    assert path.read_bytes() == b"a 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "node_exporter is another user"
    file.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_folder_leads_nowhere(tmp_path: Path) -> None:
    """The collector's user may put one there, and the daemon writes as root."""
    path, other = tmp_path / "fairgv.prom", tmp_path / "secret"
    other.write_bytes(b"theirs")
    other.chmod(0o600)
    path.symlink_to(other)
    path.with_suffix(".new").symlink_to(other)
    file = MetricsFile(path, lambda: b"a 1\n")
    file.start()
    assert (other.read_bytes(), stat.S_IMODE(other.stat().st_mode)) == (b"theirs", 0o600)
    assert not path.is_symlink()
    assert path.read_bytes() == b"a 1\n"
    file.stop()


def test_it_is_written_again_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "PERIOD_S", 0.001)
    path, many = tmp_path / "fairgv.prom", threading.Event()

    def text() -> bytes:
        number = next(numbers)
        if number == 50:
            many.set()
        return f"a {number}\n".encode() * 1000

    numbers = itertools.count(1)
    file = MetricsFile(path, text)
    file.start()
    while not many.is_set():
        lines = path.read_text().splitlines()
        assert (len(lines), len(set(lines))) == (1000, 1)
    file.stop()


def test_a_folder_that_is_not_there_is_noted_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may be full for a while, too."""
    monkeypatch.setattr(textfile, "PERIOD_S", 0.001)
    path, notes = tmp_path / "late" / "fairgv.prom", list[str]()
    file = MetricsFile(path, lambda: b"a 1\n", notes.append)
    file.start()
    [note] = notes
    assert re.fullmatch(r"cannot write .*fairgv.prom: No such file .* --collector.textfile.directory.*", note)
    path.parent.mkdir()
    wait_until(path.exists, "it is written")
    file.stop()
    assert not path.exists()


def test_a_failure_is_told_once_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(textfile, "PERIOD_S", 0.001)
    path, is_back = tmp_path / "fairgv.prom", threading.Event()

    def text() -> bytes:
        number = next(numbers)
        if 1 < number < 20:
            raise OSError(28, "No space left on device")
        if number == 21:
            is_back.set()
        return b"a 1\n"

    numbers = itertools.count(1)
    file = MetricsFile(path, text)
    with caplog.at_level(logging.ERROR):
        file.start()
        assert is_back.wait(60)
        file.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f"the metrics are not written to {path}; trying again"
    ]
