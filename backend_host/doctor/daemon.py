"""The daemon: its state directory, whether it answers, and its unit of systemd."""

import contextlib
import os
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend_host.config import Config
from backend_host.doctor.verdict import Verdict, failed, passed, warned
from backend_host.errors import FairGVError
from backend_host.ipc import Connection, Message
from backend_host.sizes import format_uptime
from backend_host.state_dir import SOCKET, SYSTEM_DIR, default_state_dir, dir_of_commands

UNIT = "fairgv.service"
_SYSTEMD = Path("/run/systemd/system")
_PROPERTIES = ("LoadState", "ActiveState", "Result", "UnitFileState", "KillMode")
_SYSTEMCTL_LIMIT_S = _ANSWER_LIMIT_S = 20.0


@dataclass(frozen=True)
class StateDirReading:
    """`mode` with the kind of file, as stat has it; `trouble` says why it could not be looked at."""

    path: str
    us: int
    is_there: bool = True
    owner: int = 0
    mode: int = 0
    trouble: str = ""


def read_state_dir(path: Path) -> StateDirReading:
    """As `make_state_dir` looks at it, who follows links."""
    us = os.geteuid()
    try:
        status = path.stat()
    except FileNotFoundError:
        return StateDirReading(str(path), us, is_there=False)
    except OSError as error:
        return StateDirReading(str(path), us, trouble=error.strerror or str(error))
    return StateDirReading(str(path), us, True, status.st_uid, status.st_mode)


def state_dir(reading: StateDirReading) -> Verdict:
    """Whoever else may write there could pose as the daemon."""
    name, path = "state directory", reading.path
    if reading.trouble:
        return failed(
            name, f"{path}: {reading.trouble}", "another one with --state-dir, or state_dir in the configuration"
        )
    if not reading.is_there:
        return passed(name, f"{path} is made at the start")
    if not stat.S_ISDIR(reading.mode):
        return failed(name, f"{path} is no directory", f"remove {path}")
    mode = stat.S_IMODE(reading.mode)
    if reading.owner != reading.us:
        return failed(name, f"{path} belongs to user {reading.owner}, not {reading.us}", f"chown {reading.us} {path}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return failed(name, f"{path} can be written to by others (mode {mode:o})", f"chmod go-w {path}")
    return passed(name, f"{path}, user {reading.owner}, mode {mode:o}")


@dataclass(frozen=True)
class DaemonReading:
    """`status` of one that answers, else `trouble`. `has_socket`: one was there."""

    status: Message | None = None
    trouble: str = ""
    has_socket: bool = False


def socket_of(config: Config, system: Path = SYSTEM_DIR) -> Path:
    """Of the daemon that commands of this user find."""
    own = config.state_dir
    return (dir_of_commands(own, system) if own == default_state_dir() else own) / SOCKET


def read_daemon(socket_path: Path, limit_s: float = _ANSWER_LIMIT_S) -> DaemonReading:
    """Asks it. Where systemd has the socket, it takes questions for a daemon that starts, also for one that never gets as far."""
    has_socket = False
    with contextlib.suppress(OSError):
        has_socket = socket_path.exists()
    try:
        with Connection(socket_path) as connection, _answer_due(connection, limit_s) as is_late:
            try:
                return DaemonReading(connection.ask("status"), has_socket=True)
            except FairGVError as error:
                trouble = f"no answer for {limit_s:g} s" if is_late.is_set() else str(error)
    except FairGVError as error:
        trouble = str(error)
    return DaemonReading(trouble=trouble, has_socket=has_socket)


@contextlib.contextmanager
def _answer_due(connection: Connection, limit_s: float) -> Iterator[threading.Event]:
    """Who waits for an answer until then is told that there is none; the event says so."""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        connection.abandon()

    timer = threading.Timer(limit_s, give_up)
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()
        timer.join()


def daemon(reading: DaemonReading) -> Verdict:
    """Whether it serves. It may be of an earlier release than this command, and tell less."""
    if reading.status is not None:
        told = reading.status
        text = f"answers: process {told['pid']}, up {format_uptime(told['uptime_ns'])}, vGPUs: {len(told['vgpus'])}"
        if waits_for := told.get("waits_for"):
            return warned("daemon", f"{text}; {waits_for}", "wait for them, or end them: fairgv-host stop, then start")
        if troubles := told.get("troubles"):
            remedy = "as it says there; settings that were mended hold after: fairgv-host reload, or restart where they name devices"
            return warned("daemon", f"{text}; {'; '.join(troubles)}", remedy)
        return passed("daemon", text)
    if reading.has_socket:
        remedy = "ask as its user; or see daemon.log beside the socket, then: fairgv-host start"
        return warned("daemon", f"does not answer: {reading.trouble}", remedy)
    return warned("daemon", "does not run", "fairgv-host start")


def read_unit() -> Mapping[str, str] | None:
    """What systemd says of the unit; None where systemd does not run."""
    if not _SYSTEMD.is_dir():
        return None
    command = ["systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SYSTEMCTL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return {"Error": str(error)}
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def unit(reading: Mapping[str, str] | None) -> Verdict:
    """A host that is to serve after its next start needs one."""
    if reading is None:
        return passed(UNIT, "systemd does not run here")
    if "Error" in reading:
        return warned(UNIT, f"systemd does not tell: {reading['Error']}", f"systemctl status {UNIT}")
    if reading.get("LoadState") != "loaded":
        text = (
            f"systemd has no such unit ({reading.get('LoadState', 'unknown')}): the daemon does not start with the host"
        )
        return warned(UNIT, text, "a unit with ExecStart=fairgv-host start --foreground and KillMode=process")
    if reading.get("ActiveState") == "failed":
        return failed(UNIT, f"has failed ({reading.get('Result', 'unknown')})", f"journalctl -u {UNIT}")
    if reading.get("KillMode") != "process":
        text = f"has KillMode={reading.get('KillMode', '')}: a restart ends the servers of doorbells, and with them running regions"
        return warned(UNIT, text, f"KillMode=process by: systemctl edit {UNIT}")
    state = f"{reading.get('ActiveState', 'unknown')}, {reading.get('UnitFileState') or 'of no file'}"
    if reading.get("ActiveState") != "active" or reading.get("UnitFileState") == "disabled":
        return warned(UNIT, state, f"systemctl enable --now {UNIT}")
    return passed(UNIT, state)
