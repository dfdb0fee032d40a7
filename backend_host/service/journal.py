"""The daemon's log in systemd's journal, where its standard error goes there: with priorities, and fields to look for, `FAIRGV_VGPU=vm` say.

It is a datagram of lines (systemd's "Native Journal Protocol"); a value of several lines is told with its length. What is longer than a
datagram comes as a sealed file. Elsewhere the log is text.
"""

import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from ivshmem.passing import send_with

SOCKET = Path("/run/systemd/journal/socket")
_IDENTIFIER = "fairgv-host"
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""As syslog(3) numbers them."""
_DEBUG = 7
FIELDS = ("vgpu", "domain", "event", "uid")
"""Attributes of a record, by `extra` of its logging call, that become `FAIRGV_VGPU=` and so on."""


def about(vgpu: str = "", domain: str = "") -> Mapping[str, str]:
    """`extra` of a logging call: whom the line is about."""
    return {"vgpu": vgpu, "domain": domain}


def handler(environment: Mapping[str, str]) -> logging.Handler:
    """Where the daemon's log goes."""
    if _is_our_stderr(environment):
        try:
            journal = JournalHandler(SOCKET)
            journal.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            return journal
        except OSError:
            pass  # as text it comes there, too
    text = logging.StreamHandler(sys.stderr)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return text


def _is_our_stderr(environment: Mapping[str, str]) -> bool:
    """Whether what this process writes to its standard error goes to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    status = os.fstat(sys.stderr.fileno())
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JournalHandler(logging.Handler):
    """Raises OSError where nobody listens at `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def emit(self, record: logging.LogRecord) -> None:
        """See there. A journal that takes nothing more is no reason to wait."""
        try:
            data = encoded(self._fields(record))
            try:
                self._socket.send(data, socket.MSG_DONTWAIT)
            except OSError:
                self._send_file(data)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """See there."""
        self._socket.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> dict[str, str]:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
        fields = {
            "MESSAGE": self.format(record),
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": _IDENTIFIER,
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
        }
        told = {f"FAIRGV_{name.upper()}": str(getattr(record, name, "")) for name in FIELDS}
        return {**fields, **{name: value for name, value in told.items() if value}}

    def _send_file(self, data: bytes) -> None:
        file = os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(file, data)
            fcntl.fcntl(
                file,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
            )
            send_with(self._socket, b"", [file], socket.MSG_DONTWAIT)
        finally:
            os.close(file)


def encoded(fields: Mapping[str, str]) -> bytes:
    """One entry, as the journal reads it."""
    return b"".join(_line(name.encode(), value.encode(errors="replace")) for name, value in fields.items())


def _line(name: bytes, value: bytes) -> bytes:
    if b"\n" not in value:
        return b"%s=%s\n" % (name, value)
    return b"%s\n%s%s\n" % (name, struct.pack("<Q", len(value)), value)
