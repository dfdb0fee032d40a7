"""What commands know of a daemon before they talk to it: the folder where it has its socket and its log, and which devices it may have.

Apart from the daemon and its settings, whose modules commands do without.
"""

import errno
import logging
import os
import stat
from pathlib import Path

from backend_host.errors import FairGVError

DEVICE_KINDS = ("auto", "cuda", "soft")
SYSTEM_DIR = Path("/run/fairgv")
SOCKET = "control.sock"


log = logging.getLogger("fairgv.daemon")


def default_state_dir() -> Path:
    """/run/fairgv for root, else $XDG_RUNTIME_DIR/fairgv, else a directory of the user's own under /tmp."""
    if os.geteuid() == 0:
        return SYSTEM_DIR
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "fairgv" if runtime else Path(f"/tmp/fairgv-{os.geteuid()}")


def dir_of_commands(own: Path, system: Path = SYSTEM_DIR) -> Path:
    """Where a user's commands look for a daemon: where the user's own one would be, or at the system's, if that lets users in and there is
    none of the user's own."""
    is_let_in = os.access(system / SOCKET, os.W_OK)
    return system if is_let_in and not (own / SOCKET).exists() else own


def make_state_dir(state_dir: Path) -> None:
    """Makes it where it is missing. FairGVError when it cannot be ours alone: whoever else may write there could pose as this daemon."""
    try:
        state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        status = state_dir.stat()
    except OSError as error:
        raise FairGVError(f"cannot make the state directory {state_dir}: {error.strerror}") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FairGVError(
            f"the state directory {state_dir} can be written to by others (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}); "
            "choose another with --state-dir"
        )


def count_start(state_dir: Path) -> int:
    """Counts one more start of a daemon there; how many there were before. FairGVError when we may not write there. Without room it is said,
    and not counted: programs of the daemon before wait for this one."""
    path = state_dir / "starts"
    try:
        nr_before = int(path.read_text()) if path.exists() else 0
    except (OSError, ValueError):
        nr_before = 0  # it was cut off: counters may begin anew
    new = path.with_suffix(".new")
    try:
        new.write_text(f"{nr_before + 1}\n")
        new.replace(path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise FairGVError(f"cannot write to {state_dir}: {error.strerror}") from error
        log.error("this start is not counted: %s (%s)", error.strerror, state_dir)
    return nr_before


def read_log_tail(path: Path, nr_lines: int = 20) -> str:
    """The last lines of a log, for a message about a daemon that did not start."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-nr_lines:])
    except OSError:
        return ""
