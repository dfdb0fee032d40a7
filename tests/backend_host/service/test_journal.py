"""The journal's protocol, read by a test that plays the journal: fields, priorities, values of several lines, entries beyond a datagram."""

import logging
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.guest_log import GuestLog
from backend_host.service import journal
from backend_host.service.journal import JournalHandler, about


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    """What the journal hears."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(60)
        yield listening


@pytest.fixture
def log(heard: socket.socket, tmp_path: Path) -> Iterator[logging.Logger]:
    """A log that goes there alone."""
    handler = JournalHandler(tmp_path / "journal")
    log = logging.Logger("fairgv.test")
    log.addHandler(handler)
    yield log
    handler.close()


def parsed(data: bytes) -> dict[str, str]:
    """Fields of an entry, as the protocol has them."""
    fields = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if equals:
            data = rest
        else:
            [size] = struct.unpack("<Q", rest[:8])
            value, data = rest[8 : 8 + size], rest[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return fields


@pytest.mark.parametrize(
    ("level", "priority"), [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3"), ("critical", "2")]
)
def test_priorities_and_fields(log: logging.Logger, heard: socket.socket, level: str, priority: str) -> None:
    getattr(log, level)("vGPU %s: %s", "vm", "said", extra=about("vm", "vm"))
    fields = parsed(heard.recv(1 << 16))
    assert fields["MESSAGE"] == "vGPU vm: said"
    assert fields["PRIORITY"] == priority
    assert fields["SYSLOG_IDENTIFIER"] == "fairgv-host"
    assert (fields["FAIRGV_VGPU"], fields["FAIRGV_DOMAIN"]) == ("vm", "vm")
    assert "FAIRGV_EVENT" not in fields, "what is not known is not said"


def test_several_lines_are_one_value(log: logging.Logger, heard: socket.socket) -> None:
    log.error("two lines\nPRIORITY=0\nFAIRGV_VGPU=other")
    fields = parsed(heard.recv(1 << 16))
    assert fields["MESSAGE"] == "two lines\nPRIORITY=0\nFAIRGV_VGPU=other"
    assert fields["PRIORITY"] == "3"
    assert "FAIRGV_VGPU" not in fields


def test_a_long_entry_comes_as_a_sealed_file(log: logging.Logger, heard: socket.socket) -> None:
    text = "x" * (1 << 20)
    log.warning(text)
    data, [file], _, _ = socket.recv_fds(heard, 1 << 16, 1)
    assert data == b""
    with pytest.raises(PermissionError):
        os.write(file, b"more")
    assert parsed(os.pread(file, 1 << 21, 0))["MESSAGE"] == text
    os.close(file)


def test_what_is_said_of_a_guest_names_it(log: logging.Logger, heard: socket.socket) -> None:
    GuestLog(log, "vm").say(logging.ERROR, "client %d is refused", 3)
    fields = parsed(heard.recv(1 << 16))
    assert (fields["MESSAGE"], fields["FAIRGV_VGPU"]) == ("vm: client 3 is refused", "vm")


def test_it_is_used_where_standard_error_goes_there(
    heard: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SOCKET", tmp_path / "journal")
    with (tmp_path / "errors").open("w") as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        status = os.fstat(errors.fileno())
        ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        handler = journal.handler(ours)
        assert isinstance(handler, JournalHandler)
        handler.emit(logging.LogRecord("fairgv.x", logging.INFO, __file__, 1, "said", None, None))
        assert parsed(heard.recv(4096))["MESSAGE"] == "fairgv.x: said"
        handler.close()
        assert not isinstance(journal.handler({}), JournalHandler)
        assert not isinstance(journal.handler({"JOURNAL_STREAM": "8:1"}), JournalHandler)
        monkeypatch.setattr(journal, "SOCKET", tmp_path / "nobody")
        assert not isinstance(journal.handler(ours), JournalHandler)
